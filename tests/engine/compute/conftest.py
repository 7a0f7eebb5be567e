"""The models of `models.py` on disk, each made on first use."""

import functools

import pytest
import torch

from tests.engine.compute.models import MODELS, save


@pytest.fixture(scope="session", params=MODELS)
def any_model(request, a_model):
    """(directory, transformers model), for each of MODELS."""
    return a_model(request.param)


@pytest.fixture(scope="session")
def a_model(tmp_path_factory):
    """name -> (directory, transformers model), made on first use."""

    @functools.cache
    def make(name):
        directory = tmp_path_factory.mktemp(name)
        return directory, save(directory, name)

    return make


@pytest.fixture(scope="session")
def qwen3(a_model):
    """(directory, transformers model)"""
    return a_model("qwen3")


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)
