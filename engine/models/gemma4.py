"""Gemma 4: a decoder with two kinds of layers, per-layer inputs and layers that share KV.

Its layers differ from those of Gemma 3 in this:

- Values are normalised, like queries and keys, and trained queries are used as they are.
- Global layers have larger heads. In the larger models, keys and values have one projection.
- The last layers compute queries only, and attend to the KV of an earlier layer (E2B, E4B).
- Each layer adds an input of its own, looked up by token: much knowledge for little arithmetic
  (per-layer embeddings, E2B and E4B).
- A mixture of experts works beside the dense feed-forward network (26B-A4B).
- The residual stream is multiplied by a trained number after each layer, and logits are capped.

Differs from transformers and from vLLM with `--kv-sharing-fast-prefill`: the layers without KV of their
own compute every token of a prompt. Nothing reads their results but the logits, so these systems
compute only the tokens whose logits are needed.

Sources: `transformers/models/gemma4/modeling_gemma4.py`; for shared KV, You Only Cache Once,
arXiv:2405.05254; for per-layer inputs, Gemma 3n, `transformers/models/gemma3n`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engine.core.compute.model import Attend
from engine.models.config import LlamaConfig
from engine.models.config_gemma4 import Gemma4Config
from engine.models.decoder import Attention, Decoder, Layer, Rotation, rotate
from engine.models.layers import ACTIVATIONS, Linear, RMSNorm, load_norm, row_lookup
from engine.models.moe import MixtureOfExperts
from engine.models.weights.checkpoint import Checkpoint


class Gemma4Attention(Attention):
    """Self-attention of one layer; see the top of this file for what differs.

    config  that of the layer; see `Gemma4Config.of_layer`
    """

    def __init__(
        self,
        config: Gemma4Config,
        weights: Checkpoint,
        prefix: str,
        layer: int,
        rotation: int | None,
    ) -> None:
        assert rotation is not None
        self._layer, self._table = layer, rotation
        self._heads, kv_heads, size = config.num_heads, config.num_kv_heads, config.head_dim
        self._has_kv = layer in config.layers_with_kv
        self._keys_are_values = config.keys_are_values and config.windows[layer] is None
        parts = {"q": self._heads}
        if self._has_kv:
            parts |= {"k": kv_heads} if self._keys_are_values else {"k": kv_heads, "v": kv_heads}
        rows = {f"{prefix}.{part}_proj.weight": heads * size for part, heads in parts.items()}
        self._qkv = Linear(weights.load_matrix(rows, config.hidden_size))
        self._shape = (-1, sum(parts.values()), size)
        per_head = [
            weights.load(f"{prefix}.q_norm.weight", size) * config.query_scale
        ] * self._heads
        if self._has_kv:
            key = weights.load(f"{prefix}.k_norm.weight", size)
            per_head += [key] * kv_heads + [torch.ones_like(key)] * kv_heads
        self._num_rotated = self._heads + (kv_heads if self._has_kv else 0)
        self._norm = RMSNorm(torch.stack(per_head), config.norm_eps)
        rows = {f"{prefix}.o_proj.weight": config.hidden_size}
        self._output = Linear(weights.load_matrix(rows, self._heads * size))

    def __call__(self, x: Tensor, rotations: Sequence[Rotation], attend: Attend) -> Tensor:
        """Return the network's output for `x` [tokens, hidden]: the same shape."""
        heads = self._qkv(x).view(self._shape)
        if self._has_kv and self._keys_are_values:
            heads = torch.cat((heads, heads[:, self._heads :]), dim=1)
        heads = self._norm(heads)
        rotated = heads[:, : self._num_rotated]
        rotate(rotated, rotations[self._table], out=rotated)
        keys_values = heads[:, self._heads :] if self._has_kv else None
        return self._output(attend(self._layer, heads[:, : self._heads], keys_values))


class PerLayerInputs:
    """The inputs that layers add: a row of a table by token, and a projection of its embedding."""

    def __init__(self, config: Gemma4Config, weights: Checkpoint) -> None:
        body, size = config.family.text_prefix + config.family.body, config.per_layer_size
        self._shape = (-1, config.num_layers, size)
        columns = config.num_layers * size
        name = f"{body}embed_tokens_per_layer.weight"
        self._embedding = row_lookup(weights.load_embedding(name, config.per_layer_rows, columns))
        self._embedding_scale = float(torch.tensor(math.sqrt(size)).to(weights.dtype))
        rows = {f"{body}per_layer_model_projection.weight": columns}
        self._projection = Linear(weights.load_matrix(rows, config.hidden_size))
        self._projection_scale = config.hidden_size**-0.5
        self._norm = load_norm(config, weights, f"{body}per_layer_projection_norm.weight", size)

    def __call__(self, token_ids: Tensor, x: Tensor) -> Sequence[Tensor]:
        """Return each layer's input [tokens, size]. `x` [tokens, hidden] are the scaled embeddings."""
        projected = self._norm(self._projection(x).mul_(self._projection_scale).view(self._shape))
        looked_up = self._embedding(token_ids).to(x.dtype).view(self._shape)
        inputs = projected.add_(looked_up, alpha=self._embedding_scale).mul_(math.sqrt(0.5))
        return inputs.unbind(dim=1)


class Gemma4Experts(MixtureOfExperts):
    """A mixture whose router has a norm of its own and a trained factor for each expert."""

    router_name = "router.proj"

    def __init__(self, config: Gemma4Config, weights: Checkpoint, prefix: str) -> None:
        # A checkpoint stacks gate and up, as that of a family with fused projections.
        fused = replace(config.family, fused=True)
        super().__init__(replace(config, family=fused), weights, prefix)
        scale = _load(
            weights, config.hidden_size, f"{prefix}.router.scale", f"{prefix}.router.proj.scale"
        )
        self._router_norm = RMSNorm(scale.float() * config.hidden_size**-0.5, config.norm_eps)
        names = f"{prefix}.router.per_expert_scale", f"{prefix}.experts.*.down_proj.scale"
        self._factors = _load(weights, config.num_experts, *names)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the k experts of each token of `x` and their weights: both [tokens, k]."""
        experts, weights = super().route(self._router_norm(x))
        return experts, weights * self._factors[experts].to(weights.dtype)


class DenseAndExperts:
    """A dense feed-forward network and a mixture of experts, whose results are added.

    Both read the residual stream, each through a norm of its own; so does the router.
    """

    def __init__(
        self,
        before_dense: RMSNorm | None,
        dense: Callable[[Tensor], Tensor],
        config: Gemma4Config,
        weights: Checkpoint,
        prefix: str,
    ) -> None:
        def norm(name: str) -> RMSNorm:
            return load_norm(config, weights, f"{prefix}.{name}.weight", config.hidden_size)

        assert before_dense is not None
        self._before_dense, self._dense = before_dense, dense
        self._after_dense = norm("post_feedforward_layernorm_1")
        self._experts = Gemma4Experts(config, weights, prefix)
        self._before_experts = norm("pre_feedforward_layernorm_2")
        self._after_experts = norm("post_feedforward_layernorm_2")

    @property
    def loads(self) -> list[int]:
        """How many tokens each expert computed in the latest call."""
        return self._experts.loads

    def __call__(self, x: Tensor) -> Tensor:
        """Return the sum for `x` [tokens, hidden]: the same shape."""
        routed = self._experts.dispatch(self._before_experts(x), *self._experts.route(x))
        return self._after_dense(self._dense(self._before_dense(x))).add_(
            self._after_experts(routed)
        )


def _load(weights: Checkpoint, size: int, *names: str) -> Tensor:
    """Load the vector [size] under its name in a directory or in a GGUF file."""
    return weights.load(next((name for name in names if name in weights), names[0]), size)


class Gemma4Layer(Layer):
    """One decoder layer, which updates the residual stream in place."""

    attention_kind = Gemma4Attention

    def __init__(
        self,
        config: LlamaConfig,
        weights: Checkpoint,
        prefix: str,
        index: int,
        rotation: int | None,
    ) -> None:
        assert isinstance(config, Gemma4Config)
        config = config.of_layer(index)
        super().__init__(config, weights, prefix, index, rotation)
        if config.num_experts:
            before, self._before_feed_forward = self._before_feed_forward, None
            self.feed_forward = DenseAndExperts(before, self.feed_forward, config, weights, prefix)
        names = f"{prefix}.layer_scalar", f"{prefix}.layer_scalar.weight"
        self._scalar = _load(weights, 1, *names)
        if size := config.per_layer_size:
            hidden, name = config.hidden_size, f"{prefix}.per_layer_input_gate.weight"
            self._gate = Linear(weights.load_matrix({name: size}, hidden))
            self._activation = ACTIVATIONS[config.activation]
            name = f"{prefix}.per_layer_projection.weight"
            self._projection = Linear(weights.load_matrix({name: hidden}, size))
            name = f"{prefix}.post_per_layer_input_norm.weight"
            self._after_input = load_norm(config, weights, name, hidden)

    def forward(
        self,
        x: Tensor,
        rotations: Sequence[Rotation],
        attend: Attend,
        layer_input: Tensor | None = None,
    ) -> None:
        """Add attention, feed-forward and `layer_input` [tokens, size] to `x` [tokens, hidden]."""
        super().forward(x, rotations, attend)
        if layer_input is not None:
            gated = self._activation(self._gate(x)).mul_(layer_input)
            x.add_(self._after_input(self._projection(gated)))
        x.mul_(self._scalar)


class Gemma4(Decoder):
    """A Gemma 4 decoder with its weights; see `Decoder`."""

    config: Gemma4Config
    layer_kind = Gemma4Layer

    def __init__(self, config: Gemma4Config, weights: Checkpoint) -> None:
        self._inputs = PerLayerInputs(config, weights) if config.per_layer_size else None
        super().__init__(config, weights)

    def forward(
        self, token_ids: Tensor, positions: Tensor, attend: Attend, logits_indices: Tensor
    ) -> Tensor:
        """Return the logits after each token of `logits_indices`; see `Decoder.forward`."""
        x = self._embedding(token_ids).to(self._activations).mul_(self._embedding_scale)
        inputs: Sequence[Tensor | None] = [None] * len(self._layers)
        if self._inputs is not None:
            inputs = self._inputs(token_ids, x)
        rotations = [
            Rotation(*table.index_select(0, positions)[:, :, None].unbind(dim=1))
            for table in self._tables
        ]
        for layer, layer_input in zip(self._layers, inputs, strict=True):
            assert isinstance(layer, Gemma4Layer)
            layer.forward(x, rotations, attend, layer_input)
        if self.config.num_experts:
            networks = [layer.feed_forward for layer in self._layers]
            self.expert_loads = [getattr(network, "loads", []) for network in networks]
        logits = self._lm_head(self._norm(x.index_select(0, logits_indices))).float()
        if (cap := self.config.logit_cap) is not None:
            logits = logits.div_(cap).tanh_().mul_(cap)
        return logits
