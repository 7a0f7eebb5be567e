"""GGUF files, whole, in parts or by llama.cpp's converter: they compute what transformers computes."""

import shutil

import gguf
import numpy as np
import pytest
import torch

from engine.core.tokenizer import TokenizerError
from engine.models.loader import load
from engine.models.text.gguf_tokenizer import GGUFTokenizer
from engine.models.weights.checkpoint import CheckpointError
from engine.models.weights.gguf_architectures import ARCHITECTURES, config_entries
from engine.models.weights.gguf_checkpoint import GGUFCheckpoint
from recorders.fixtures.record_gguf import NUM_LOGITS, our_logits
from recorders.fixtures.record_gguf_converted import LOGITS, MODELS, file_of
from tests.engine.compute.gguf_files import KINDS, Type, finish, make, write
from tests.engine.compute.judge import PROMPT, reference_logits
from tests.engine.text.conftest import TEXT
from tests.facts import raises_naming
from tests.lazy import transformers


def close(logits, model):
    expected = reference_logits(model, PROMPT)[-NUM_LOGITS:]
    torch.testing.assert_close(logits, expected, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("type_", [Type.F32, Type.F16, Type.BF16, Type.Q8_0])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_model_that_was_written(tmp_path, kind, type_):
    for tied in (False, True) if type_ in (Type.F32, Type.Q8_0) else (False,):
        (tmp_path / "m.gguf").unlink(missing_ok=True)
        model = write(tmp_path / "m.gguf", kind, type_, tied=tied)
        close(our_logits(tmp_path / "m.gguf", int8=False), model)


YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
LLAMA3 = YARN | dict(rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0)


@pytest.mark.parametrize(("kind", "rope"), [("llama", LLAMA3), ("qwen2", YARN), ("qwen3", YARN)])
def test_scaled_rotary_frequencies_are_read(tmp_path, kind, rope):
    model = write(tmp_path / "m.gguf", kind, rope=rope)
    logits = our_logits(tmp_path / "m.gguf")
    close(logits, model)
    plain = make(kind)
    plain.load_state_dict(model.state_dict())
    assert (logits[-1] - reference_logits(plain, PROMPT)[-1]).abs().max() > 0.01


def test_linear_scaling_is_llama_cpps_default(tmp_path):
    model = write(tmp_path / "m.gguf", "llama", metadata={"llama.rope.scaling.factor": 4})
    scaled = make("llama", rope=dict(rope_type="linear", factor=4.0))
    scaled.load_state_dict(model.state_dict())
    close(our_logits(tmp_path / "m.gguf"), scaled)


def test_a_llama_with_a_sliding_window_is_a_mistral(tmp_path):
    write(tmp_path / "m.gguf", "llama", metadata={"llama.attention.sliding_window": 9})
    runner, _ = load(tmp_path / "m.gguf", dtype="float32")
    assert runner.describe()["architecture"] == "MistralForCausalLM"
    # The last token's window reaches back 8 tokens in each of the 2 layers, so no earlier one matters.
    earlier = [(token + 1) % 97 for token in PROMPT[:-17]] + PROMPT[-17:]
    within = [*PROMPT[:-17], (PROMPT[-17] + 1) % 97, *PROMPT[-16:]]
    logits, same, other = (
        our_logits(tmp_path / "m.gguf", tokens=one)[-1] for one in (PROMPT, earlier, within)
    )
    torch.testing.assert_close(same, logits)
    assert (other - logits).abs().max() > 1e-4


@pytest.mark.parametrize("pre", ["qwen2", "llama-bpe", "gpt-2"])
def test_tokens_are_those_of_transformers(tmp_path, pre):
    write(tmp_path / "m.gguf", "llama", pre=pre)
    judge = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    tokenizer = GGUFTokenizer(tmp_path / "m.gguf")
    for text in [*TEXT, "12345 don't", "<|user_start|>hi<|user_end|>", "a<think>b", "  \n x"]:
        expected = judge.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text) == [0, *expected]
        assert tokenizer.decode(expected) == text
    assert tokenizer.bos_id == 0
    assert tokenizer.eos_ids == {2, 4}
    messages = [{"role": "user", "content": "hi"}]
    expected = judge.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert tokenizer.chat_template.render(messages) == expected


def test_tokens_of_gemma_4_are_those_of_transformers():
    fields = GGUFCheckpoint(file_of("gemma4")).file.fields
    vocabulary = {token: id_ for id_, token in enumerate(fields["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    special = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    judge = transformers.GemmaTokenizer(vocabulary, merges, **special)
    judge.add_tokens("<unused3>")
    tokenizer = GGUFTokenizer(file_of("gemma4"))
    for text in [*TEXT, "  two spaces\n\n\tand ünknown 語 <unused3></s>"]:
        expected = judge.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text) == [1, *expected]
        assert tokenizer.decode(expected) == judge.decode(expected) == text


def test_what_is_not_supported_is_named(tmp_path):
    file = tmp_path / "m.gguf"
    write(file, "llama", model_type="bert")
    with raises_naming(TokenizerError, "bert", "llama", "gpt2", "qwen2"):
        load(file)
    file.unlink()
    write(file, "llama", pre="viking")
    with raises_naming(TokenizerError, "viking", "gpt-2", "llama-bpe", "tekken"):
        load(file)


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        ({"llama.rope.scaling.type": "longrope"}, ["llama.rope.scaling.type", "longrope"]),
        ({"llama.rope.scaling.type": "linear"}, ["linear", "factor"]),
        ({"llama.expert_count": 8}, ["llama.expert_count", "8"]),
        ({"llama.rope.dimension_count": 8}, ["llama.rope.dimension_count", "8", "16"]),
        ({"llama.block_count": 2**31}, ["llama.block_count", 2**31]),
        ({"llama.attention.head_count": "x"}, ["num_attention_heads"]),
    ],
)
def test_what_the_file_asks_for_and_we_do_not_do_is_named(tmp_path, metadata, names):
    write(tmp_path / "m.gguf", "llama", metadata=metadata)
    with raises_naming(CheckpointError, *names):
        GGUFCheckpoint(tmp_path / "m.gguf", torch.float32)


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


def test_a_part_that_is_missing_renamed_there_twice_or_not_the_first_is_named(parts):
    first, second, third = parts

    def rejected(given, *facts):
        with raises_naming(CheckpointError, *facts):
            GGUFCheckpoint(given)

    rejected(third, third, first.name)
    shutil.copy(second, third)
    rejected(first, third, "another part")
    second.unlink()
    rejected(first, second, "3")
    renamed = first.rename(first.with_name("model.gguf"))
    rejected(renamed, renamed, "NAME-00001-of-00003.gguf")


@pytest.fixture(scope="module")
def recorded():
    return {name: torch.from_numpy(logits) for name, logits in np.load(LOGITS).items()}


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers_and_of_llama_cpp(name, recorded):
    logits = our_logits(file_of(name), int8=False)
    assert logits.shape == (NUM_LOGITS, 401)
    torch.testing.assert_close(logits, recorded[name], atol=5e-5, rtol=1e-4)
    # llama.cpp rounds activations: to float16 beside float16 matrices, to 8 bits beside MXFP4.
    off = 0.1 if name == "gpt-oss" else 0.02
    torch.testing.assert_close(logits, recorded[f"{name}, llama.cpp"], atol=off, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_a_converted_file_loads_with_its_tokenizer(name):
    runner, tokenizer = load(file_of(name))
    assert runner.describe()["architecture"] == MODELS[name][0]
    assert tokenizer.decode(tokenizer.encode("Once upon a time")).endswith("Once upon a time")


def entries_of(name, **changed):
    """The entries of config.json with other metadata; None removes an entry."""
    fields = dict(GGUFCheckpoint(file_of(name)).file.fields) | {
        f"{name}.{key}": value for key, value in changed.items()
    }
    fields = {key: value for key, value in fields.items() if value is not None}
    return config_entries(fields, GGUFCheckpoint(file_of(name)).file.tensors, {})


def test_what_the_file_of_a_gemma_3_leaves_out():
    """llama.cpp knows the layers with a window and the largest model's query scale."""
    config = GGUFCheckpoint(file_of("gemma3")).config
    assert config.windows == (8,) * 5 + (None,)
    assert len(set(config.ropes[:5])) == 1
    assert config.ropes[0] != config.ropes[5]
    assert entries_of("gemma3")["query_pre_attn_scalar"] == 16
    largest = {"block_count": 62, "embedding_length": 5376, "attention.head_count": 32}
    assert entries_of("gemma3", **largest)["query_pre_attn_scalar"] == 168
    without = entries_of("gemma3", **{"attention.sliding_window": None})
    assert (without["sliding_window"], without["sliding_window_pattern"]) == (None, 1)
    listed = entries_of("gemma3", **{"attention.sliding_window_pattern": [False, True]})
    assert listed["layer_types"] == ["full_attention", "sliding_attention"]


def test_a_phi_3_without_factors_rotates_whole_heads():
    changed = {"rope.dimension_count": None, "rope.scaling.attn_factor": None}
    entries = entries_of("phi3", **changed)
    assert (entries["partial_rotary_factor"], entries["rope_scaling"]) == (1.0, None)


def test_what_the_files_of_a_mistral_small_3_and_of_a_gpt_oss_leave_out():
    entries = entries_of("mistral3", **{"attention.temperature_scale": None})
    assert entries["architectures"] == ["MistralForCausalLM"]
    assert entries_of("gpt-oss")["rope_scaling"]["truncate"] is False


def test_factors_beside_another_scaling_are_rejected():
    reader = GGUFCheckpoint(file_of("phi3")).file
    fields = reader.fields | {"phi3.rope.scaling.type": "yarn"}
    with raises_naming(CheckpointError, "phi3.rope.scaling.type", "yarn", "rope_factors_long"):
        config_entries(fields, reader.tensors, {"short_factor": [1.0], "long_factor": [2.0]})


def test_every_architecture_of_gguf_has_a_file_or_is_written_by_the_tests():
    kinds = {GGUFCheckpoint(file_of(name)).file.fields["general.architecture"] for name in MODELS}
    assert set(ARCHITECTURES) == kinds | {"llama", "qwen2", "qwen3"}
    assert set(gguf.MODEL_ARCH_NAMES.values()) >= set(ARCHITECTURES)
