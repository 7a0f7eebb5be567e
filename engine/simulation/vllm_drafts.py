"""Schedule drafts as vLLM does: with a request's next token, before the requests behind it.

    follow_vllm(engine, drafter, drafting)

So drafts compete for the token budget, and may evict and preempt. vLLM also keeps the blocks of
rejected drafts, and makes a block that accepted drafts have filled findable only when its request is
scheduled again. A draft model writes KV behind the target's tokens, so each row gets `lookahead` slots
more, and its input may have a token more, so each row takes `slots` more of the budget. A request that
is admitted beside decoding ones to compute a single token is padded with drafts that are rejected, so
that all rows have one shape; if they do not fit in the budget, it has to wait.

Source: `schedule()` in `vllm/v1/core/sched/scheduler.py`, `allocate_slots` in
`vllm/v1/core/kv_cache_manager.py`, `num_lookahead_tokens` in `vllm/config/vllm.py` and
`max_num_new_slots_for_drafting` in `vllm/config/speculative.py`, vLLM 0.32.

Differs from vLLM, whose rows end at `max_model_len`, which the recording does not have.
"""

from collections.abc import Sequence
from typing import Any

from engine.core.cache.prefix_cache import PrefixMatch
from engine.core.engine import Engine
from engine.core.request import Request
from engine.core.scheduling.scheduler import Plan, Scheduler
from engine.core.speculation.drafter import Drafter
from engine.extensions.grouped_cache import GroupedCache, GroupedScheduler
from engine.simulation.recorded_drafts import Drafting

_NO_TOKEN = -1  # a padded draft, which is never accepted


def follow_vllm(engine: Engine, drafter: Drafter, drafting: Drafting) -> None:
    """Let an engine schedule a drafter's drafts as vLLM does."""
    is_grouped = isinstance(engine.scheduler, GroupedScheduler)
    kind = _GroupedVllmDrafts if is_grouped else _VllmDrafts
    scheduler = kind(engine.scheduler, drafter, drafting)
    engine.loop.scheduler = engine.scheduler = scheduler
    _keep_blocks(engine, drafting.lookahead)


def _keep_blocks(engine: Engine, lookahead: int) -> None:
    """Let an engine's cache allocate and keep blocks as vLLM's does."""
    cache = engine.cache

    def blocks_needed(request: Request, count: int) -> int:
        end = request.num_scheduled_tokens + count + lookahead
        missing = -(-end // cache.block_size) - len(request.block_table)
        return max(0, missing) + cache.writes_shared_block(request)

    def nothing(_request: Request) -> None:
        """Keep all blocks; those of accepted drafts are cached with the request's next row."""

    methods: dict[str, Any] = {"blocks_needed": blocks_needed, "trim": nothing}
    if isinstance(cache, GroupedCache):
        methods = {"lookahead": lookahead, "trim": nothing}
    if engine.config.prefix_cache == "hash":  # else only this makes blocks findable
        methods["cache_computed"] = nothing
    vars(cache).update(methods)


class _VllmDrafts(Scheduler):
    """A scheduler whose plans' `budget` is what the next row may have, without its slots."""

    def __init__(self, scheduler: Scheduler, drafter: Drafter, drafting: Drafting) -> None:
        vars(self).update(vars(scheduler))
        self.speculation = None
        self._drafter = drafter
        self._padded, self._lookahead = drafting.length, drafting.lookahead
        self._slots = drafting.slots
        self._decoding = set[int]()  # running requests that have had a token since their admission
        self._has_running = False  # whether a request that was running has a row in this step
        self._has_prefill = False  # whether one of them computes its prompt
        self._pads = False  # whether the request that is about to be admitted is padded

    def _schedule_running(self, plan: Plan) -> bool:
        """See `Scheduler._schedule_running`."""
        preempted = set[int]()
        self._decoding &= {request.id for request in self.running}
        self._has_prefill = preempted_itself = False
        plan.budget -= self._slots
        for request in tuple(self.running):
            if request.id in preempted:
                continue
            if plan.budget <= 0 or preempted_itself:
                reason = "after_preemption" if preempted_itself else "token_budget"
                plan.skipped.append((request.id, reason))
                continue
            own = request.num_unscheduled_tokens
            if own == 0:
                plan.skipped.append((request.id, "awaits_token"))
                continue
            decodes = request.id in self._decoding
            drafts = self._drafter.propose(request) if decodes else []
            count = min(own + len(drafts), plan.budget, plan.longest)
            while (copies := self.cache.allocate_slots(request, count)) is None:
                victim = self.policy.victim(tuple(self.running), request)
                self._preempt(plan, victim, request)
                preempted.add(victim.id)
                if victim is request:
                    preempted_itself = True
                    break
            else:
                self._has_prefill |= not decodes
                self._add_own(plan, request, min(own, count), copies)
                _append(plan, drafts[: max(0, count - own)])
        self._has_running = bool(plan.rows)
        plan.budget = max(0, plan.budget)
        return bool(preempted)

    def _preempt(self, plan: Plan, victim: Request, needed_by: Request) -> None:
        plan.budget += self._slots * any(row.request is victim for row in plan.rows)
        super()._preempt(plan, victim, needed_by)
        self._decoding.discard(victim.id)

    def _add_own(
        self, plan: Plan, request: Request, count: int, copies: Sequence[tuple[int, int]]
    ) -> None:
        """Add a row without drafts."""
        super()._add_row(plan, request, count, copies)
        plan.budget -= self._slots
        if plan.rows[-1].samples:
            self._decoding.add(request.id)

    def _memory_obstacle(
        self, plan: Plan, request: Request, match: PrefixMatch
    ) -> tuple[Any, int, int] | None:
        """See `Scheduler._memory_obstacle`."""
        size = self.config.block_size
        cached = len(match.blocks) * size
        missing = len(request.tokens) - cached
        self._pads = missing == 1 and not self._has_prefill and (self._has_running or cached > 0)
        if self._pads and 1 + self._padded > plan.budget:
            return "token_budget", 1 + self._padded, plan.budget
        if (obstacle := super()._memory_obstacle(plan, request, match)) is not None:
            return obstacle
        count = min(missing, plan.budget, plan.longest) + self._padded * self._pads
        need = self._blocks_needed(request, match, cached + count + self._lookahead)
        have = self.cache.num_available_blocks_beside(match)
        have -= self._watermark_blocks * bool(self.running)
        return ("no_free_blocks", need, have) if need > have else None

    def _blocks_needed(self, request: Request, match: PrefixMatch, tokens: int) -> int:
        """Return the blocks that a request of so many tokens needs beside a match."""
        return self.config.blocks_for(tokens) - len(match.blocks)

    def _add_row(
        self, plan: Plan, request: Request, count: int, copies: Sequence[tuple[int, int]]
    ) -> None:
        """Add the row of a request that has just been admitted."""
        self._add_own(plan, request, count, copies)
        if self._pads:
            _append(plan, [_NO_TOKEN] * self._padded)
            self.cache.allocate_slots(request, plan.rows[-1].count, self._padded)
        plan.budget = max(0, plan.budget)


class _GroupedVllmDrafts(_VllmDrafts, GroupedScheduler):
    """The same for several KV cache groups, each of which gets the blocks of a row at once."""

    cache: GroupedCache

    def _admit(self, request: Request, match: PrefixMatch) -> None:
        super()._admit(request, match)
        self.cache.lookahead = self._lookahead + self._padded * self._pads

    def _add_row(
        self, plan: Plan, request: Request, count: int, copies: Sequence[tuple[int, int]]
    ) -> None:
        self.cache.lookahead = self._lookahead
        super()._add_row(plan, request, count, copies)

    def _blocks_needed(self, request: Request, match: PrefixMatch, tokens: int) -> int:
        return self.cache.blocks_to_admit(request, len(match.blocks), tokens, tokens)


def note_decoding(scheduler: Scheduler, request: Request) -> None:
    """Note that a request which has just been restored has had a token since it was admitted."""
    if isinstance(scheduler, _VllmDrafts):
        scheduler._decoding.add(request.id)


def _append(plan: Plan, drafts: list[int]) -> None:
    """Append drafts to the latest row of a plan."""
    row = plan.rows[-1]
    row.drafts = drafts
    row.count += len(drafts)
    plan.budget -= len(drafts)
