"""The models of `models.py` on disk and the subjects of the parity table, each made on first use."""

import functools

import pytest
import torch

from tests.engine.compute.models import MODELS, add_tokenizer, save
from tests.engine.compute.parity import ROWS


@pytest.fixture(scope="session", params=MODELS)
def any_model(request, a_model):
    """(directory, transformers model), for each of MODELS."""
    return a_model(request.param)


@pytest.fixture(scope="session")
def a_model(tmp_path_factory):
    """name -> (directory with a tokenizer, transformers model), made on first use."""

    @functools.cache
    def make(name):
        directory = tmp_path_factory.mktemp(name)
        model = save(directory, name)
        add_tokenizer(directory)
        return directory, model

    return make


@pytest.fixture(scope="session")
def qwen3(a_model):
    """(directory, transformers model)"""
    return a_model("qwen3")


@pytest.fixture(scope="session")
def subject(tmp_path_factory):
    """Name of a row of the parity table -> its Subject, made on first use."""
    return functools.cache(lambda name: ROWS[name](tmp_path_factory.mktemp("parity")))


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)
