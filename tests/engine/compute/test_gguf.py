"""GGUF files, with transformers' `gguf_file=` as the judge."""

import json

import gguf
import pytest
import torch
import transformers

from engine.compute.checkpoint import CheckpointError
from engine.compute.gguf_checkpoint import GGUFCheckpoint
from engine.compute.loader import load
from engine.config import EngineConfig
from engine.runner import Row
from engine.scheduling.request import Request
from engine.scheduling.sampling_params import SamplingParams
from engine.text.gguf_tokenizer import GGUFTokenizer
from engine.text.tokenizer import TokenizerError
from tests.engine.compute.test_parity import PROMPT, reference_logits
from tests.engine.text.conftest import SPECIAL, TEMPLATE, TEXT, byte_level_bpe

Type = gguf.GGMLQuantizationType
SIZES = dict(
    vocab_size=401,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=128,
    rms_norm_eps=1e-5,
)
KINDS = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}


def write(file, kind, type_=Type.F32, pre="qwen2", tied=False, model_type="gpt2"):
    """A random model of this kind with a real tokenizer, written as llama.cpp's converter does.

    Returns the model, its weights rounded as they are in the file.
    """
    sizes = SIZES if kind != "qwen2" else {k: v for k, v in SIZES.items() if k != "head_dim"}
    config = getattr(transformers, f"{KINDS[kind]}Config")(
        **sizes,
        rope_parameters={"rope_theta": 5e3, "rope_type": "default"},
        tie_word_embeddings=tied,
    )
    torch.manual_seed(7)
    model = getattr(transformers, f"{KINDS[kind]}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else 0.1))

    writer = gguf.GGUFWriter(file, kind)
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5e3)
    writer.add_vocab_size(401)
    add_tokenizer(writer, pre, model_type)
    arch = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[kind]
    names = gguf.get_tensor_name_map(arch, 2)
    for name, tensor in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        data = tensor.numpy()
        for projection, heads in (("q_proj.weight", 4), ("k_proj.weight", 2)):
            if kind == "llama" and name.endswith(projection):
                data = data.reshape(heads, 2, -1, 64).swapaxes(1, 2).reshape(data.shape)
        kept = Type.F32 if data.ndim == 1 else type_
        quantized = gguf.quants.quantize(data, kept)
        tensor.copy_(
            torch.from_numpy(
                gguf.quants.dequantize(gguf.quants.quantize(tensor.numpy(), kept), kept)
            )
        )
        shape = None if kept in (Type.F32, Type.F16) else quantized.shape
        writer.add_tensor(
            names.get_name(name, try_suffixes=(".weight", ".bias")),
            quantized,
            shape,
            raw_dtype=kept,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def add_tokenizer(writer, pre, model_type):
    tokenizer = byte_level_bpe()
    by_id = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    by_id[-1] = "<think>"
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    types = [3 if token in SPECIAL else 1 for token in by_id]
    types[-1] = 4
    writer.add_tokenizer_model(model_type)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(by_id)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(4)
    writer.add_eot_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)


def last_logits(runner):
    runner.reserve(16, 16)
    seen = []
    forward = runner._model.forward
    runner._model.forward = lambda *a: seen.append(forward(*a)) or seen[-1]
    request = Request(
        id=1, tokens=PROMPT, texts=[], params=SamplingParams(), table=list(range(16)), root=1
    )
    runner.run([Row(request, 0, len(PROMPT), [], [0])], [])
    return seen[0]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("type_", [Type.F32, Type.F16, Type.BF16, Type.Q8_0])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_model_that_was_written(tmp_path, kind, type_, tied):
    model = write(tmp_path / "m.gguf", kind, type_, tied=tied)
    runner, _ = load(tmp_path / "m.gguf", EngineConfig())
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
    runner, _ = load(tmp_path / "m.gguf", EngineConfig())
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
    with pytest.raises(
        TokenizerError, match=r"tokenizer 'llama' that splits .*gpt-2, llama-bpe, qwen2"
    ):
        load(file, EngineConfig())
    file.unlink()
    write(file, "llama", pre="tekken")
    with pytest.raises(TokenizerError, match="splits like 'tekken'"):
        load(file, EngineConfig())
    file.unlink()
    write(file, "llama", Type.Q4_0)
    with pytest.raises(CheckpointError, match=r"embed_tokens.weight in .* is Q4_0, .*or Q8_0"):
        load(file, EngineConfig())
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=r"architecture mamba .* llama, qwen2, qwen3"):
        GGUFCheckpoint(tmp_path / "other.gguf", torch.float32)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("llama.rope.scaling.type", "yarn", r"llama\.rope\.scaling\.type is not supported"),
        ("llama.attention.sliding_window", 64, "sliding_window is not supported"),
        ("llama.expert_count", 8, "expert_count is not supported"),
        ("llama.rope.scaling.type", "linear", "missing required field `factor`"),
    ],
)
def test_what_the_file_asks_for_and_we_do_not_do_is_named(tmp_path, key, value, message):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    add = writer.add_string if isinstance(value, str) else writer.add_uint32
    add(key, value)
    for entry in ("embedding_length", "feed_forward_length", "block_count", "context_length"):
        writer.add_uint32(f"llama.{entry}", 8)
    writer.add_uint32("llama.attention.head_count", 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=message):
        GGUFCheckpoint(tmp_path / "m.gguf", torch.float32)


@pytest.mark.parametrize("keep", [0, 3, 100, 5000])
def test_a_damaged_file_is_named(tmp_path, keep):
    file = tmp_path / "m.gguf"
    write(file, "llama")
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"m\.gguf is damaged"):
        load(file, EngineConfig())
