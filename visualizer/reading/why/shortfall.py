"""The shortfall of the head of the queue: how much more would have let it start.

Everything is recomputed from the folded state, with the checks of `scheduling/scheduler.py`. There is
no answer if it would need a check that is not repeated here.
"""

from typing import Literal, NamedTuple

from engine.core.config import EngineConfig
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.vocabulary import RequestState


def is_scored(request: RequestState) -> bool:
    """Return whether a request's prompt is scored, so that it reads no cached prefix."""
    return request.sampling.get("prompt_logprobs") is not None


class CachedPrefix:
    """The cached prefix that a waiting request can use, found by comparing tokens.

    blocks    number of whole blocks found
    unlocked  how many of them no request has locked; evicting those would destroy what is about to
              be reused
    """

    def __init__(self, state: State, request: RequestState) -> None:
        size = state.block_size
        reads_cache = state.settings["prefix_cache"] != "off" and not is_scored(request)
        limit = (len(request.tokens) - 1) // size if reads_cache else 0
        path, length = state.cached_prefix(
            request.tokens[: limit * size], extra_key=request.extra_key
        )
        found = [[block, *node.copies] for node in path for block in node.blocks]
        usable = state.usable_prefix(found[: length // size])
        self.blocks = len(usable)
        self.unlocked = sum(state.refs[block] == 1 for block in usable)


class Shortfall(NamedTuple):
    """With `more` additional units, the head of the queue would have started.

    seat        in the batch (max_batch_size)
    free block  at the moment when the head was examined
    token       in the step's budget (token_budget), of which running requests get their share first
    """

    more: int
    unit: Literal["seat", "free block", "token"]


NEVER_DEFER = ("Fcfs", "Priority", "ShortestJobFirst", "Fair")  # policies, by class


def shortfall(
    state: State,
    event: v.StepScheduled,
    config: EngineConfig,
    classes: dict[str, str] | None,
) -> Shortfall | None:
    """Return what the blocked head of the queue would have needed to start, if that alone is enough.

    classes  as in run_started; None if they are not known

    There is no answer with SGLang's scheduler, without preemption or chunked prefill, or with a
    watermark, a limit on long prefills or several KV cache groups, because other checks decide then,
    or if the policy might then defer the head. Neither is there an answer for the token budget with
    asynchronous scheduling. Drafts do not count: they get only what is left.
    """
    blocked, has_groups = event.blocked, bool(state.source.get("groups"))
    if blocked is None or has_groups or not (config.preemption and config.chunked_prefill):
        return None
    if config.watermark or config.long_prefill_token_threshold or config.scheduler != "vllm":
        return None
    head = state.requests[blocked.request]
    prefix = CachedPrefix(state, head)
    length = len(head.tokens)
    lack = blocked.need - blocked.have
    not_deferred = classes is not None and classes.get("policy") in NEVER_DEFER
    tokens_left = config.token_budget - sum(row.count - len(row.drafts) for row in event.rows)
    available = state.free_before_drafts(event.rows) + state.evictable - prefix.unlocked

    def fits(tokens: int, blocks: int) -> bool:
        end = min(length, prefix.blocks * state.block_size + tokens)
        if config.admission == "whole" and tokens > 0:
            end = length
        return tokens > 0 and config.blocks_for(end) - prefix.blocks <= blocks

    match blocked.reason:
        case "batch_full" if not_deferred and fits(tokens_left, available):
            return Shortfall(lack, "seat")
        case "no_free_blocks" | "whole_sequence" if fits(tokens_left, available + lack):
            return Shortfall(lack, "free block")
        # With asynchronous scheduling, other requests may be skipped whatever the budget is.
        case "token_budget" if not_deferred and not config.async_scheduling:
            tokens, blocks = _running_first(state, event, config)
            if fits(lack, available - blocks):
                return Shortfall(tokens + lack, "token")
    return None


def _running_first(state: State, event: v.StepScheduled, config: EngineConfig) -> tuple[int, int]:
    """Return the tokens and blocks that running requests would get first from a larger budget."""
    planned = {row.request: row.start + row.count for row in event.rows}
    tokens = blocks = 0
    for id_ in state.running:
        request = state.requests[id_]
        tokens += len(request.tokens) - planned.get(id_, request.num_computed_tokens)
        blocks += config.blocks_for(len(request.tokens)) - len(request.block_table)
        writes_shared = (
            request.num_computed_tokens % config.block_size
            and state.refs[request.block_table[-1]] > 1
        )
        if id_ not in planned and writes_shared:
            blocks += 1  # for the copy
    return tokens, blocks
