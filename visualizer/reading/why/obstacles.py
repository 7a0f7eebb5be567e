"""The checks of `scheduling/scheduler.py`, repeated on the folded state.

`obstacle` finds what keeps the head of the queue out, `lacks_blocks` which running request the memory
has no block for.
"""

from typing import NamedTuple

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.vocabulary import RequestState
from visualizer.reading.why.shortfall import CachedPrefix

Obstacle = tuple[v.WaitingReason, int, int]  # reason, need, have


class StepLimits(NamedTuple):
    """What is left when the head of the queue is examined; drafts get their share only afterwards.

    seats    in the batch
    tokens   in the step's budget; None if the log does not know the budget
    blocks   free and evictable
    drafted  blocks in block tables that only drafts need
    """

    seats: int
    tokens: int | None
    blocks: int
    drafted: int

    @classmethod
    def of(cls, state: State, rows: list[v.ScheduledRow]) -> "StepLimits":
        """Count from the state before step_scheduled. In a foreign engine, drafts are counted first."""
        settings = state.settings
        is_foreign = bool(state.source)
        free = len(state.free) if is_foreign else state.free_before_drafts(rows)
        used = sum(row.count - (0 if is_foreign else len(row.drafts)) for row in rows)
        budget = settings.get("token_budget")
        return cls(
            settings["max_batch_size"] - sum(state.requests[one].num_seqs for one in state.running),
            None if budget is None else budget - used,
            free + state.evictable,
            free - len(state.free),
        )


def obstacle(
    state: State, limits: StepLimits, head: RequestState, *, unscored: bool
) -> Obstacle | None:
    """Return why `head` is not admitted; None if no check that is known here fails.

    unscored  its prompt still has to be scored, so it cannot use the cache
    """
    is_spent = limits.tokens is not None and limits.tokens <= 0
    if is_spent and state.source:  # vLLM checks the budget first
        return "token_budget", 1, 0
    if head.num_seqs > limits.seats:
        return "batch_full", head.num_seqs, limits.seats
    if is_spent:
        return "token_budget", 1, 0
    prefix = CachedPrefix(state, head, unscored=unscored)
    return _memory_obstacle(state, limits, head, prefix)


def _memory_obstacle(
    state: State, limits: StepLimits, head: RequestState, prefix: CachedPrefix
) -> Obstacle | None:
    settings, size = state.settings, state.block_size
    missing = len(head.tokens) - prefix.blocks * size
    left = missing if limits.tokens is None else limits.tokens
    if not settings.get("chunked_prefill", True):
        tokens = min(missing, settings.get("token_budget") or missing)
        if tokens > left:
            return "token_budget", tokens, left
    whole = settings.get("admission") == "whole"
    end = prefix.blocks * size + (missing if whole else min(missing, left))
    need, have = -(-end // size) - prefix.blocks, limits.blocks - prefix.unlocked
    if need > have:
        return "whole_sequence" if whole else "no_free_blocks", need, have
    if not settings.get("preemption", True):
        need = _worst_case(state, head) - prefix.blocks
        have -= _reserved_blocks(state) + limits.drafted
        if need > have:
            return "reserved_blocks", need, have
    return None


def lacks_blocks(state: State) -> int | None:
    """Return the first running request, in order, whose next tokens do not fit into memory.

    Before step_scheduled, and before the preemption that follows from it. Requests that got blocks in
    this step lack nothing.
    """
    tokens, blocks = state.settings.get("token_budget"), len(state.free) + state.evictable
    for id_ in state.running:
        request = state.requests[id_]
        scheduled, count = _next_tokens(state, request)
        count = count if tokens is None else min(count, tokens)
        need = -(-(scheduled + count) // state.block_size) - len(request.block_table)
        if count and need >= 0:
            need += _writes_shared_block(state, request, scheduled)
        if need > blocks:
            return id_
        blocks -= max(0, need)
        tokens = None if tokens is None else tokens - count
    return None


def _next_tokens(state: State, request: RequestState) -> tuple[int, int]:
    """Return how many leading tokens are computed or being computed, and how many could follow.

    With asynchronous scheduling a step in flight will add a token, whose place is known already.
    """
    scheduled, length = request.num_computed_tokens, len(request.tokens)
    for step, rows in state.plans.items():
        for row in rows:
            if row.request == request.id and step != state.step:
                scheduled += row.count
                length += row.start + row.count >= length
    if length > len(request.tokens):
        is_last = length - request.prompt_length >= request.max_tokens
        if is_last or request.num_seqs > 1:
            return scheduled, 0
    return scheduled, max(0, length - scheduled)


def _writes_shared_block(state: State, request: RequestState, scheduled: int) -> bool:
    index, filled = divmod(scheduled, state.block_size)
    if not filled or index >= len(request.block_table):
        return False
    block = request.block_table[index]
    return state.refs[block] > 1 and block not in state.node_of


def _worst_case(state: State, request: RequestState) -> int:
    """Count the blocks of a request and of the samples that will fork off it, at their longest."""
    size = state.block_size
    one = -(-(request.prompt_length + request.max_tokens - 1) // size)
    shared = request.prompt_length // size
    return shared + request.num_seqs * (one - shared)


def _reserved_blocks(state: State) -> int:
    """Count the blocks that running requests may still allocate when nothing is preempted."""
    running = [state.requests[one] for one in state.running]
    missing = sum(_worst_case(state, one) - len(one.block_table) for one in running)
    shared = [
        one.block_table[-1]
        for one in running
        if one.block_table and _writes_shared_block(state, one, _next_tokens(state, one)[0])
    ]
    return missing + len(shared) - len(set(shared))
