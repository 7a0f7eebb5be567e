"""The bundled model's architecture, written for training: whole sequences, no KV cache.

A decoder of the Qwen3 family (Qwen3 Technical Report, arXiv:2505.09388): RMSNorm before each
block, grouped-query attention with a norm on every query and key head (QK-norm), rotary
positions, a SwiGLU feed-forward, and one matrix as both embedding and output layer. The names of the
submodules are those of Hugging Face's ``Qwen3ForCausalLM``, so the state dict is the checkpoint.
The engine runs the same weights through its own paged decoder in `engine.core.compute`; a test checks
that this model equals ``transformers``.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class ModelConfig:
    """The sizes of the bundled model (2.76M parameters), under their names in config.json."""

    vocab_size: int = 2048
    hidden_size: int = 192
    intermediate_size: int = 512
    num_hidden_layers: int = 6
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 32
    rope_theta: float = 1e4
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 2048


def rotary_tables(config: ModelConfig, length: int) -> tuple[Tensor, Tensor]:
    """Return RoPE's cosines and sines, each ``[length, head_dim]`` (Su et al., arXiv:2104.09864).

    Hugging Face's layout: the two halves of a head are the two coordinates of its rotations.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(length).float(), config.rope_theta**-exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each head vector of ``x`` ``[batch, heads, length, head_dim]`` by its position."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Grouped-query attention with QK-norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        self.q_norm = nn.RMSNorm(config.head_dim, eps=config.rms_norm_eps)
        self.k_norm = nn.RMSNorm(config.head_dim, eps=config.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        """Attend over ``x`` ``[batch, length, hidden]``; ``mask`` is True for visible positions."""
        batch, length, _ = x.shape
        heads = (batch, length, -1, self.config.head_dim)
        # Norms are computed in fp32, even if autocast makes the projections bf16.
        q = self.q_norm(self.q_proj(x).view(heads).float()).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(heads).float()).transpose(1, 2)
        v = self.v_proj(x).view(heads).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        # Written out, since torch's fused attention is slower on CPUs for heads and rows this small.
        # The query heads of a group follow each other, and so share the product with their key head.
        kv, group = self.config.num_key_value_heads, queries_per_key(self.config)
        q = (q.to(v.dtype) * self.config.head_dim**-0.5).reshape(batch, kv, group * length, -1)
        scores = (q @ k.to(v.dtype).transpose(-1, -2)).view(batch, kv, group, length, length)
        hidden = (
            ~mask
            if mask is not None
            else ~torch.ones_like(scores[0, 0, 0], dtype=torch.bool).tril()
        )
        bias = torch.zeros_like(hidden, dtype=scores.dtype).masked_fill(hidden, float("-inf"))
        shares = (scores + bias.view(-1, 1, 1, length, length)).softmax(dim=-1).to(v.dtype)
        mixed = shares.view(batch, kv, group * length, length) @ v
        mixed = mixed.view(batch, kv * group, length, -1).transpose(1, 2)
        return self.o_proj(mixed.reshape(batch, length, -1))  # type: ignore[no-any-return]


def queries_per_key(config: ModelConfig) -> int:
    """Return how many query heads share a key head."""
    return config.num_attention_heads // config.num_key_value_heads


class FeedForward(nn.Module):
    """SwiGLU (Shazeer, arXiv:2002.05202)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position of ``x`` ``[batch, length, hidden]`` separately."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """One decoder layer: attention, then feed-forward, each added to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        """Return the residual stream ``[batch, length, hidden]`` after this layer."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Backbone(nn.Module):
    """Embedding, layers and final norm; Hugging Face calls this part ``model``."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


class Model(nn.Module):
    """The language model: token ids in, logits of the next token out."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Backbone(config)
        cos, sin = rotary_tables(config, config.max_position_embeddings)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(self._initialise)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            # Large compared with the output of the layers, so that a rare word, such as a name,
            # stays distinct enough to be looked up and copied. With a deviation of 0.02, five
            # million tokens did not teach the model to repeat a name; with 0.08, two million did.
            nn.init.normal_(module.weight, std=0.08)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
        elif isinstance(module, Attention):
            # QK-norm limits how sharp attention can be, and copying needs sharp attention. From 1,
            # these weights rose to about 1.3 over the first thousand steps, in every layer.
            nn.init.constant_(module.q_norm.weight, 1.3)
            nn.init.constant_(module.k_norm.weight, 1.3)
        # The two matrices that write to the residual stream start smaller, so that its variance
        # does not grow with depth (GPT-2).
        for name, child in module.named_children():
            if name in {"o_proj", "down_proj"} and isinstance(child, nn.Linear):
                nn.init.normal_(child.weight, std=0.02 / (2 * self.config.num_hidden_layers) ** 0.5)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits ``[batch, length, vocab]`` for token ids ``[batch, length]``.

        ``mask`` ``[batch, 1, length, length]`` is True for visible positions; without a mask, each
        position sees itself and everything before it.
        """
        length = tokens.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, cos, sin, mask)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)
