"""An upper bound for the engine: the same model in a loop that only decodes.

One batch of prompts of equal length. Keys and values lie in one buffer, made beforehand and contiguous:
`[layers, 2 (keys, values), batch, kv_heads, length, head_dim]`. No requests, scheduler, pages, prefix
cache, log, text or log-probabilities; no request joins, and all end together. Norms, rotations and
projections are the engine's own, so what remains between the two is what serving costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.models.config import LlamaConfig
from engine.models.config_file import read_config
from engine.models.layers import Linear, RMSNorm
from engine.models.loader import BUNDLED
from engine.models.rope import rotary_table
from engine.models.weights.checkpoint import Checkpoint


@dataclass
class Layer:
    """The weights of a layer of the bundled model, a Qwen3."""

    attention_norm: RMSNorm
    qkv: Linear
    qk_norm: RMSNorm
    output: Linear
    mlp_norm: RMSNorm
    gate_up: Linear
    down: Linear

    @classmethod
    def of(cls, config: LlamaConfig, weights: Checkpoint, index: int) -> "Layer":
        """Take the weights of layer `index`, with projections that read the same input fused."""
        hidden, inner, size = config.hidden_size, config.intermediate_size, config.head_dim
        queries, keys = config.num_heads * size, config.num_kv_heads * size
        name = f"model.layers.{index}"

        def fused(**outputs: int) -> Linear:
            return Linear(
                torch.cat(
                    [weights.load(f"{name}.{part.replace('__', '.')}.weight", out, hidden)
                     for part, out in outputs.items()]
                )
            )  # fmt: skip

        def norm(part: str) -> RMSNorm:
            return RMSNorm(weights.load(f"{name}.{part}.weight", hidden), config.norm_eps)

        q_norm = weights.load(f"{name}.self_attn.q_norm.weight", size)
        k_norm = weights.load(f"{name}.self_attn.k_norm.weight", size)
        per_head = [q_norm] * config.num_heads + [k_norm] * config.num_kv_heads
        return cls(
            attention_norm=norm("input_layernorm"),
            qkv=fused(self_attn__q_proj=queries, self_attn__k_proj=keys, self_attn__v_proj=keys),
            qk_norm=RMSNorm(torch.stack(per_head), config.norm_eps),
            output=Linear(weights.load(f"{name}.self_attn.o_proj.weight", hidden, queries)),
            mlp_norm=norm("post_attention_layernorm"),
            gate_up=fused(mlp__gate_proj=inner, mlp__up_proj=inner),
            down=Linear(weights.load(f"{name}.mlp.down_proj.weight", hidden, inner)),
        )


class BareLoop:
    """The bundled model over `batch` texts of at most `length` tokens each."""

    def __init__(self, batch: int, length: int) -> None:
        config = read_config(BUNDLED)
        assert isinstance(config, LlamaConfig)
        weights = Checkpoint(BUNDLED, torch.float32)
        size = (config.vocab_size, config.hidden_size)
        self._config = config
        self._embedding = weights.load("model.embed_tokens.weight", *size)
        self._layers = [Layer.of(config, weights, index) for index in range(config.num_layers)]
        self._norm = RMSNorm(weights.load("model.norm.weight", config.hidden_size), config.norm_eps)
        self._lm_head = Linear(self._embedding)
        self._rotary = rotary_table(config.ropes[0], length)
        self._cache = torch.zeros(
            config.num_layers, 2, batch, config.num_kv_heads, length, config.head_dim
        )
        self._batch = batch
        self._position = 0

    def generate(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        """The greedy continuations of prompts of equal length, `max_tokens` ids each."""
        ids = [self.start(prompts)]
        while len(ids) < max_tokens:
            ids.append(self.decode(ids[-1]))
        return torch.stack(ids, dim=1).tolist()  # type: ignore[no-any-return]

    @torch.inference_mode()
    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Clear the cache and compute prompts of equal length. Returns their next tokens, [batch]."""
        self._position, count = 0, len(prompts[0])
        ids = torch.tensor(prompts).view(-1)
        rotary = self._rotary[:count].repeat(self._batch, 1, 1)
        return self._forward(ids, rotary, count)

    @torch.inference_mode()
    def decode(self, ids: Tensor) -> Tensor:
        """Append one token to each text, `ids` [batch]. Returns the next ones, [batch]."""
        return self._forward(ids, self._rotary[self._position : self._position + 1], count=1)

    def _forward(self, ids: Tensor, rotary: Tensor, count: int) -> Tensor:
        """`ids` [batch * count], `rotary` [batch * count or 1, 2, head_dim] -> [batch]"""
        x = F.embedding(ids, self._embedding)
        for layer, cache in zip(self._layers, self._cache, strict=True):
            self._layer(layer, cache, x, rotary)
        self._position += count
        last = x.view(self._batch, count, -1)[:, -1]
        # numpy's argmax, because torch's takes ten times as long.
        return torch.from_numpy(self._lm_head(self._norm(last)).numpy().argmax(axis=-1))

    def _layer(self, layer: Layer, cache: Tensor, x: Tensor, rotary: Tensor) -> None:
        """Add attention and feed-forward to `x` [batch * count, hidden]."""
        config, batch = self._config, self._batch
        num_heads, kv_heads = config.num_heads, config.num_kv_heads
        count = len(x) // batch
        end = self._position + count
        heads = layer.qkv(layer.attention_norm(x)).view(len(x), -1, config.head_dim)
        queries_keys = heads[:, : num_heads + kv_heads]
        cos, sin = rotary[:, :, None].unbind(dim=1)
        normed = layer.qk_norm(queries_keys)
        swapped = normed.roll(config.head_dim // 2, dims=-1)
        torch.addcmul(normed.mul_(cos), swapped, sin, out=queries_keys)
        # [batch, tokens, 2, kv_heads, head_dim] -> [2, batch, kv_heads, tokens, head_dim]
        new = heads[:, num_heads:].view(batch, count, 2, kv_heads, -1).permute(2, 0, 3, 1, 4)
        cache[:, :, :, self._position : end] = new
        keys, values = cache[:, :, :, :end].unbind()
        if count == 1:  # the queries that share a head of keys as tokens of that head
            queries = heads[:, :num_heads].view(batch, kv_heads, -1, config.head_dim)
            mixed = F.scaled_dot_product_attention(queries, keys, values).view(batch, -1)
        else:
            queries = heads[:, :num_heads].view(batch, count, num_heads, -1).transpose(1, 2)
            mixed = F.scaled_dot_product_attention(
                queries, keys, values, is_causal=True, enable_gqa=True
            )
            mixed = mixed.transpose(1, 2).reshape(batch * count, -1)
        x.add_(layer.output(mixed))
        gate, up = layer.gate_up(layer.mlp_norm(x)).chunk(2, dim=-1)
        x.add_(layer.down(F.silu(gate).mul_(up)))
