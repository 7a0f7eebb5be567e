"""Models of the hub, without a network: from the cache, or with a word about what is missing."""

import shutil

import huggingface_hub
import pytest

from engine.compute.loader import load
from engine.compute.weights.checkpoint import CheckpointError
from engine.compute.weights.hub import is_hub_name
from tests.engine.compute.models import add_tokenizer
from tests.facts import raises_naming


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and HF_HUB_OFFLINE, which the library reads when it is imported."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_a_model_in_the_cache_is_loaded_by_its_name(cache, qwen3):
    repository = cache / "models--someone--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    snapshot = repository / "snapshots" / ("0" * 40)
    shutil.copytree(qwen3[0], snapshot)
    add_tokenizer(snapshot)
    runner, tokenizer = load("someone/tiny")
    assert runner.describe()["name"] == tokenizer.describe()["name"] == "someone/tiny"


def test_without_a_network_the_error_says_so():
    with raises_naming(CheckpointError, "someone/tiny", "HF_HUB_OFFLINE"):
        load("someone/tiny")


@pytest.mark.parametrize("name", ["../tiny/", "tiny", "a/b/c", "a b/c", "some one", "./a/b", ""])
def test_what_is_no_name_of_the_hub_is_not_asked_for(name):
    assert not is_hub_name(name)
    assert is_hub_name("HuggingFaceTB/SmolLM2-135M")
