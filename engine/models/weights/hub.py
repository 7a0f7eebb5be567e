"""Models from the Hugging Face hub: downloaded once, then read from the local cache.

    owner/name             the Hugging Face directory; a repository with GGUF files only: its Q4_K_M
    owner/name:Q8_0        the GGUF file of this quantization, as llama.cpp and Ollama write it
    owner/name/FILE.gguf   this GGUF file

The `huggingface_hub` library shows the progress.
"""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from engine.models.weights.checkpoint import PICKLES, CheckpointError, pickled_error

# The files that `load` reads; repositories also hold the weights in other formats, some of them in
# folders (gpt-oss has `original/model.safetensors`).
_FILES = ["*.json", "*.safetensors", "tokenizer.model", "chat_template.jinja"]
_DEFAULT_TAG = "Q4_K_M"
_REPOSITORY = r"\w[\w.-]*/[\w.-]+(?<!\.gguf)"
_NAME = re.compile(rf"({_REPOSITORY})(?::([\w.-]+)|/([\w./-]+\.gguf))?")
# "-Q4_K_M.gguf", or "-Q4_K_M-00001-of-00003.gguf" for one of several parts
_TAG = re.compile(
    r"[-._]((?:I?Q\d|TQ\d|BF16|F16|F32|MXFP4)\w*)(?:-\d{5}-of-\d{5})?\.gguf", re.IGNORECASE
)


def is_hub_name(model: str) -> bool:
    """Return whether this has the form of a name on the hub."""
    return _NAME.fullmatch(model) is not None


def download(name: str) -> Path:
    """Return the local directory or GGUF file of a model on the hub; download it if it is not cached.

    Raises CheckpointError if the model or the file is unknown, access is denied, or there is neither a
    network nor a cached copy.
    """
    found = _NAME.fullmatch(name)
    assert found is not None, name
    repository, tag, file = found.groups()
    try:
        if tag is None and file is None:
            directory = _download(repository, _FILES, ignored=["*/*"])
            if any(directory.glob("*.safetensors")):
                return directory
            if (directory / "config.json").is_file():
                if _list(repository, PICKLES):
                    raise pickled_error(repository)
                return directory
            if not (files := _gguf_files(repository)):
                return directory
            return _download_gguf(repository, _with_tag(repository, files, _DEFAULT_TAG))
        files = [file] if file else _with_tag(repository, _gguf_files(repository), tag)
        return _download_gguf(repository, files)
    except (HfHubHTTPError, OSError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"there is no model directory {name}, and no model of that name could be downloaded from "
            f"the Hugging Face hub ({reason}): {_fix(error, repository)}, or give a local directory"
        ) from error


def _fix(error: Exception, repository: str) -> str:
    if isinstance(error, GatedRepoError):
        return (
            f"accept the conditions on the page of {repository}, then log in with `hf auth login`"
        )
    if isinstance(error, RepositoryNotFoundError):
        return "check the spelling; for a private model, log in with `hf auth login`"
    if isinstance(error, OfflineModeIsEnabled | LocalEntryNotFoundError):
        return "it is not in the cache, so check the network and unset HF_HUB_OFFLINE"
    return "check the name and the network"


def _download(repository: str, patterns: list[str], ignored: list[str] | None = None) -> Path:
    return Path(
        huggingface_hub.snapshot_download(
            repository, allow_patterns=patterns, ignore_patterns=ignored
        )
    )


def _download_gguf(repository: str, files: list[str]) -> Path:
    """Return the first of the files; they are the parts of one model."""
    path = _download(repository, files) / files[0]
    if not path.is_file():
        raise CheckpointError(
            f"{repository} has no file {files[0]}{_tags(_gguf_files(repository))}"
        )
    return path


def _gguf_files(repository: str) -> list[str]:
    # mmproj files hold the image encoder that belongs to a model.
    return [file for file in _list(repository, "*.gguf") if "mmproj" not in file]


def _list(repository: str, pattern: str) -> list[str]:
    """Return a repository's files that match; without a network, those of them in the cache."""
    try:
        files = huggingface_hub.HfApi().list_repo_files(repository)
    except (OfflineModeIsEnabled, ConnectionError):
        directory = _download(repository, [pattern])
        files = [file.relative_to(directory).as_posix() for file in directory.rglob(pattern)]
    return sorted(file for file in files if fnmatchcase(file, pattern))


def _with_tag(repository: str, files: list[str], tag: str) -> list[str]:
    """Return the file with a tag, or all its parts. Raises CheckpointError with the known tags."""
    ending = re.compile(rf"(.*[-._/])?{re.escape(tag)}(-\d{{5}}-of-\d{{5}})?\.gguf", re.IGNORECASE)
    found = [file for file in files if ending.fullmatch(file)]
    if not found:
        raise CheckpointError(f"{repository} has no GGUF file for {tag}{_tags(files)}")
    return found if "-of-" in found[0] else found[:1]


def _tags(files: list[str]) -> str:
    tags = {match[1].upper() for file in files if (match := _TAG.search(file))}
    return f"; it has {', '.join(sorted(tags or files)) or 'no GGUF files'}"
