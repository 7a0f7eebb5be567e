"""Batches: documents packed into rows of equal length.

Documents are short and rows are full: each row holds several documents, one after the other, and
a mask keeps every document from seeing its neighbours. Batch number ``n`` depends on the seed and
on ``n`` alone, so an interrupted training goes on with exactly the batch it would have seen.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from engine.training.corpus import documents
from engine.training.tokenizer import IGNORED, encode_document

# After this many documents in a row that fit nowhere, the batch counts as full.
_PATIENCE = 24


class Batch(NamedTuple):
    """``tokens`` and ``targets`` ``[rows, length]``; ``mask`` ``[rows, 1, length, length]``."""

    tokens: Tensor
    targets: Tensor
    mask: Tensor


def make_batch(tokenizer: Tokenizer, seed: int, number: int, rows: int, length: int) -> Batch:
    """Batch ``number`` of the training with ``seed``; documents longer than a row are left out."""
    tokens = torch.zeros(rows, length, dtype=torch.long)
    targets = torch.full((rows, length), IGNORED, dtype=torch.long)
    owner = torch.full((rows, length), -1, dtype=torch.long)
    used = [0] * rows
    misses = 0
    for index, document in enumerate(documents(f"{seed}/{number}")):
        ids, wanted = encode_document(tokenizer, document)
        row = next((r for r in range(rows) if used[r] + len(ids) <= length), None)
        if row is None:
            misses += 1
            if misses == _PATIENCE:
                break
            continue
        place = slice(used[row], used[row] + len(ids))
        tokens[row, place] = torch.tensor(ids)
        targets[row, place] = torch.tensor(wanted)
        owner[row, place] = index
        used[row] += len(ids)
    same_document = owner[:, :, None] == owner[:, None, :]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    return Batch(tokens, targets, (same_document & causal)[:, None])
