"""The bundled model in a bare loop of plain torch: the least that decoding a fixed batch takes.

It has no scheduler, no pages, no sampler but argmax and no event log; all sequences have the same
length, and each has a contiguous KV cache. What the engine's steps are slower is the price of serving.
They may be faster where the engine's matrix products are (`engine/models/kernels.py`).
"""

import json

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from engine.models.loader import BUNDLED


class BareLoop:
    """A side for `sides.measure`: Qwen3 in float32, for `batch` texts of `length` tokens."""

    def __init__(self, batch: int, length: int) -> None:
        config = json.loads((BUNDLED / "config.json").read_text("utf-8"))
        self._heads = config["num_attention_heads"], config["num_key_value_heads"]
        self._dim, self._eps = config["head_dim"], config["rms_norm_eps"]
        stored = load_file(BUNDLED / "model.safetensors")
        weights = {name.removeprefix("model."): tensor.float() for name, tensor in stored.items()}
        self._embedding, self._norm = weights["embed_tokens.weight"], weights["norm.weight"]
        self._layers = [
            _layer(weights, f"layers.{number}.") for number in range(config["num_hidden_layers"])
        ]
        shape = (len(self._layers), 2, batch, self._heads[1], length, self._dim)
        self._cache = torch.zeros(shape)
        even = torch.arange(0, self._dim, 2) / self._dim
        angles = torch.arange(length)[:, None] * config["rope_theta"] ** -even
        angles = torch.cat((angles, angles), dim=1)
        self._cos, self._sin = angles.cos(), angles.sin()
        self.outputs: list[list[int]] = []

    @torch.inference_mode()
    def start(self, prompts: list[list[int]]) -> None:
        """See `Side`."""
        self._seen, self.outputs = 0, []
        self._compute(torch.tensor(prompts))

    @torch.inference_mode()
    def step(self) -> None:
        """See `Side`."""
        self._compute(self._next)

    def close(self) -> None:
        """See `Side`."""

    def _compute(self, tokens: Tensor) -> None:
        """Compute [batch, count] tokens after those in the cache, and choose the next."""
        start, self._seen = self._seen, self._seen + tokens.shape[1]
        x = F.embedding(tokens, self._embedding)
        for layer, cache in zip(self._layers, self._cache, strict=True):
            x = x + F.linear(self._attend(layer, x, cache, start), layer["out"])
            gate, up = F.linear(self._rms(x, layer["ffn_norm"]), layer["gate_up"]).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        logits = F.linear(self._rms(x[:, -1], self._norm), self._embedding)
        self._next = logits.argmax(dim=1, keepdim=True)
        self.outputs.append(self._next[:, 0].tolist())

    def _attend(self, layer: dict[str, Tensor], x: Tensor, cache: Tensor, start: int) -> Tensor:
        """Append the tokens from `start` on to a layer's keys and values, and attend to all of them."""
        cos, sin = self._cos[start : self._seen], self._sin[start : self._seen]
        keys, values = cache[:, :, :, : self._seen]
        batch, count, _ = x.shape
        heads, kv_heads = self._heads
        qkv = F.linear(self._rms(x, layer["norm"]), layer["qkv"])
        qkv = qkv.view(batch, count, heads + 2 * kv_heads, self._dim).transpose(1, 2)
        q, k, v = qkv.split((heads, kv_heads, kv_heads), dim=1)
        q = _rotate(self._rms(q, layer["q_norm"]), cos, sin)
        keys[:, :, start:] = _rotate(self._rms(k, layer["k_norm"]), cos, sin)
        values[:, :, start:] = v
        attended = F.scaled_dot_product_attention(
            q, keys, values, is_causal=count > 1, enable_gqa=True
        )
        return attended.transpose(1, 2).reshape(batch, count, heads * self._dim)

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self._eps)


def _layer(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Stack the matrices that read the same activations, as the engine does."""

    def stacked(*names: str) -> Tensor:
        return torch.cat([weights[f"{prefix}{name}_proj.weight"] for name in names])

    return {
        "norm": weights[f"{prefix}input_layernorm.weight"],
        "qkv": stacked("self_attn.q", "self_attn.k", "self_attn.v"),
        "q_norm": weights[f"{prefix}self_attn.q_norm.weight"],
        "k_norm": weights[f"{prefix}self_attn.k_norm.weight"],
        "out": stacked("self_attn.o"),
        "ffn_norm": weights[f"{prefix}post_attention_layernorm.weight"],
        "gate_up": stacked("mlp.gate", "mlp.up"),
        "down": stacked("mlp.down"),
    }


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
