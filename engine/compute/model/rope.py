"""Rotary position embeddings: each pair of a head's values is rotated by an angle proportional to the
token's position, so that the product of a query and a key depends on their distance.

Source: Su et al., RoFormer, arXiv:2104.09864. The pairing is Hugging Face's: value i of a head is
paired with value i + head_dim / 2.
"""

import torch
from torch import Tensor

from engine.compute.model.config import LlamaConfig


def rotary_table(config: LlamaConfig, length: int) -> Tensor:
    """Return the cosines and sines of positions `0 .. length - 1`: float32 `[length, 2, head_dim]`.

    The sines of a head's first half are negated, which saves `Layer.forward` a negation when it
    rotates queries and keys.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    scale = 1.0
    if config.rope_scaling is not None:
        frequencies = config.rope_scaling.scaled(frequencies)
        scale = config.rope_scaling.attention_scale
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    cos, sin = angles.cos() * scale, angles.sin() * scale
    return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), dim=1)
