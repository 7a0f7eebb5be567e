"""The input of one step: a flat batch of tokens, and the positions at which tokens are sampled.

Prefill chunks and decodes are concatenated without padding, because every operation except attention
treats tokens independently. For attention, rows with the same number of tokens and similar context
lengths form a group and share a call (`engine/core/runner.py`).

All request data is converted to tensors once per step, by `make_batch` in `torch_runner.py`, so the
model runs no Python per token.
"""

from dataclasses import dataclass

from torch import Tensor

from engine.core.runner import LogitPosition


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
