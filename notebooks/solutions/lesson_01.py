"""Lesson 01: from scores to probabilities: temperature, top-k, top-p."""

import math
from collections.abc import Sequence


def distribution(
    logits: Sequence[float], temperature: float, top_k: int, top_p: float
) -> list[float]:
    """Apply temperature, top-k and top-p, then renormalise."""
    order = sorted(range(len(logits)), key=logits.__getitem__, reverse=True)
    if temperature == 0:
        return [1.0 if i == order[0] else 0.0 for i in range(len(logits))]
    best = logits[order[0]]
    weights = [math.exp((one - best) / temperature) for one in logits]
    kept = order[:top_k] if top_k else order
    whole, summed = sum(weights[i] for i in kept), 0.0
    for count, i in enumerate(kept, 1):
        summed += weights[i] / whole
        if summed >= top_p:
            kept = kept[:count]
            break
    whole = sum(weights[i] for i in kept)
    return [weights[i] / whole if i in set(kept) else 0.0 for i in range(len(logits))]
