"""GGUF files in parts, as `gguf.GGUFWriter` splits them."""

import shutil

import gguf
import pytest
import torch

from engine.compute.weights.checkpoint import CheckpointError
from engine.compute.weights.gguf_checkpoint import GGUFCheckpoint
from tests.engine.compute.gguf_files import finish, write
from tests.facts import raises_naming


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    file = tmp_path_factory.mktemp("whole") / "m.gguf"
    write(file, "llama")
    return file


@pytest.fixture
def parts(whole, tmp_path):
    """The same model in parts of at most 9 tensors."""
    reader = gguf.GGUFReader(whole)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=9)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kinds = [*field.types, None]
            writer.add_key_value(name, field.contents(), kinds[0], sub_type=kinds[1])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    finish(writer)
    files = sorted(tmp_path.glob("*.gguf"))
    assert [file.name for file in files] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    return files


def test_all_parts_are_loaded(whole, parts):
    one, three = GGUFCheckpoint(whole), GGUFCheckpoint(parts[0])
    assert three.config == one.config
    assert three.weight_bytes() == one.weight_bytes()
    for name, tensor in one._tensors.items():
        assert torch.equal(three.load(name, *tensor.shape), one.load(name, *tensor.shape))
    three.check_all_loaded()


def test_a_missing_part_is_named(parts):
    parts[1].unlink()
    with raises_naming(CheckpointError, parts[1], "3"):
        GGUFCheckpoint(parts[0])


def test_another_part_than_the_first_says_which_to_give(parts):
    with raises_naming(CheckpointError, parts[2], parts[0].name):
        GGUFCheckpoint(parts[2])


def test_the_same_part_twice_is_rejected(parts):
    shutil.copy(parts[1], parts[2])
    with raises_naming(CheckpointError, parts[2], "another part"):
        GGUFCheckpoint(parts[0])


def test_a_renamed_part_says_what_names_are_needed(parts):
    renamed = parts[0].rename(parts[0].with_name("model.gguf"))
    with raises_naming(CheckpointError, renamed, "NAME-00001-of-00003.gguf"):
        GGUFCheckpoint(renamed)
