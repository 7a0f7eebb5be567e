"""A Llama-style decoder over a flat batch of tokens.

Per layer: norm, attention, add; norm, feed-forward, add. Tokens interact only in attention. It is
passed in as a function, so this file does not depend on blocks, requests or steps.

Projections of the same input are fused into one matrix (queries, keys and values; gate and up), as in
vLLM, because a small model's decode step is limited by the number of operations, not by arithmetic.

Sources: Llama 2, arXiv:2307.09288. `families.py` lists how other families differ. The names of the
weights are those of transformers.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.compute.model.config import LlamaConfig
from engine.compute.model.linear import Linear
from engine.compute.model.rope import rotary_table
from engine.compute.weights.checkpoint import Checkpoint

# (layer, queries [tokens, heads, head_dim], keys and values [tokens, 2 * kv_heads, head_dim])
# -> [tokens, heads * head_dim]; see `PagedAttention`.
Attend = Callable[[int, Tensor, Tensor], Tensor]


class RMSNorm:
    """x / sqrt(mean(x^2) + eps) * weight, over the last dimension (arXiv:1910.07467).

    It is computed as x / hypot(|x|, sqrt(n eps)) * (sqrt(n) weight), which is equal and takes half as
    long as `F.rms_norm` on a CPU. The computation is in float32, whatever the model's precision.
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        size = weight.shape[-1]
        self.weight = weight.float() * math.sqrt(size)
        self._floor = torch.tensor(math.sqrt(size * eps))

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise `x` [..., n]."""
        wide = x.float()
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).hypot_(self._floor)
        return wide.div(length).mul_(self.weight).to(x.dtype)


class Layer:
    """One decoder layer, which updates the residual stream in place."""

    def __init__(self, config: LlamaConfig, weights: Checkpoint, index: int) -> None:
        self._index = index
        self._heads = config.num_heads
        self._num_rotated = config.num_heads + config.num_kv_heads  # queries and keys
        self._shape = (-1, config.num_heads + 2 * config.num_kv_heads, config.head_dim)
        hidden, inner = config.hidden_size, config.intermediate_size
        head_dim, eps = config.head_dim, config.norm_eps
        queries, keys = config.num_heads * head_dim, config.num_kv_heads * head_dim
        qkv = {"q": queries, "k": keys, "v": keys}

        def load(part: str, *shape: int) -> Tensor:
            return weights.load(f"model.layers.{index}.{part}", *shape)

        self._attention_norm = RMSNorm(load("input_layernorm.weight", hidden), eps)
        weight = [load(f"self_attn.{p}_proj.weight", size, hidden) for p, size in qkv.items()]
        bias: Tensor | None = None
        if config.family.qkv_bias:
            bias = torch.cat([load(f"self_attn.{p}_proj.bias", size) for p, size in qkv.items()])
        self._qkv = Linear(torch.cat(weight), bias)
        self._qk_norm: RMSNorm | None = None
        if config.family.qk_norm:
            per_head = [load("self_attn.q_norm.weight", head_dim)] * config.num_heads
            per_head += [load("self_attn.k_norm.weight", head_dim)] * config.num_kv_heads
            self._qk_norm = RMSNorm(torch.stack(per_head), eps)
        self._output = Linear(load("self_attn.o_proj.weight", hidden, queries))
        self._mlp_norm = RMSNorm(load("post_attention_layernorm.weight", hidden), eps)
        gate_up = [load(f"mlp.{part}_proj.weight", inner, hidden) for part in ("gate", "up")]
        self._gate_up = Linear(torch.cat(gate_up))
        self._down = Linear(load("mlp.down_proj.weight", hidden, inner))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> None:
        """Add attention and feed-forward to `x` [tokens, hidden]."""
        heads = self._qkv(self._attention_norm(x)).view(self._shape)
        queries_keys = heads[:, : self._num_rotated]
        normed = queries_keys if self._qk_norm is None else self._qk_norm(queries_keys)
        # Rotary embedding (`rope.py`): the pair (a, b) becomes (a cos - b sin, b cos + a sin).
        swapped = normed.roll(normed.shape[-1] // 2, dims=-1)
        torch.addcmul(normed.mul_(cos), swapped, sin, out=queries_keys)
        attended = attend(self._index, heads[:, : self._heads], heads[:, self._heads :])
        x.add_(self._output(attended))

        gate, up = self._gate_up(self._mlp_norm(x)).chunk(2, dim=-1)
        x.add_(self._down(F.silu(gate).mul_(up)))


class Decoder:
    """A decoder with its weights.

    Raises CheckpointError if the weights do not match the configuration.
    """

    def __init__(self, config: LlamaConfig, weights: Checkpoint) -> None:
        self.config = config
        self.dtype = weights.dtype
        size = (config.vocab_size, config.hidden_size)
        self._embedding = weights.load("model.embed_tokens.weight", *size)
        self._layers = [Layer(config, weights, index) for index in range(config.num_layers)]
        self._norm = RMSNorm(weights.load("model.norm.weight", config.hidden_size), config.norm_eps)
        lm_head = weights.load_lm_head(self._embedding, tied=config.tied_embeddings)
        self._lm_head = Linear(lm_head)
        weights.check_all_loaded()
        self.num_parameters = weights.num_parameters
        self._rotary = torch.empty(0)

    def prepare(self, positions: int) -> None:
        """Precompute the rotary table for this many positions. Must be called before `forward`."""
        self._rotary = rotary_table(self.config, positions).to(self.dtype)

    def forward(
        self, token_ids: Tensor, positions: Tensor, attend: Attend, logits_indices: Tensor
    ) -> Tensor:
        """Return the logits after each token of `logits_indices`: float32 [logits, vocab].

        token_ids, positions  [tokens]
        attend                attention over each token's own context
        logits_indices        [logits] indexes into the flat batch
        """
        x = F.embedding(token_ids, self._embedding)
        cos, sin = self._rotary.index_select(0, positions)[:, :, None].unbind(dim=1)
        for layer in self._layers:
            layer.forward(x, cos, sin, attend)
        return self._lm_head(self._norm(x.index_select(0, logits_indices))).float()
