"""GGUF files, with transformers' `gguf_file=` as the judge."""

import pytest
import torch

from engine.compute.loader import load
from engine.compute.weights.checkpoint import CheckpointError
from engine.compute.weights.gguf_checkpoint import GGUFCheckpoint
from engine.text.gguf_tokenizer import GGUFTokenizer
from engine.text.tokenizer import TokenizerError
from tests.engine.compute.gguf_files import KINDS, Type, make, write
from tests.engine.compute.gguf_fixtures import NUM_LOGITS, our_logits
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


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers_reading_the_same_file(tmp_path, kind):
    pytest.importorskip("accelerate", reason="transformers needs it to read weights from GGUF")
    model = write(tmp_path / "m.gguf", kind, Type.F16)
    # It does not read Qwen3's head_dim from the file, so it is given the configuration.
    judge = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="m.gguf", config=model.config, dtype=torch.float32
    )
    runner, _ = load(tmp_path / "m.gguf", dtype="float32")
    assert runner.describe()["architecture"] == f"{KINDS[kind]}ForCausalLM"
    assert runner.describe()["name"] == "m"
    close(our_logits(tmp_path / "m.gguf"), judge)


LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)


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


@pytest.mark.parametrize("keep", [0, 3, 100, 5000])
def test_a_damaged_file_is_named(tmp_path, keep):
    file = tmp_path / "m.gguf"
    write(file, "llama")
    file.write_bytes(file.read_bytes()[:keep])
    with raises_naming(CheckpointError, file):
        load(file)
