"""Lesson 02: attention with a KV cache, for tokens that come in chunks."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def attend(
    q: Array, k_new: Array, v_new: Array, k_cache: Array, v_cache: Array, *, start: int
) -> Array:
    """Write first, so that a token sees itself; then mask the later tokens of the chunk."""
    end = start + len(q)
    k_cache[start:end] = k_new
    v_cache[start:end] = v_new
    scores = q @ k_cache[:end].T / np.sqrt(q.shape[1])
    positions = np.arange(start, end)[:, None]
    scores[np.arange(end) > positions] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    mixed: Array = weights / weights.sum(axis=1, keepdims=True) @ v_cache[:end]
    return mixed
