"""Rotary position embeddings: each pair of a head's values is rotated by an angle proportional to the
token's position, so that the product of a query and a key depends on their distance.

Source: Su et al., RoFormer, arXiv:2104.09864. The pairing is Hugging Face's: value i of the n rotated
values of a head is paired with value i + n / 2.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.rope_scaling import RopeScaling


@dataclass(frozen=True, slots=True)
class Rope:
    """How a layer rotates.

    theta    the slowest of all frequencies is close to 1 / theta
    size     number of values of each head that are rotated, an even number; the rest stay
    scaling  see `rope_scaling.py`
    """

    theta: float
    size: int
    scaling: RopeScaling | None = None


@dataclass(frozen=True, slots=True)
class QueryScaling:
    """Longer queries for later tokens, which sharpen attention as the context grows.

    A query at position p is multiplied by 1 + beta log(1 + floor(p / length)), so the first `length`
    positions stay as they are. Source: Llama 4, `get_llama_4_attn_scale` in transformers.
    """

    beta: float
    length: int

    def factors(self, positions: Tensor) -> Tensor:
        """Return the factors of queries at `positions` [tokens]: float32 [tokens]."""
        return 1 + self.beta * (positions // self.length).float().log1p()


def rotary_table(rope: Rope, length: int) -> Tensor:
    """Return the cosines and sines of positions `0 .. length - 1`: float32 `[length, 2, rope.size]`.

    The sines of the first half are negated, which saves a negation when queries and keys are rotated.
    """
    exponents = torch.arange(0, rope.size, 2, dtype=torch.float32) / rope.size
    frequencies = 1.0 / rope.theta**exponents
    scale = 1.0
    if rope.scaling is not None:
        frequencies = rope.scaling.scaled(frequencies, length)
        scale = rope.scaling.attention_scale
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    cos, sin = angles.cos() * scale, angles.sin() * scale
    return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), dim=1)
