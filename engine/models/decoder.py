"""A Llama-style decoder over a flat batch of tokens.

Per layer: norm, attention, add; norm, feed-forward, add. Some families have their norms elsewhere;
`families.py` lists how they differ. Tokens interact only in `attend`, which is passed in as a function,
so nothing here depends on blocks, requests or steps.

Queries, keys and values are computed by one matrix, as in vLLM, because a small model's decode step is
limited by the number of operations, not by arithmetic.

Sources: Llama 2, arXiv:2307.09288. The names of the weights are those of transformers.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from engine.core.compute.device import activation_dtype
from engine.core.compute.model import Attend
from engine.models.config import LlamaConfig
from engine.models.layers import (
    FeedForward,
    HeadNorm,
    Linear,
    ProjectionNorm,
    RMSNorm,
    load_norm,
    row_lookup,
)
from engine.models.memory import InMemory
from engine.models.moe import MixtureOfExperts
from engine.models.rope import rotary_table
from engine.models.weights.checkpoint import Checkpoint

_QK_NORMS: dict[str, type[HeadNorm | ProjectionNorm]] = {
    "head": HeadNorm,
    "projection": ProjectionNorm,
}


class Rotation(NamedTuple):
    """The cosines and sines of a step's positions: each [tokens, 1, rotated values of a head]."""

    cos: Tensor
    sin: Tensor


class Attention:
    """Self-attention with the weights under the name `prefix`.

    rotation  index of the layer's rotation in the sequence that `__call__` gets; None: the layer
              rotates nothing (NoPE, arXiv:2305.19466) and tells positions apart only by what it sees
    """

    def __init__(
        self,
        config: LlamaConfig,
        weights: Checkpoint,
        prefix: str,
        layer: int,
        rotation: int | None,
    ) -> None:
        self._layer = layer
        self._rotation = rotation
        self._heads = config.num_heads
        self._num_rotated = config.num_heads + config.num_kv_heads  # queries and keys
        self._shape = (-1, config.num_heads + 2 * config.num_kv_heads, config.head_dim)
        hidden = config.hidden_size
        queries, keys = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))

        qkv = {"q": queries, "k": keys, "v": keys}
        if config.family.fused:
            qkv = {"qkv": queries + 2 * keys}
        rows = {f"{prefix}.{part}_proj.weight": size for part, size in qkv.items()}
        bias: Tensor | None = None
        if config.qkv_bias:
            parts = [weights.load(f"{prefix}.{p}_proj.bias", size) for p, size in qkv.items()]
            bias = torch.cat(parts)
        self._qkv = Linear(weights.load_matrix(rows, hidden), bias)
        kind = config.family.qk_norm
        self._qk_norm = None if kind is None else _QK_NORMS[kind](config, weights, prefix)
        output = weights.load_matrix({f"{prefix}.o_proj.weight": hidden}, queries)
        output_bias = weights.load(f"{prefix}.o_proj.bias", hidden) if config.output_bias else None
        self._output = Linear(output, output_bias)
        self._sinks: tuple[Tensor, ...] = ()
        if config.family.sinks:
            self._sinks = (weights.load(f"{prefix}.sinks", config.num_heads).float(),)

    def __call__(self, x: Tensor, rotations: Sequence[Rotation], attend: Attend) -> Tensor:
        """Return the network's output for `x` [tokens, hidden]: the same shape."""
        heads = self._qkv(x).view(self._shape)
        queries_keys = heads[:, : self._num_rotated]
        normed = queries_keys if self._qk_norm is None else self._qk_norm(queries_keys)
        if self._rotation is not None:
            rotate(normed, rotations[self._rotation], out=queries_keys)
        queries, keys_values = heads[:, : self._heads], heads[:, self._heads :]
        return self._output(attend(self._layer, queries, keys_values, *self._sinks))


def rotate(x: Tensor, rotation: Rotation, out: Tensor) -> None:
    """Rotate the first values of each head of `x`, which is overwritten, into `out`; see `rope.py`."""
    cos, sin = rotation
    size = cos.shape[-1]
    if size < x.shape[-1]:
        x, out = x[..., :size], out[..., :size]
    # The pair (a, b) becomes (a cos - b sin, b cos + a sin).
    swapped = x.roll(size // 2, dims=-1)
    torch.addcmul(x.mul_(cos), swapped, sin, out=out)


class Layer:
    """One decoder layer, which updates the residual stream in place."""

    attention_kind: type[Attention] = Attention

    def __init__(
        self,
        config: LlamaConfig,
        weights: Checkpoint,
        prefix: str,
        index: int,
        rotation: int | None,
    ) -> None:
        def norm(name: str | None) -> RMSNorm | None:
            if name is None:
                return None
            return load_norm(config, weights, f"{prefix}.{name}.weight", config.hidden_size)

        names = config.family.norms
        self._before_attention = norm(names.before_attention)
        self.attention: Callable[..., Tensor] = self.attention_kind(
            config, weights, f"{prefix}.self_attn", index, rotation
        )
        self._after_attention = norm(names.after_attention)
        self._before_feed_forward = norm(names.before_feed_forward)
        network = MixtureOfExperts if config.sparse_layers[index] else FeedForward
        self.feed_forward: Callable[[Tensor], Tensor] = network(config, weights, f"{prefix}.mlp")
        self._after_feed_forward = norm(names.after_feed_forward)

    def forward(self, x: Tensor, rotations: Sequence[Rotation], attend: Attend) -> None:
        """Add attention and feed-forward to `x` [tokens, hidden]."""
        y = x if self._before_attention is None else self._before_attention(x)
        y = self.attention(y, rotations, attend)
        x.add_(y if self._after_attention is None else self._after_attention(y))
        y = x if self._before_feed_forward is None else self._before_feed_forward(x)
        y = self.feed_forward(y)
        x.add_(y if self._after_feed_forward is None else self._after_feed_forward(y))


def _attend_scaled(
    attend: Attend, factors: Tensor, layer: int, queries: Tensor, keys_values: Tensor
) -> Tensor:
    """Attend with queries that are multiplied by `factors` [tokens, 1, 1]."""
    return attend(layer, queries.mul_(factors), keys_values)


class Decoder(InMemory):
    """A decoder with its weights.

    fingerprint  of the weights and, after `prepare`, of the rotary frequencies: equal fingerprints
                 compute equal keys and values
    expert_loads how many tokens each expert computed in the latest `forward`; see `Runner`

    Raises CheckpointError if the weights do not match the configuration.
    """

    config: LlamaConfig
    layer_kind: type[Layer] = Layer

    def __init__(self, config: LlamaConfig, weights: Checkpoint) -> None:
        self.config = config
        self.dtype, self.device = weights.dtype, weights.device
        self._activations = activation_dtype(self.dtype, self.device)
        prefix = config.family.text_prefix
        weights.ignore_others(prefix, config.unread)
        body = f"{prefix}{config.family.body}"
        embedded = f"{body}embed_tokens.weight"
        embedding = weights.load_embedding(embedded, config.vocab_size, config.hidden_size)
        self._embedding_scale = 1.0
        if config.family.scaled_embedding:
            # transformers rounds the factor to the model's precision, and so do the trained weights.
            scale = torch.tensor(config.hidden_size**0.5).to(self.dtype)
            self._embedding_scale = float(scale)
        # Layers that rotate alike share a table.
        self._ropes = list(dict.fromkeys(rope for rope in config.ropes if rope is not None))
        self._layers = [
            self.layer_kind(
                config,
                weights,
                f"{body}layers.{index}",
                index,
                None if rope is None else self._ropes.index(rope),
            )
            for index, rope in enumerate(config.ropes)
        ]
        self._norm: Callable[[Tensor], Tensor] = load_norm(
            config, weights, f"{body}norm.weight", config.hidden_size
        )
        name = f"{prefix}lm_head.weight"
        lm_head = weights.load_lm_head(embedding, tied=config.tied_embeddings, name=name)
        may_replace = lm_head is not embedding
        stored = None if may_replace else weights.stored_rows(embedded)
        # If tokens are looked up in the file, the output layer may keep the matrix packed.
        self._embedding = row_lookup(embedding if stored is None else stored)
        may_replace |= stored is not None
        self._lm_head: Callable[[Tensor], Tensor] = Linear(lm_head, may_replace=may_replace)
        weights.check_all_loaded()
        self.num_parameters = weights.num_parameters
        self.weight_bytes = weights.weight_bytes()
        self._weights_fingerprint = weights.fingerprint
        self.fingerprint = weights.fingerprint.hexdigest()
        self._tables: list[Tensor] = []
        self.expert_loads: list[list[int]] = []

    def prepare(self, positions: int) -> None:
        """Precompute the rotary tables for this many positions. Must be called before `forward`."""
        tables = [rotary_table(rope, positions) for rope in self._ropes]
        fingerprint = self._weights_fingerprint.copy()
        for table in tables:
            fingerprint.update(table[:2].numpy().tobytes())
        self.fingerprint = fingerprint.hexdigest()
        self._tables = [table.to(self.device, self._activations) for table in tables]

    def forward(
        self, token_ids: Tensor, positions: Tensor, attend: Attend, logits_indices: Tensor
    ) -> Tensor:
        """Return the logits after each token of `logits_indices`: float32 [logits, vocab].

        token_ids, positions  [tokens]
        attend                attention over each token's own context
        logits_indices        [logits] indexes into the flat batch
        """
        x = self._embedding(token_ids).to(self._activations)
        if self._embedding_scale != 1.0:
            x.mul_(self._embedding_scale)
        rotations = list[Rotation]()
        for table in self._tables:
            cos_sin = table.index_select(0, positions)[:, :, None]
            rotations.append(Rotation(*cos_sin.unbind(dim=1)))
        if self.config.query_scaling is not None:
            factors = self.config.query_scaling.factors(positions)[:, None, None]
            attend = partial(_attend_scaled, attend, factors.to(self._activations))
        for layer in self._layers:
            layer.forward(x, rotations, attend)
        if self.config.num_experts:
            networks = [layer.feed_forward for layer in self._layers]
            self.expert_loads = [getattr(network, "loads", []) for network in networks]
        return self._lm_head(self._norm(x.index_select(0, logits_indices))).float()
