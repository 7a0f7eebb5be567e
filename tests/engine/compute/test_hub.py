"""Models of the hub, without a network: from the cache, or with a word about what is missing."""

import shutil

import httpx
import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

from engine.models.loader import load
from engine.models.weights.checkpoint import CheckpointError
from engine.models.weights.hub import download, is_hub_name
from tests.engine.compute.gguf_files import Type, write
from tests.facts import raises_naming


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and HF_HUB_OFFLINE, which the library reads when it is imported."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def repository(cache):
    """Return a function that puts files into the cache, as if they had been downloaded."""
    snapshot = cache / "models--someone--tiny" / "snapshots" / ("0" * 40)

    def put(*files):
        (snapshot.parent.parent / "refs").mkdir(parents=True)
        (snapshot.parent.parent / "refs" / "main").write_text("0" * 40)
        for file in files:
            (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
            (snapshot / file).write_bytes(b"")
        return snapshot

    return put


def test_a_model_in_the_cache_is_loaded_by_its_name(repository, qwen3):
    snapshot = repository()
    shutil.copytree(qwen3[0], snapshot)
    runner, tokenizer = load("someone/tiny")
    assert runner.describe()["name"] == tokenizer.describe()["name"] == "someone/tiny"


def test_a_gguf_file_in_the_cache_is_loaded_by_its_tag(repository):
    snapshot = repository("tiny-Q8_0.gguf")
    (snapshot / "tiny-Q8_0.gguf").unlink()
    write(snapshot / "tiny-Q8_0.gguf", "llama", Type.Q8_0)
    runner, tokenizer = load("someone/tiny:q8_0")
    assert runner.describe()["name"] == "someone/tiny:q8_0"
    assert tokenizer.encode("hi")


def test_the_file_of_a_tag_a_name_or_the_default(repository):
    snapshot = repository(
        "tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf", "old/tiny-F16.gguf", "mmproj-F16.gguf"
    )
    for name, file in {
        "someone/tiny:Q8_0": "tiny-Q8_0.gguf",
        "someone/tiny:f16": "old/tiny-F16.gguf",
        "someone/tiny/old/tiny-F16.gguf": "old/tiny-F16.gguf",
        "someone/tiny": "tiny-Q4_K_M.gguf",
    }.items():
        assert download(name) == snapshot / file
    with raises_naming(CheckpointError, "someone/tiny", "Q5_K_M", "F16, Q4_K_M, Q8_0"):
        download("someone/tiny:Q5_K_M")
    with raises_naming(CheckpointError, "tiny-Q2_K.gguf", "Q8_0"):
        download("someone/tiny/tiny-Q2_K.gguf")


def test_without_the_default_the_tags_are_listed(repository):
    repository("tiny-Q8_0.gguf", "tiny-IQ2_XS.gguf")
    with raises_naming(CheckpointError, "Q4_K_M", "IQ2_XS, Q8_0"):
        download("someone/tiny")


def test_pickles_are_refused_with_the_command_that_converts_them(repository):
    repository("config.json", "pytorch_model-00001-of-00002.bin")
    with raises_naming(
        CheckpointError, "pytorch_model", "from_pretrained('someone/tiny'", "'tiny'"
    ):
        download("someone/tiny")


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (GatedRepoError, "hf auth login"),
        (RepositoryNotFoundError, "spelling"),
        (LocalEntryNotFoundError, "network"),
    ],
)
def test_an_error_names_the_fix(monkeypatch, error, fix):
    def refuse(*_, **__):
        if issubclass(error, OSError) and not issubclass(error, RepositoryNotFoundError):
            raise error("no")
        raise error("no", response=httpx.Response(404, request=httpx.Request("GET", "http://hub")))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with raises_naming(CheckpointError, "someone/tiny", fix):
        download("someone/tiny")


def test_without_a_network_the_error_says_so():
    with raises_naming(CheckpointError, "someone/tiny", "HF_HUB_OFFLINE"):
        load("someone/tiny")


PATHS = ["../tiny/", "models/a.gguf", "a/b:", "a/b/c.bin", "./a.gguf", "tiny", "a/b/c", "./a/b", ""]


@pytest.mark.parametrize("name", [*PATHS, "a b/c", "some one"])
def test_what_is_no_name_of_the_hub_is_not_asked_for(name):
    assert not is_hub_name(name)
    for known in ("SmolLM2-135M", "SmolLM2-135M-GGUF:Q4_K_M", "SmolLM2/smol.Q4_K_M.gguf"):
        assert is_hub_name(f"HuggingFaceTB/{known}")


def test_a_model_in_parts_has_all_of_them(repository):
    parts = [f"Q4_K_M/tiny-Q4_K_M-0000{i}-of-00002.gguf" for i in (1, 2)]
    snapshot = repository(*parts)
    assert download("someone/tiny:Q4_K_M") == snapshot / parts[0]
