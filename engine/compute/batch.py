"""One step's rows as one flat batch of tokens.

Prefill chunks and decodes stand one behind the other, without padding: everything but attention
treats tokens independently and does not care whose they are. For attention, rows that compute equally
many tokens form a group and share a call; all decodes are the group of one.

Everything that depends on requests is put into arrays here, once per step. From then on there is no
Python per token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.runner import Row


@dataclass(slots=True)
class Group:
    """Rows with equally many tokens, next to each other in the flat batch.

    tokens    where they are in the flat batch
    count     tokens each row computes
    contexts  [rows] tokens each row may see: what was computed before, and its own
    tables    [rows, blocks] block tables, filled up with zeros
    """

    tokens: slice
    count: int
    contexts: NDArray[np.int64]
    tables: NDArray[np.int64]


@dataclass(slots=True)
class Batch:
    """The flat batch.

    token_ids    [tokens]
    positions    [tokens] each token's place in its own text
    slots        [tokens] where its keys and values are written
    logit_rows   [logits] tokens whose logits are needed, row by row in the order of the rows given
    groups       for attention, shortest rows first
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    logit_rows: Tensor
    groups: list[Group]


def make_batch(rows: Sequence[Row], block_size: int) -> Batch:
    """Lay out a step's rows, of which there must be at least one.

    A row that samples needs the logits of its last token, and one more for each draft: the logits
    after a draft say what comes next if the draft was right. A row whose prompt is scored needs those
    before each token it scores, and they come first.
    """
    order = sorted(range(len(rows)), key=lambda i: rows[i].count)
    ordered = [rows[i] for i in order]
    counts = np.array([row.count for row in ordered])
    starts = np.array([row.start for row in ordered])
    contexts = starts + counts
    tables = _block_tables(ordered, contexts, block_size)

    ends = np.cumsum(counts)
    firsts = ends - counts
    row_of = np.repeat(np.arange(len(rows)), counts)
    positions = np.arange(ends[-1]) + (starts - firsts)[row_of]
    slots = tables[row_of, positions // block_size] * block_size + positions % block_size
    token_ids = np.array([token for row in ordered for token in row.token_ids()])

    logit_rows: list[int] = []
    place = {i: p for p, i in enumerate(order)}
    for i, row in enumerate(rows):
        end = int(ends[place[i]])
        logit_rows += range(end - row.count, end - row.count + row.scored)
        if row.samples:
            logit_rows += range(end - 1 - len(row.drafts), end)

    groups = []
    bounds = [0, *(np.flatnonzero(np.diff(counts)) + 1).tolist(), len(rows)]
    for low, high in pairwise(bounds):
        count = int(counts[low])
        first = int(firsts[low])
        tokens = slice(first, first + count * (high - low))
        groups.append(Group(tokens, count, contexts[low:high], tables[low:high]))
    return Batch(
        token_ids=torch.from_numpy(token_ids),
        positions=torch.from_numpy(positions),
        slots=torch.from_numpy(slots),
        logit_rows=torch.tensor(logit_rows, dtype=torch.int64),
        groups=groups,
    )


def _block_tables(
    rows: Sequence[Row], contexts: NDArray[np.int64], block_size: int
) -> NDArray[np.int64]:
    """[rows, blocks]: the blocks that hold each row's context. Raises ValueError if one is short."""
    needed = -(-contexts // block_size)
    tables = np.zeros((len(rows), int(needed.max())), dtype=np.int64)
    for i, (row, blocks) in enumerate(zip(rows, needed.tolist(), strict=True)):
        if len(row.request.table) < blocks:
            raise ValueError(
                f"request {row.request.id} has {len(row.request.table)} KV blocks and needs {blocks}"
            )
        tables[i, :blocks] = row.request.table[:blocks]
    return tables
