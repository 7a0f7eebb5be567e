"""A decoder of the Llama kind, over a flat batch of tokens.

Per layer: norm, attention, add; norm, feed-forward, add. Tokens meet only in attention, and that is
passed in as a function, so that this file knows nothing of pages, requests or steps.

Projections that read the same input are one matrix (queries, keys and values; gate and up): a
decode step of a small model is bound by the number of operations, not by their arithmetic.

Sources: Llama 2, arXiv:2307.09288; for what other families add see `families.py`; the names of the
weights are those of transformers.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.compute.model.config import LlamaConfig
from engine.compute.model.linear import Linear
from engine.compute.model.rope import rotary_table, rotate
from engine.compute.weights.checkpoint import Checkpoint

# (layer, queries [tokens, heads, head_dim], keys and values [tokens, 2 * kv_heads, head_dim])
# -> [tokens, heads * head_dim]; see `PagedAttention`.
Attend = Callable[[int, Tensor, Tensor], Tensor]


class RMSNorm:
    """x / sqrt(mean(x^2) + eps) * weight, over the last dimension (arXiv:1910.07467).

    Written as x / hypot(|x|, sqrt(n eps)) * (sqrt(n) weight), which is the same and takes half the
    time of `F.rms_norm` on a CPU. Computed in float32 whatever the model's own precision.
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        size = weight.shape[-1]
        self.weight = weight.float() * math.sqrt(size)
        self._floor = torch.tensor(math.sqrt(size * eps))

    def __call__(self, x: Tensor) -> Tensor:
        """`x` [..., n], normalised."""
        wide = x.float()
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).hypot_(self._floor)
        return wide.div(length).mul_(self.weight).to(x.dtype)


class Layer:
    """One decoder layer; it adds to the residual stream in place."""

    def __init__(self, config: LlamaConfig, weights: Checkpoint, index: int) -> None:
        self._index = index
        self._heads = config.num_heads
        self._rotated = config.num_heads + config.num_kv_heads  # queries and keys
        self._shape = (-1, config.num_heads + 2 * config.num_kv_heads, config.head_dim)
        hidden, inner = config.hidden_size, config.intermediate_size
        queries = config.num_heads * config.head_dim
        keys = config.num_kv_heads * config.head_dim
        name = f"model.layers.{index}"
        attention, mlp = f"{name}.self_attn", f"{name}.mlp"
        self._attention_norm = RMSNorm(
            weights.take(f"{name}.input_layernorm.weight", hidden), config.norm_eps
        )
        qkv = torch.cat(
            (
                weights.take(f"{attention}.q_proj.weight", queries, hidden),
                weights.take(f"{attention}.k_proj.weight", keys, hidden),
                weights.take(f"{attention}.v_proj.weight", keys, hidden),
            )
        )
        bias: Tensor | None = None
        if config.family.qkv_bias:
            bias = torch.cat(
                (
                    weights.take(f"{attention}.q_proj.bias", queries),
                    weights.take(f"{attention}.k_proj.bias", keys),
                    weights.take(f"{attention}.v_proj.bias", keys),
                )
            )
        self._qkv = Linear(qkv, bias)
        self._qk_norm: RMSNorm | None = None
        if config.family.qk_norm:
            q_weight = weights.take(f"{attention}.q_norm.weight", config.head_dim)
            k_weight = weights.take(f"{attention}.k_norm.weight", config.head_dim)
            per_head = [q_weight] * config.num_heads + [k_weight] * config.num_kv_heads
            self._qk_norm = RMSNorm(torch.stack(per_head), config.norm_eps)
        self._output = Linear(weights.take(f"{attention}.o_proj.weight", hidden, queries))
        self._mlp_norm = RMSNorm(
            weights.take(f"{name}.post_attention_layernorm.weight", hidden), config.norm_eps
        )
        self._gate_up = Linear(
            torch.cat(
                (
                    weights.take(f"{mlp}.gate_proj.weight", inner, hidden),
                    weights.take(f"{mlp}.up_proj.weight", inner, hidden),
                )
            )
        )
        self._down = Linear(weights.take(f"{mlp}.down_proj.weight", hidden, inner))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> None:
        """Add attention and feed-forward to `x` [tokens, hidden]."""
        heads = self._qkv(self._attention_norm(x)).view(self._shape)
        queries_keys = heads[:, : self._rotated]
        normed = queries_keys if self._qk_norm is None else self._qk_norm(queries_keys)
        rotate(normed, cos, sin, out=queries_keys)
        mixed = attend(self._index, heads[:, : self._heads], heads[:, self._heads :])
        x.add_(self._output(mixed))

        gate, up = self._gate_up(self._mlp_norm(x)).chunk(2, dim=-1)
        x.add_(self._down(F.silu(gate).mul_(up)))


class Decoder:
    """A decoder with its weights.

    Raises CheckpointError if the weights are not what the configuration promises.
    """

    def __init__(self, config: LlamaConfig, weights: Checkpoint) -> None:
        self.config = config
        self.dtype = weights.dtype
        size = (config.vocab_size, config.hidden_size)
        self._embedding = weights.take("model.embed_tokens.weight", *size)
        self._layers = [Layer(config, weights, index) for index in range(config.num_layers)]
        self._norm = RMSNorm(weights.take("model.norm.weight", config.hidden_size), config.norm_eps)
        tied = config.tied_embeddings
        self._lm_head = Linear(weights.take_lm_head(self._embedding, tied=tied))
        weights.check_all_taken()
        self.num_parameters = weights.num_parameters
        self._rotary = torch.empty(0)

    def prepare(self, positions: int) -> None:
        """Make ready for texts of at most this many tokens. Must be called before `forward`."""
        self._rotary = rotary_table(self.config, positions).to(self.dtype)

    def forward(
        self, token_ids: Tensor, positions: Tensor, attend: Attend, logit_rows: Tensor
    ) -> Tensor:
        """Logits of the next token after each token of `logit_rows`: float32 [logits, vocab].

        token_ids, positions  [tokens]
        attend                attention over each token's own context
        logit_rows            [logits] indexes into the flat batch
        """
        x = F.embedding(token_ids, self._embedding)
        cos, sin = self._rotary.index_select(0, positions)[:, :, None].unbind(dim=1)
        for layer in self._layers:
            layer.forward(x, cos, sin, attend)
        return self._lm_head(self._norm(x.index_select(0, logit_rows))).float()
