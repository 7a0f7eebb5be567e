"""GGUF files, with transformers' `gguf_file=` as the judge."""

import gguf
import pytest
import torch
import transformers

from engine.compute.loader import load
from engine.compute.weights.checkpoint import CheckpointError
from engine.compute.weights.gguf_checkpoint import GGUFCheckpoint
from engine.runner import Row
from engine.scheduling.request import Request
from engine.scheduling.sampling_params import SamplingParams
from engine.text.gguf_tokenizer import GGUFTokenizer
from engine.text.tokenizer import TokenizerError
from tests.engine.compute.gguf_files import KINDS, Type, write
from tests.engine.compute.judge import PROMPT, reference_logits
from tests.engine.text.conftest import TEXT
from tests.facts import raises_naming


def last_logits(runner):
    runner.reserve(16, 16)
    seen = []
    forward = runner._model.forward
    runner._model.forward = lambda *a: seen.append(forward(*a)) or seen[-1]
    request = Request(
        id=1, tokens=PROMPT, texts=[], params=SamplingParams(), block_table=list(range(16)), root=1
    )
    runner.run([Row(request, 0, len(PROMPT), [], [0])], [])
    return seen[0]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("type_", [Type.F32, Type.F16, Type.BF16, Type.Q8_0])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_model_that_was_written(tmp_path, kind, type_, tied):
    model = write(tmp_path / "m.gguf", kind, type_, tied=tied)
    runner, _ = load(tmp_path / "m.gguf")
    assert runner.describe()["architecture"] == f"{KINDS[kind]}ForCausalLM"
    assert runner.describe()["name"] == "m"
    expected = reference_logits(model, PROMPT)[-1:]
    torch.testing.assert_close(last_logits(runner), expected, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("type_", [Type.F16, Type.Q8_0])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers_reading_the_same_file(tmp_path, kind, type_):
    pytest.importorskip("accelerate", reason="transformers needs it to read weights from GGUF")
    model = write(tmp_path / "m.gguf", kind, type_)
    # It does not read Qwen3's head_dim from the file, so it is given the configuration.
    judge = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="m.gguf", config=model.config, dtype=torch.float32
    )
    runner, _ = load(tmp_path / "m.gguf")
    expected = reference_logits(judge, PROMPT)[-1:]
    torch.testing.assert_close(last_logits(runner), expected, atol=5e-5, rtol=1e-4)


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
    write(file, "llama", model_type="llama")
    with raises_naming(TokenizerError, "llama", "gpt-2", "llama-bpe", "qwen2"):
        load(file)
    file.unlink()
    write(file, "llama", pre="tekken")
    with raises_naming(TokenizerError, "tekken"):
        load(file)
    file.unlink()
    write(file, "llama", Type.Q4_0)
    with raises_naming(CheckpointError, "embed_tokens.weight", "Q4_0", "Q8_0"):
        load(file)
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with raises_naming(CheckpointError, "mamba", "llama", "qwen2", "qwen3"):
        GGUFCheckpoint(tmp_path / "other.gguf", torch.float32)


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("llama.rope.scaling.type", "yarn", "llama.rope.scaling.type"),
        ("llama.attention.sliding_window", 64, "sliding_window"),
        ("llama.expert_count", 8, "expert_count"),
        ("llama.rope.scaling.type", "linear", "factor"),
    ],
)
def test_what_the_file_asks_for_and_we_do_not_do_is_named(tmp_path, key, value, field):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    add = writer.add_string if isinstance(value, str) else writer.add_uint32
    add(key, value)
    for entry in ("embedding_length", "feed_forward_length", "block_count", "context_length"):
        writer.add_uint32(f"llama.{entry}", 8)
    writer.add_uint32("llama.attention.head_count", 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with raises_naming(CheckpointError, field):
        GGUFCheckpoint(tmp_path / "m.gguf", torch.float32)


@pytest.mark.parametrize("keep", [0, 3, 100, 5000])
def test_a_damaged_file_is_named(tmp_path, keep):
    file = tmp_path / "m.gguf"
    write(file, "llama")
    file.write_bytes(file.read_bytes()[:keep])
    with raises_naming(CheckpointError, file):
        load(file)
