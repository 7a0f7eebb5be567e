"""A GGUF file as a checkpoint: llama.cpp's single file with configuration, weights and tokenizer.

Configuration and weights are translated into the form of config.json and safetensors, and then checked
and used like any others. `engine/text/gguf_tokenizer.py` reads the tokenizer.

Source: the `gguf` package's constants and llama.cpp's `convert_hf_to_gguf.py`, whose
conversion is reversed here.
"""

import re
from pathlib import Path
from typing import Any

import gguf
import torch
from torch import Tensor

from engine.compute.model.config import parse_config
from engine.compute.weights.checkpoint import Checkpoint, CheckpointError

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_TYPES = {gguf.GGMLQuantizationType[name] for name in ("F32", "F16", "BF16", "Q8_0")}
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_TO_HF = {theirs: ours for ours, theirs in (_NAMES | _LAYER_NAMES).items()}


class GGUFCheckpoint(Checkpoint):
    """The weights of a GGUF file under transformers' names, and its configuration as `config`.

    Supports F32, F16, BF16 and Q8_0; Q8_0 is dequantized as the weights are loaded. Raises
    CheckpointError for a damaged file, another type, or an architecture that is not in ARCHITECTURES.
    """

    def __init__(self, file: Path, dtype: torch.dtype) -> None:
        try:
            reader = gguf.GGUFReader(file)
        except (ValueError, IndexError, OSError) as error:
            raise CheckpointError(
                f"{file} is damaged or not a GGUF file ({error}): download it again"
            ) from error
        self.directory = file
        self.dtype = dtype
        self.num_parameters = 0
        self._fields = {name: field.contents() for name, field in reader.fields.items()}
        self._tensors = {_hf_name(tensor.name): tensor for tensor in reader.tensors}
        self._location = {name: (file, self) for name in self._tensors}
        self._unused = set(self._location)
        try:
            self.config = parse_config(self._entries())
        except CheckpointError as error:
            raise CheckpointError(f"{file}: {error}") from error

    def get_tensor(self, name: str) -> Tensor:
        """Return the tensor `name` in transformers' layout, dequantized to float32 if necessary."""
        tensor = self._tensors[name]
        if tensor.tensor_type not in _TYPES:
            raise CheckpointError(
                f"{name} in {self.directory} is {tensor.tensor_type.name}, which is not supported: "
                "use a file in F32, F16, BF16 or Q8_0"
            )
        values = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
        if self._fields["general.architecture"] == "llama":
            # Llama's rotation pairs neighbours in GGUF, and i with i + head_dim / 2 in transformers.
            heads = {"q_proj": self.config.num_heads, "k_proj": self.config.num_kv_heads}
            for projection, count in heads.items():
                if f"{projection}." in name:
                    pairs = values.view(count, -1, 2, *values.shape[1:])
                    values = pairs.transpose(1, 2).reshape(values.shape)
        return values

    def _entries(self) -> dict[str, Any]:
        """Return the entries that config.json would have."""
        kind = self._fields.get("general.architecture")
        if kind not in ARCHITECTURES:
            raise CheckpointError(
                f"GGUF architecture {kind or '(none is named)'} is not supported; supported are "
                + ", ".join(sorted(ARCHITECTURES))
            )
        entries = {
            "hidden_size": "embedding_length",
            "intermediate_size": "feed_forward_length",
            "num_hidden_layers": "block_count",
            "num_attention_heads": "attention.head_count",
            "num_key_value_heads": "attention.head_count_kv",
            "head_dim": "attention.key_length",
            "max_position_embeddings": "context_length",
            "rms_norm_eps": "attention.layer_norm_rms_epsilon",
            "rope_theta": "rope.freq_base",
        }
        found = {
            ours: self._fields[f"{kind}.{theirs}"]
            for ours, theirs in entries.items()
            if f"{kind}.{theirs}" in self._fields
        }
        scaling = self._fields.get(f"{kind}.rope.scaling.type", "none")
        window = f"{kind}.attention.sliding_window"
        unsupported = {
            f"{kind}.rope.scaling.type": scaling not in ("none", "linear"),
            "rope_freqs.weight": "rope_freqs.weight" in self._tensors,
            window: window in self._fields,
            f"{kind}.expert_count": bool(self._fields.get(f"{kind}.expert_count")),
        }
        for entry, present in unsupported.items():
            if present:
                raise CheckpointError(
                    f"{entry} is not supported in a GGUF file: use the Hugging Face directory of "
                    "this model"
                )
        factor = self._fields.get(f"{kind}.rope.scaling.factor")
        return found | {
            "architectures": [ARCHITECTURES[kind]],
            "vocab_size": len(self._fields.get("tokenizer.ggml.tokens", [])),
            "tie_word_embeddings": "lm_head.weight" not in self._tensors,
            "rope_scaling": {"type": scaling, "factor": factor} if scaling == "linear" else None,
        }


def _hf_name(name: str) -> str:
    """Return transformers' name of a GGUF tensor. Unknown names are kept and reported as unused."""
    stem, _, suffix = name.rpartition(".")
    if layer := re.fullmatch(r"blk\.(\d+)\.(\w+)", stem):
        number, part = layer.groups()
        return f"model.layers.{number}.{_TO_HF.get(part, part)}.{suffix}"
    return f"{_TO_HF.get(stem, stem)}.{suffix}"
