"""Models of real sizes with random weights: for the engine, for transformers and as GGUF files.

The weights exist once: the engine's matrices are filled in place, transformers' parameters are views of
them, and a GGUF file is written tensor by tensor. The speed of a product does not depend on the values.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.compute.model import Model
from engine.models.config_file import parse_config
from engine.models.loader import build
from engine.models.weights.checkpoint import Checkpoint
from engine.models.weights.matrix import Matrix

transformers.logging.set_verbosity_error()

_COMMON = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
}
# Published shapes, as in config.json, and two to compare logits and to try a benchmark with.
SHAPES: dict[str, dict[str, Any]] = {
    "0.5B": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "1.5B": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
    "small": {
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 2048,
    },
    "tiny": {
        "hidden_size": 256,  # the least that llama.cpp's K-quants take
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 512,
    },
}
SHAPES = {name: _COMMON | entries for name, entries in SHAPES.items()}
NAMES = {"0.5B": "Qwen2.5-0.5B", "1.5B": "Qwen2.5-1.5B"}
NAMES |= {name: f"a {name} Qwen2" for name in ("small", "tiny")}


class NumberTokenizer(ByteTokenizer):
    """A tokenizer for a vocabulary without texts: beyond the bytes, token 300 is the word "300"."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self._table += [f" {number}".encode() for number in range(self.vocab_size, vocab_size)]
        self.vocab_size = vocab_size


class RandomWeights(Checkpoint):
    """A checkpoint without a file: tensors are drawn as the model asks for them.

    tensors  each tensor under its name; a stacked matrix is not stored twice
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.directory = Path("random")
        self.dtype, self.device = dtype, torch.device("cpu")
        self.num_parameters = 0
        self.fingerprint = hashlib.sha256()
        self.tensors: dict[str, Tensor] = {}
        self._tensors = {}
        self._unused = set()

    def load(self, name: str, *shape: int) -> Tensor:
        """Draw a tensor. Norms are near 1."""
        # Values of half precision, whatever the type: checkpoints that people load have such ones.
        drawn = torch.empty(shape, dtype=torch.bfloat16).uniform_(-0.035, 0.035)
        tensor = drawn.to(self.dtype)
        if "norm" in name:
            tensor += 1
        self.tensors[name] = tensor
        self.num_parameters += tensor.numel()
        return tensor

    def stored_rows(self, name: str) -> Tensor | None:
        """Return the matrix as it would be in a file."""
        return self.tensors[name]

    def load_matrix(self, rows: Mapping[str, int], columns: int) -> Matrix:
        """Draw a stacked matrix. Tensors are views of its rows."""
        stacked = self.load("", sum(rows.values()), columns)
        del self.tensors[""]
        parts = torch.split(stacked, list(rows.values()))
        self.tensors.update(zip(rows, parts, strict=True))
        return stacked


@dataclass
class RandomModel:
    """A model in the engine, and what the others need to have the same weights."""

    entries: dict[str, Any]
    model: Model
    weights: RandomWeights

    @classmethod
    def make(cls, shape: str, dtype: torch.dtype) -> "RandomModel":
        """Draw the weights of one of SHAPES."""
        torch.manual_seed(0)
        weights = RandomWeights(dtype)
        model = build(parse_config(SHAPES[shape]), weights)
        return cls(SHAPES[shape], model, weights)

    def transformers(self) -> PreTrainedModel:
        """Return transformers' model over the same memory."""
        config = AutoConfig.for_model(**self.entries)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                config, dtype=self.weights.dtype, attn_implementation="sdpa"
            )
        model.load_state_dict(self.weights.tensors, strict=False, assign=True)
        model.tie_weights()
        # Its frequencies are computed, not loaded.
        model.model.rotary_emb = type(model.model.rotary_emb)(config)
        assert not any(tensor.is_meta for tensor in [*model.parameters(), *model.buffers()])
        return model.eval()


def write_gguf(file: Path, entries: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a Qwen model with matrices in F16 and without a tokenizer.

    entries  of config.json
    tensors  under transformers' names
    """
    kind = entries["model_type"]
    writer = gguf.GGUFWriter(file, kind)
    config = parse_config(entries)
    writer.add_context_length(config.max_context)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_layers)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(entries["rope_theta"])
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(config.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[kind.upper()], config.num_layers)
    for name, tensor in tensors.items():
        kept = torch.float32 if tensor.dim() == 1 else torch.float16
        writer.add_tensor_info(
            names.get_name(name, try_suffixes=(".weight", ".bias")),
            tensor.shape,
            torch.empty(0, dtype=kept).numpy().dtype,
            tensor.numel() * kept.itemsize,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors.values():
        kept = torch.float32 if tensor.dim() == 1 else torch.float16
        writer.write_tensor_data(tensor.to(kept).numpy())
    writer.close()
