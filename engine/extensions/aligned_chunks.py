"""Chunks of prompts that end where a linear layer's state can be found again.

A linear layer has a single state, which each token changes. Unlike the KV of a token, the state after
token 100 is lost as soon as token 101 is computed, unless it is kept in a block of its own. vLLM's mode
`align` keeps the states at the ends of steps, and lets the steps of a prompt end at block boundaries:

    prompt     block 0   block 1   block 2   block 3   bl
    steps      |------------------|-------------------|--|
    states                        x                   x      kept and findable

The last boundary of the prompt is one of them, because another request with the same prompt goes on
from there. Another is where the prompt leaves a cached one. Some kernels (Mamba 2) also write the state
at the last boundary inside a step, a *checkpoint*: then the last chunk of a prompt is not cut there.

Source: vLLM 0.32, `_mamba_block_aligned_split` in `vllm/v1/core/sched/scheduler.py`, where states are
found at whole blocks.
"""

from engine.core.request import Request
from engine.extensions.kv_groups import Group


def aligned_chunk(
    group: Group, request: Request, start: int, count: int, *, junction: int, longest: int
) -> int:
    """Return how many of a request's `count` tokens from `start` on are computed in one step.

    It is 0 if the step has too few tokens left to reach a block boundary.

    junction  the tokens after which its prompt leaves a cached one; 0: nowhere
    longest   the most tokens that a step computes of a prompt; no chunk of a longer block ends at
              its boundary, so such a block is computed in parts
    """
    prompt_end, size, end = _prompt_end(request), group.block_size, start + count
    if start >= prompt_end:
        return count
    last = (len(request.tokens) - 1) // size * size
    position = (prompt_end - 1) // size * size
    if end >= prompt_end and group.has_checkpoint(start, end, position):
        last = 0
    if end < prompt_end:
        boundary = end // size * size
        if boundary > start or size <= longest:
            end = boundary
    stops = [last]
    if start % size:
        stops.append(start // size * size + size)
    if start < junction < end:
        stops.append(start + (junction - start) // size * size)
    end = min((one for one in stops if start < one < end), default=end)
    return max(end - start, 0)


def leaves_checkpoint(
    group: Group, retention: int | None, request: Request, start: int, end: int
) -> bool:
    """Return whether a chunk leaves a state that is kept at the last block boundary inside it.

    retention  see `KVGroups`
    """
    if not group.checkpoint or (retention == 0 and end < _prompt_end(request)):
        return False
    return group.has_checkpoint(start, end, (end - 1) // group.block_size * group.block_size)


def _prompt_end(request: Request) -> int:
    """Return where a request's prompt ends, or what it computes again after a preemption."""
    return max(request.prompt_length, len(request.tokens) - 1)
