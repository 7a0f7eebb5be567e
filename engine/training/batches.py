"""Batches: documents packed into rows of equal length.

Each row holds several short documents, and a mask hides every document from its neighbours. Batch
number ``n`` depends only on the seed and on ``n``, so a resumed training run sees the batches that an
uninterrupted one would have seen.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from engine.training.corpus import documents
from engine.training.tokenizer import IGNORED, encode_document

# The batch counts as full after this many documents that did not fit in any row.
_PATIENCE = 24


class Batch(NamedTuple):
    """``tokens`` and ``targets`` ``[rows, length]``; ``mask`` ``[rows, 1, length, length]``."""

    tokens: Tensor
    targets: Tensor
    mask: Tensor


def make_batch(tokenizer: Tokenizer, seed: int, number: int, rows: int, length: int) -> Batch:
    """Make batch ``number`` of a training run; documents longer than a row are skipped."""
    tokens = torch.zeros(rows, length, dtype=torch.long)
    targets = torch.full((rows, length), IGNORED, dtype=torch.long)
    owner = torch.full((rows, length), -1, dtype=torch.long)
    used = [0] * rows
    misses = 0
    for index, document in enumerate(documents(f"{seed}/{number}")):
        ids, next_ids = encode_document(tokenizer, document)
        row = next((r for r in range(rows) if used[r] + len(ids) <= length), None)
        if row is None:
            misses += 1
            if misses == _PATIENCE:
                break
            continue
        span = slice(used[row], used[row] + len(ids))
        tokens[row, span] = torch.tensor(ids)
        targets[row, span] = torch.tensor(next_ids)
        owner[row, span] = index
        used[row] += len(ids)
    same_document = owner[:, :, None] == owner[:, None, :]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    return Batch(tokens, targets, (same_document & causal)[:, None])
