"""Small random models in GGUF files, written as llama.cpp's converter does."""

import json

import gguf
import torch
import transformers

from tests.engine.text.conftest import SPECIAL, TEMPLATE, byte_level_bpe

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
