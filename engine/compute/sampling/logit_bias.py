"""Logits changed at single tokens: a bias the client gave, and end tokens that come too early.

Only few tokens of the vocabulary are touched, so all rows' changes go into one sparse update.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.compute.sampling.logit_positions import LogitPosition

# Not minus infinity: where every token is forbidden, one has to be taken all the same.
_FORBIDDEN = torch.finfo(torch.float32).min


def add_bias(logits: Tensor, places: Sequence[LogitPosition]) -> None:
    """Add each request's `logit_bias` to its row of `logits` [places, vocab], in place."""
    rows: list[int] = []
    ids: list[int] = []
    biases: list[float] = []
    for i, place in enumerate(places):
        if bias := place.params.logit_bias:
            rows += [i] * len(bias)
            ids += bias.keys()
            biases += bias.values()
    if rows:
        where = (torch.tensor(rows), torch.tensor(ids))
        logits.index_put_(where, torch.tensor(biases, dtype=torch.float32), accumulate=True)


def forbid_early_ends(logits: Tensor, places: Sequence[LogitPosition]) -> None:
    """Forbid the end tokens where the output is shorter than `min_tokens`, in place."""
    rows: list[int] = []
    ids: list[int] = []
    for i, place in enumerate(places):
        if place.params.min_tokens and place.output_length < place.params.min_tokens:
            rows += [i] * len(place.request.end_ids)
            ids += place.request.end_ids
    if rows:
        logits[rows, ids] = _FORBIDDEN
