"""Penalties: tokens that are already in the text become less likely.

A text has few of the vocabulary's tokens, so only their logits are read and written: `where` lists
them for all rows at once, as indexes into the flattened logits. A token that is in the text several
times is listed several times, and each time the same new value is written.

The order and the formulas are vLLM's (`vllm/model_executor/layers/utils.py`, `apply_penalties`).
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from engine.compute.sampling.logit_positions import LogitPosition

_LIMIT = torch.finfo(torch.float32).max
_STRONGEST = 1e30  # what stronger penalties count as, or float32 would overflow


def penalize_repetition(logits: Tensor, places: Sequence[LogitPosition]) -> None:
    """Divide logits of tokens in prompt or output by the penalty, multiply negative ones by it.

    Changes `logits` [places, vocab] in place, in the rows whose `repetition_penalty` is not 1.
    """
    rows = [i for i, place in enumerate(places) if place.params.repetition_penalty != 1]
    if not rows:
        return
    penalties = [_within_limits(places[i].params.repetition_penalty) for i in rows]
    where, lengths = _listed(rows, [places[i].text() for i in rows], logits.shape[-1])
    penalty = _spread(penalties, lengths)
    flat = logits.view(-1)
    values = flat[where]
    values = torch.where(values > 0, values / penalty, values * penalty)
    flat[where] = values.clamp_(-_LIMIT, _LIMIT)


def penalize_frequency_and_presence(logits: Tensor, places: Sequence[LogitPosition]) -> None:
    """Take `frequency_penalty` per occurrence in the output, and `presence_penalty` once.

    Changes `logits` [places, vocab] in place, in the rows where either is not 0.
    """
    rows = [
        i
        for i, place in enumerate(places)
        if place.params.frequency_penalty or place.params.presence_penalty
    ]
    if not rows:
        return
    where, lengths = _listed(rows, [places[i].output() for i in rows], logits.shape[-1])
    frequency = _spread([places[i].params.frequency_penalty for i in rows], lengths)
    presence = _spread([places[i].params.presence_penalty for i in rows], lengths)
    counts = torch.zeros(logits.numel()).index_add_(0, where, torch.ones(len(where)))[where]
    flat = logits.view(-1)
    flat[where] = flat[where] - (frequency * counts + presence)


def _within_limits(penalty: float) -> float:
    return min(max(penalty, 1 / _STRONGEST), _STRONGEST)


def _listed(
    rows: Sequence[int], texts: Sequence[list[int]], vocab: int
) -> tuple[Tensor, list[int]]:
    """Every token of each row's text as an index into the flattened logits; the texts' lengths."""
    lengths = [len(text) for text in texts]
    ids = np.fromiter(chain.from_iterable(texts), np.int64, sum(lengths))
    return torch.from_numpy(ids + np.repeat(np.array(rows) * vocab, lengths)), lengths


def _spread(values: Sequence[float], lengths: Sequence[int]) -> Tensor:
    """Each row's value once per token of its text."""
    return torch.from_numpy(np.repeat(np.array(values, dtype=np.float32), lengths))
