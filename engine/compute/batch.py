"""One step's rows as one flat batch of tokens.

Prefill chunks and decodes stand one behind the other, without padding: everything but attention
treats tokens independently and does not care whose they are. For attention, rows that compute equally
many tokens and have similar contexts form a group and share a call (`engine/runner.py`).

Everything that depends on requests is put into tensors here, once per step. From then on there is no
Python per token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.runner import Row, attention_groups


@dataclass(slots=True)
class Group:
    """Rows with equally many tokens, next to each other in the flat batch.

    tokens    where they are in the flat batch
    count     tokens each row computes
    contexts  [rows] tokens each row may see: what was computed before, and its own; ascending
    tables    [rows] block tables, which hold at least the context
    """

    tokens: slice
    count: int
    contexts: list[int]
    tables: list[list[int]]


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

    Raises ValueError if a block table is too short for its row.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    groups: list[Group] = []
    firsts = [0] * len(rows)  # each row's first token in the flat batch
    for members in attention_groups(rows):
        first, count = len(token_ids), rows[members[0]].count
        contexts: list[int] = []
        tables: list[list[int]] = []
        for i in members:
            row, table = rows[i], rows[i].request.block_table
            end = row.start + count
            if end > len(table) * block_size:
                raise ValueError(
                    f"request {row.request.id} has {len(table)} KV blocks and needs "
                    f"{-(-end // block_size)}"
                )
            firsts[i] = len(token_ids)
            token_ids += row.token_ids()
            positions += range(row.start, end)
            slots += [
                table[p // block_size] * block_size + p % block_size for p in range(row.start, end)
            ]
            contexts.append(end)
            tables.append(table)
        groups.append(Group(slice(first, len(token_ids)), count, contexts, tables))

    logit_rows: list[int] = []
    for row, first in zip(rows, firsts, strict=True):
        end = first + row.count
        logit_rows += range(first, first + row.scored)
        if row.samples:
            logit_rows += range(end - 1 - len(row.drafts), end)

    return Batch(
        token_ids=torch.tensor(token_ids),
        positions=torch.tensor(positions),
        slots=torch.tensor(slots),
        logit_rows=torch.tensor(logit_rows, dtype=torch.int64),
        groups=groups,
    )
