"""Small random models in GGUF files, written as llama.cpp's converter does."""

import json

import gguf
import torch

from tests.engine.compute.models import random_model
from tests.engine.text.conftest import SPECIAL, TEMPLATE, byte_level_bpe

Type = gguf.GGMLQuantizationType
SIZES = dict(vocab_size=401, hidden_size=64, intermediate_size=96, num_hidden_layers=2, head_dim=16)
SIZES |= dict(num_attention_heads=4, num_key_value_heads=2)
SIZES |= dict(max_position_embeddings=128, rms_norm_eps=1e-5)
KINDS = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}


ROPE = {"rope_theta": 5e3, "rope_type": "default"}


def make(kind, tied=False, rope=None, **sizes):
    """A random model of this kind; `rope` and `sizes` are entries of its configuration."""
    sizes = SIZES | sizes
    if kind == "qwen2":
        del sizes["head_dim"]
    entries = sizes | dict(rope_parameters=ROPE | (rope or {}), tie_word_embeddings=tied)
    return random_model(f"{KINDS[kind]}ForCausalLM", entries, matrices=0.1)


def write(
    file,
    kind,
    type_=Type.F32,
    pre="qwen2",
    tied=False,
    model_type="gpt2",
    rope=None,
    metadata=None,
    **sizes,
):
    """A random model of this kind with a real tokenizer, written as llama.cpp's converter does.

    Returns the model, its weights rounded as they are in the file.
    """
    model = make(kind, tied, rope, **sizes)
    sizes = SIZES | sizes
    writer = gguf.GGUFWriter(file, kind)
    writer.add_context_length(sizes["max_position_embeddings"])
    writer.add_embedding_length(sizes["hidden_size"])
    writer.add_feed_forward_length(sizes["intermediate_size"])
    writer.add_block_count(sizes["num_hidden_layers"])
    writer.add_head_count(sizes["num_attention_heads"])
    writer.add_head_count_kv(sizes["num_key_value_heads"])
    writer.add_key_length(sizes["head_dim"])
    writer.add_value_length(sizes["head_dim"])
    writer.add_layer_norm_rms_eps(sizes["rms_norm_eps"])
    writer.add_vocab_size(sizes["vocab_size"])
    add_rope(writer, model)
    for key, value in (metadata or {}).items():
        add = writer.add_string if isinstance(value, str) else writer.add_uint32
        add(key, value)
    add_tokenizer(writer, pre, model_type)
    for name, tensor in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        kept = Type.F32 if tensor.ndim == 1 else type_
        quantized = gguf.quants.quantize(reorder(model, name, tensor).numpy(), kept)
        rounded = gguf.quants.dequantize(gguf.quants.quantize(tensor.numpy(), kept), kept)
        tensor.copy_(torch.from_numpy(rounded))
        shape = None if kept in (Type.F32, Type.F16) else quantized.shape
        writer.add_tensor(gguf_name(model, name), quantized, shape, raw_dtype=kept)
    finish(writer)
    return model


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(model, name):
    kind = model.config.model_type
    arch = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[kind]
    names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
    return names.get_name(name, try_suffixes=(".weight", ".bias"))


def reorder(model, name, tensor, back=False):
    """Llama's rows of queries and keys, in pairs of neighbours; `back` is the way back."""
    if model.config.model_type != "llama" or not name.endswith(("q_proj.weight", "k_proj.weight")):
        return tensor
    inner = (-1, 2) if back else (2, -1)
    heads = tensor.shape[0] // model.config.head_dim
    return tensor.reshape(heads, *inner, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)


def add_rope(writer, model):
    """The rotary frequencies' settings. Llama 3's become a tensor of factors."""
    rope = model.config.rope_parameters
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "llama3":
        scaled = model.model.rotary_emb.inv_freq
        plain = rope["rope_theta"] ** -(torch.arange(len(scaled)) / len(scaled))
        writer.add_tensor("rope_freqs.weight", (plain / scaled).float().numpy())


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
