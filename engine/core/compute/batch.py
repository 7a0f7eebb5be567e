"""The input of one step: a flat batch of tokens, and the positions at which tokens are sampled.

Prefill chunks and decodes are concatenated without padding, because every operation except attention
treats tokens independently. For attention, rows with the same number of tokens and similar context
lengths form a group and share a call (`engine/core/runner.py`).

All request data is converted to tensors here, once per step. The model runs no Python per token.
vLLM's counterpart is `_prepare_inputs` in `vllm/v1/worker/gpu_model_runner.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.core.compute.device import CPU
from engine.core.runner import LogitPosition, Row, attention_groups, logit_positions


@dataclass(slots=True)
class Group:
    """Rows with the same number of tokens, adjacent in the flat batch, for one attention call.

    tokens        the group's slice of the flat batch
    query_len     number of tokens each row computes
    requests      [rows] ids of the requests
    seq_lens      [rows] number of tokens each row may see, including its own; ascending
    block_tables  [rows] block tables, each covering at least its row's `seq_lens`
    """

    tokens: slice
    query_len: int
    requests: list[int]
    seq_lens: list[int]
    block_tables: list[list[int]]


@dataclass(slots=True)
class Batch:
    """The flat batch of one step.

    token_ids        [tokens]
    positions        [tokens] each token's position in its own text
    slot_mapping     [tokens] the KV slot that each token's keys and values are written to
    logits_indices   [logits] tokens whose logits are needed: one for each entry of
                     `logit_positions`, then the prompt tokens to score, row by row
    has_drafts       whether any row has drafts
    logit_positions  where tokens are sampled, ordered by row, then sample, then draft
    groups           the attention groups, shortest rows first
    """

    token_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    logits_indices: Tensor
    has_drafts: bool
    logit_positions: list[LogitPosition]
    groups: list[Group]


def make_batch(rows: Sequence[Row], block_size: int, device: torch.device = CPU) -> Batch:
    """Lay out a step's rows, of which there must be at least one, with the tensors on `device`.

    A row is sampled after its last known token and after each of its drafts. Raises ValueError if a
    block table is too short for its row.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    slot_mapping: list[int] = []
    first_tokens = [0] * len(rows)  # index of each row's first token in the flat batch
    groups: list[Group] = []
    for members in attention_groups(rows):
        group = Group(slice(len(token_ids), 0), rows[members[0]].count, [], [], [])
        for i in members:
            row, block_table = rows[i], rows[i].request.block_table
            end = row.start + row.count
            if end > len(block_table) * block_size:
                raise ValueError(
                    f"request {row.request.id} has {len(block_table)} KV blocks and needs "
                    f"{-(-end // block_size)}"
                )
            first_tokens[i] = len(token_ids)
            known = end - len(row.drafts)
            token_ids += row.request.tokens[row.start : known]
            token_ids += row.drafts
            for p in range(row.start, end):
                positions.append(p)
                slot_mapping.append(block_table[p // block_size] * block_size + p % block_size)
            group.requests.append(row.request.id)
            group.seq_lens.append(end)
            group.block_tables.append(block_table)
        group.tokens = slice(group.tokens.start, len(token_ids))
        groups.append(group)

    sampled: list[int] = []
    scored: list[int] = []
    has_drafts = False
    positions_of_logits: list[LogitPosition] = []
    for row, first in zip(rows, first_tokens, strict=True):
        has_drafts = has_drafts or bool(row.drafts)
        last = first + row.count - 1 - len(row.drafts)
        for position in logit_positions(row):
            sampled.append(last + len(position.drafts))
            positions_of_logits.append(position)
        if row.request.params.prompt_logprobs is not None:
            scored += range(first, first + row.scored)

    return Batch(
        token_ids=torch.tensor(token_ids, device=device),
        positions=torch.tensor(positions, device=device),
        slot_mapping=torch.tensor(slot_mapping, device=device),
        logits_indices=torch.tensor(sampled + scored, dtype=torch.int64, device=device),
        has_drafts=has_drafts,
        logit_positions=positions_of_logits,
        groups=groups,
    )
