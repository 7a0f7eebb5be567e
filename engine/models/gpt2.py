"""GPT-2 over a flat batch of tokens: a decoder that predates Llama.

It differs from `decoder.py` in a few ways. A position is a learned vector that is added to the
token's embedding, whereas Llama rotates queries and keys; LayerNorm subtracts the mean and adds a
bias; every projection has a bias; the feed-forward network has no gate; each head has its own keys
and values.

Source: Radford et al., Language Models are Unsupervised Multitask Learners, 2019; the names of the
weights are those of transformers, whose `Conv1D` stores matrices as [in, out].
"""

from collections.abc import Callable
from typing import Any

import msgspec
from torch import Tensor
from torch.nn import functional as F

from engine.core.compute.device import activation_dtype
from engine.core.compute.model import Attend, ModelConfig
from engine.models.config import check_entries
from engine.models.layers import Linear
from engine.models.memory import InMemory
from engine.models.weights.checkpoint import Checkpoint, CheckpointError

ARCHITECTURE = "GPT2LMHeadModel"


class _GPT2File(msgspec.Struct):
    """The entries of GPT-2's config.json that are read."""

    vocab_size: int
    n_positions: int
    n_embd: int
    n_layer: int
    n_head: int
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    add_cross_attention: bool = False
    tie_word_embeddings: bool = True


def read_gpt2(architecture: str, entries: dict[str, Any]) -> ModelConfig:
    """Convert the entries of a config.json; see `parse_config`."""
    file = msgspec.convert(entries, _GPT2File)
    check_entries(
        ("activation_function", file.activation_function, "gelu_new"),
        ("scale_attn_weights", file.scale_attn_weights, True),
        ("scale_attn_by_inverse_layer_idx", file.scale_attn_by_inverse_layer_idx, False),
        ("add_cross_attention", file.add_cross_attention, False),
    )
    if file.n_head > 0 and file.n_embd % file.n_head:
        raise CheckpointError(
            f"n_embd ({file.n_embd}) must be a multiple of n_head ({file.n_head})"
        )
    return ModelConfig(
        architecture=architecture,
        vocab_size=file.vocab_size,
        hidden_size=file.n_embd,
        intermediate_size=file.n_inner or 4 * file.n_embd,
        num_layers=file.n_layer,
        num_heads=file.n_head,
        num_kv_heads=file.n_head,
        head_dim=file.n_embd // max(file.n_head, 1),
        max_context=file.n_positions,
        norm_eps=file.layer_norm_epsilon,
        tied_embeddings=file.tie_word_embeddings,
        windows=(None,) * file.n_layer,
    )


def _projection(weights: Checkpoint, name: str, rows: int, columns: int) -> Linear:
    """Return x @ weight + bias, from [.., rows] to [.., columns]."""
    weight = weights.load_transposed(f"{name}.weight", rows, columns)
    return Linear(weight, weights.load(f"{name}.bias", columns))


def _layer_norm(weights: Checkpoint, name: str, config: ModelConfig) -> Callable[[Tensor], Tensor]:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias, over the last dimension."""
    size = config.hidden_size
    dtype = activation_dtype(weights.dtype, weights.device)
    weight, bias = (weights.load(f"{name}.{part}", size).to(dtype) for part in ("weight", "bias"))
    return lambda x: F.layer_norm(x, (size,), weight, bias, config.norm_eps)


class GPT2Layer:
    """One layer, which updates the residual stream in place."""

    def __init__(self, config: ModelConfig, weights: Checkpoint, name: str, index: int) -> None:
        self._index = index
        self._heads = config.num_heads
        self._shape = (-1, 3 * config.num_heads, config.head_dim)
        hidden, inner = config.hidden_size, config.intermediate_size
        self._attention_norm = _layer_norm(weights, f"{name}.ln_1", config)
        self._qkv = _projection(weights, f"{name}.attn.c_attn", hidden, 3 * hidden)
        self._output = _projection(weights, f"{name}.attn.c_proj", hidden, hidden)
        self._mlp_norm = _layer_norm(weights, f"{name}.ln_2", config)
        self._up = _projection(weights, f"{name}.mlp.c_fc", hidden, inner)
        self._down = _projection(weights, f"{name}.mlp.c_proj", inner, hidden)
        # Old checkpoints also store the causal mask.
        weights.ignore(f"{name}.attn.bias", f"{name}.attn.masked_bias")

    def forward(self, x: Tensor, attend: Attend) -> None:
        """Add attention and feed-forward to `x` [tokens, hidden]."""
        heads = self._qkv(self._attention_norm(x)).view(self._shape)
        attended = attend(self._index, heads[:, : self._heads], heads[:, self._heads :])
        x.add_(self._output(attended))
        x.add_(self._down(F.gelu(self._up(self._mlp_norm(x)), approximate="tanh")))


class GPT2(InMemory):
    """GPT-2 with its weights; it has the same interface as `Decoder`."""

    def __init__(self, config: ModelConfig, weights: Checkpoint) -> None:
        self.config = config
        self.dtype, self.device = weights.dtype, weights.device
        # The first checkpoints were saved without the prefix.
        prefix = "" if "wte.weight" in weights else "transformer."
        size = (config.vocab_size, config.hidden_size)
        self._embedding = weights.load(f"{prefix}wte.weight", *size)
        self._positions = weights.load(
            f"{prefix}wpe.weight", config.max_context, config.hidden_size
        )
        self._layers = [
            GPT2Layer(config, weights, f"{prefix}h.{index}", index)
            for index in range(config.num_layers)
        ]
        self._norm = _layer_norm(weights, f"{prefix}ln_f", config)
        lm_head = weights.load_lm_head(self._embedding, tied=config.tied_embeddings)
        self._lm_head = Linear(lm_head, may_replace=lm_head is not self._embedding)
        weights.check_all_loaded()
        self.num_parameters = weights.num_parameters
        self.weight_bytes = weights.weight_bytes()
        self.fingerprint = weights.fingerprint.hexdigest()
        self.expert_loads: list[list[int]] = []  # it has no experts

    def prepare(self, positions: int) -> None:
        """Do nothing: position embeddings are weights."""

    def forward(
        self, token_ids: Tensor, positions: Tensor, attend: Attend, logits_indices: Tensor
    ) -> Tensor:
        """See `Decoder.forward`."""
        x = F.embedding(token_ids, self._embedding) + F.embedding(positions, self._positions)
        x = x.to(activation_dtype(self.dtype, self.device))
        for layer in self._layers:
            layer.forward(x, attend)
        return self._lm_head(self._norm(x.index_select(0, logits_indices))).float()
