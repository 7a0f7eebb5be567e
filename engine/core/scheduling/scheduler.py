"""The scheduler: how many tokens each request computes in the next step, and why others wait.

There is no prefill phase and no decode phase. Each request has tokens that are not computed yet,
and each step hands out `token_budget` tokens: first to running requests, then to waiting ones in
the policy's order. Drafts get the tokens that are left. Chunked prefill and mixed batches follow from
this rule, and a seat that becomes free in the batch is filled in the next step.

Memory is allocated optimistically. When a running request needs a block and none is available, a
victim gives back all of its blocks and returns to the front of the queue, to be recomputed later.

Source: vLLM V1, `schedule()` in `vllm/v1/core/sched/scheduler.py`.

Differs from vLLM, which schedules drafts together with a request's next token, so drafts may evict
and preempt. Here drafts use only free blocks and the rest of the budget.

`EngineConfig.like("vllm")` sets vLLM's admission (`admission="whole"`) and its prefix cache.

Differs from SGLang, which has both phases: it runs prefill and decode in separate batches unless
`--enable-mixed-chunk` is set. `EngineConfig.like("sglang")` has that scheduler
(`engine/extensions/sglang_scheduler.py`).
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from engine.core.cache.kv_cache_manager import KVCacheManager
from engine.core.cache.prefix_cache import PrefixMatch
from engine.core.config import EngineConfig
from engine.core.log import vocabulary as v
from engine.core.part_errors import RECOVERABLE, PartError
from engine.core.request import Request
from engine.core.runner import Row
from engine.core.scheduling.admission import max_blocks
from engine.core.scheduling.policy import AdmissionLimits, Policy, hook
from engine.core.scheduling.waiting_queue import WaitingQueue
from engine.core.speculation.drafter import Speculation

_SEATS = attrgetter("num_seqs")
_Obstacle = tuple[v.WaitingReason, int, int]  # reason, need, have


@dataclass(slots=True, eq=False)
class Plan:
    """The work of one step.

    step     the number of the step
    rows     what the step computes, in order
    copies   block copies before the forward pass: (request, source, destination)
    budget   tokens left to hand out
    longest  the most tokens of one request, without its drafts
    skipped  requests that get no tokens, with the reason
    error    the mistake in a policy, drafter or eviction order that ended scheduling early; the
             plan then has no rows
    expert_loads  the expert loads of the forward pass, once it has run; see `Runner`
    draft_error   why the draft model failed after the forward pass, usually ""
    """

    step: int = 0
    rows: list[Row] = field(default_factory=list)
    copies: list[tuple[Request, int, int]] = field(default_factory=list)
    budget: int = 0
    longest: int = 0
    skipped: list[tuple[int, str]] = field(default_factory=list)
    error: PartError | None = None
    expert_loads: Sequence[Sequence[int]] = ()
    draft_error: str = ""


class Scheduler:
    """Schedules one step at a time.

    running  running requests in order of admission
    plans    the scheduled steps that have not finished: at most one, or two if scheduling is
             asynchronous
    step     the number of the step that is scheduled next or was scheduled last
    on_served  the policy's method, or None if it keeps no accounts
    align      shortens a chunk of a prompt for linear layers; see `engine/extensions/aligned_chunks.py`
    adapters   LoRA adapters, once there has been one; see `engine/extensions/adapters.py`
    """

    def __init__(
        self,
        config: EngineConfig,
        policy: Policy,
        cache: KVCacheManager,
        emit: Callable[[v.Event], None],
        speculation: Speculation | None,
    ) -> None:
        self.config = config
        self.policy = policy
        self.cache = cache
        self.waiting = WaitingQueue(policy, cache.lookup)
        self.running: list[Request] = []
        if cache.pages is not None:
            cache.pages.running = self.running
        self.plans: list[Plan] = []
        self.step = 0
        self._emit = emit
        self.speculation = speculation
        self._static_batch: set[int] = set()  # roots of the requests in the current static batch
        self._admits, self._defers = hook(policy, "admit"), hook(policy, "defer")
        self.on_served = hook(policy, "on_served")
        self.adapters: Any = None
        self.align: Callable[[Request, int], int] | None = None
        # As in vLLM, whose null block counts, too.
        self._watermark_blocks = int(config.watermark * (config.num_blocks + 1))

    def schedule(self) -> Plan:
        """Hand out one step's tokens, update requests, queue and cache, and emit each change.

        If a part that the user supplied makes a mistake, the plan has the `error` and no rows.
        Admissions, preemptions and block copies stay in effect, because they are already in the log.
        """
        budget = longest = self.config.token_budget
        if threshold := self.config.long_prefill_token_threshold:
            longest = self._longest_chunk(threshold, budget)
        plan = Plan(self.step, budget=budget, longest=longest)
        try:
            preempted = self._schedule_running(plan)
            running_rows = list(plan.rows)  # newly admitted requests have no drafts yet
            blocked = self._admit_waiting(plan, after_preemption=preempted)
            if self.speculation is not None:
                self._add_drafts(plan, running_rows, self.speculation)
        except RECOVERABLE as error:
            self.cache.withdraw([row.request for row in plan.rows])
            for row in plan.rows:
                self.cache.trim(row.request)
            return Plan(self.step, copies=plan.copies, error=error)
        rows = []
        for row in plan.rows:
            request = row.request
            request.num_in_flight_tokens += row.count
            if row.samples:
                request.num_output_placeholders += 1
            rows.append(v.ScheduledRow(request.id, row.start, row.count, row.drafts))
        self.plans.append(plan)
        self._emit(v.StepScheduled(rows, plan.skipped, blocked))
        return plan

    def _longest_chunk(self, threshold: int, budget: int) -> int:
        """Return the most tokens that a request may compute, which is all if it is the only one."""
        requests = len(self.running) + len(self.waiting)
        if self.config.long_prefill_token_threshold_adaptive:
            threshold = max(threshold, budget // max(requests, 1))
        return min(threshold, budget) if requests > 1 else budget

    @property
    def plan(self) -> Plan:
        """The plan of the current step, or an empty plan before scheduling and after the step."""
        if self.plans and self.plans[-1].step == self.step:
            return self.plans[-1]
        return Plan(self.step)

    def reserved_blocks(self) -> int:
        """Count the blocks that running requests may still allocate and are guaranteed to get.

        With preemption on, nothing is guaranteed. If several samples share a partly filled
        block, all but the last need one more block for their copy.
        """
        if self.config.preemption:
            return 0
        missing = sum(
            self._missing_blocks(request, len(request.block_table)) for request in self.running
        )
        shared = [
            request.block_table[-1]
            for request in self.running
            if self.cache.writes_shared_block(request)
        ]
        return missing + len(shared) - len(set(shared))

    # Running requests

    def _schedule_running(self, plan: Plan) -> bool:
        """Give each running request its next tokens. Return whether any request was preempted.

        A request that preempts itself ends the scheduling of running requests, as in vLLM. The step may
        then have no rows.
        """
        preempted: set[int] = set()
        preempted_itself = False
        for request in tuple(self.running):  # a copy, because victims leave the list
            if request.id in preempted:
                continue
            if plan.budget == 0 or preempted_itself:
                reason = "after_preemption" if preempted_itself else "token_budget"
                plan.skipped.append((request.id, reason))
                continue
            count = min(request.num_unscheduled_tokens, plan.budget, plan.longest)
            count = self.align(request, count) if self.align else count
            if count == 0:
                reason = "token_budget" if request.num_unscheduled_tokens else "awaits_token"
                plan.skipped.append((request.id, reason))
                continue
            # Recount the need after each victim: if a sibling leaves, a shared block needs no copy.
            while (copies := self.cache.allocate_slots(request, count)) is None:
                victim = self.policy.victim(tuple(self.running), request)
                self._preempt(plan, victim, request)
                preempted.add(victim.id)
                if victim is request:
                    preempted_itself = True
                    break
            else:
                self._add_row(plan, request, count, copies)
        return bool(preempted)

    def _preempt(self, plan: Plan, victim: Request, needed_by: Request) -> None:
        self.cache.withdraw([victim])
        self.waiting.add(victim, front=True)  # this comes first because the policy may raise
        refunded = sum(row.count for row in plan.rows if row.request is victim)
        plan.budget += refunded
        plan.rows = [row for row in plan.rows if row.request is not victim]
        plan.copies = [copy for copy in plan.copies if copy[0] is not victim]
        plan.skipped = [skip for skip in plan.skipped if skip[0] != victim.id]
        for other in self.plans:  # a step in flight may still deliver its token, but no KV
            other.rows = [row for row in other.rows if row.request is not victim]
        victim.forget_in_flight()
        self.running.remove(victim)
        self.cache.free(victim)
        victim.preemptions += 1
        self._emit(v.Preempted(victim.id, needed_by.id, refunded))

    def _add_row(
        self, plan: Plan, request: Request, count: int, copies: Sequence[tuple[int, int]]
    ) -> None:
        start = request.num_scheduled_tokens
        for source, destination in copies:
            plan.copies.append((request, source, destination))
        samples: list[int] = []
        if start + count == len(request.tokens) + request.num_output_placeholders:
            # With num_seqs > 1 the prompt is complete now, and the samples fork off in this step.
            samples = list(range(request.num_seqs)) if request.num_seqs > 1 else [request.sample]
        plan.rows.append(Row(request, start, count, samples=samples))
        plan.budget -= count

    def _add_drafts(self, plan: Plan, rows: Sequence[Row], speculation: Speculation) -> None:
        """Add drafts to rows, as far as the budget and the free blocks allow."""
        for row in rows:
            drafts = speculation.drafts(row, plan.budget)
            if drafts:
                row.drafts = drafts
                row.count += len(drafts)
                copies = self.cache.allocate_slots(row.request, row.count, len(drafts))
                assert copies == [], "drafts get free blocks, after the row's own copy"
                plan.budget -= len(drafts)

    # Waiting requests

    def _admit_waiting(self, plan: Plan, *, after_preemption: bool) -> v.Blocked | None:
        """Admit requests in the policy's order, up to the first one that does not fit.

        That request blocks those behind it; otherwise a large request could wait forever while
        small ones overtake it. Requests that the policy defers do not block others. Returns the
        blocked request and the reason, or None if no request is blocked.
        """
        if not self.waiting:
            return None
        if self.config.batching == "static" and not self.running:
            self._form_static_batch()
        defers = self._defers
        if defers is not None and self.waiting.is_over_limit:
            defers = None
        admit, size = None, self.config.block_size
        seats = self.config.max_batch_size - sum(map(_SEATS, self.running))
        if self._admits is not None and not after_preemption:
            blocks = self.cache.num_available_blocks
            limits = AdmissionLimits(seats, plan.budget, blocks, size)
            with closing(self.waiting.in_order()) as candidates:
                admit = self._admits(candidates, limits)
        deferred = 0
        with closing(self.waiting.in_order()) as candidates:
            for request in candidates:
                obstacle: _Obstacle | None = ("after_preemption", 0, 0)
                if not after_preemption:
                    obstacle = self._batch_obstacle(plan, request, seats)
                if obstacle is None and self.adapters and self.adapters.lacks_slot(request):
                    plan.skipped.append((request.id, "adapter_slot"))
                    deferred += 1
                    continue
                # A policy may defer a request only while others compute, because every step must
                # make progress.
                if obstacle is None and defers is not None and plan.rows:
                    computing = [row.request for row in plan.rows]
                    if defers(request, self.cache.lookup, computing):
                        plan.skipped.append((request.id, "policy"))
                        deferred += 1
                        continue
                if obstacle is None:
                    match = self.cache.match_prefix(request)
                    obstacle = self._memory_obstacle(plan, request, match)
                    if obstacle is None and admit is not None and plan.rows:
                        obstacle = None if request in admit else ("policy", 0, 0)
                if obstacle is not None:
                    reason, need, have = obstacle
                    behind = len(self.waiting) - deferred - 1
                    return v.Blocked(request.id, reason, behind, need, have)
                self._admit(request, match)
                seats -= request.num_seqs
                count = min(request.num_unscheduled_tokens, plan.budget, plan.longest)
                count = self.align(request, count) if self.align else count
                copies = self.cache.allocate_slots(request, count)
                assert copies is not None, "an admitted request's first chunk fits"
                self._add_row(plan, request, count, copies)
        return None

    def _batch_obstacle(self, plan: Plan, request: Request, seats: int) -> _Obstacle | None:
        """Return why the batch lacks free seats or tokens for a request, or None if it has both."""
        if self.config.batching == "static" and request.root not in self._static_batch:
            return "static_batch", 0, 0
        if request.num_seqs > seats:
            return "batch_full", request.num_seqs, seats
        if plan.budget == 0:
            return "token_budget", 1, 0
        return None

    def _memory_obstacle(
        self, plan: Plan, request: Request, match: PrefixMatch
    ) -> _Obstacle | None:
        """Return why a request with this match is not admitted, or None if it is.

        The request's first chunk must fit or, with whole admission, all of its tokens. Without
        chunked prefill the first chunk is the whole prompt. A resumed request is an exception: it
        has grown since it was validated, so its first chunk is limited to the budget of a whole
        step.
        """
        cached = len(match.blocks) * self.config.block_size
        missing = len(request.tokens) - cached
        tokens = 1 if self.config.chunked_prefill else min(missing, plan.longest)
        if tokens > plan.budget:
            return "token_budget", tokens, plan.budget
        whole = self.config.admission == "whole"
        end = cached + (missing if whole else min(missing, plan.budget, plan.longest))
        need = -(-end // self.config.block_size) - len(match.blocks)
        have = self.cache.num_available_blocks_beside(match)
        if self.running:
            have -= self._watermark_blocks
        if need > have:
            return "whole_sequence" if whole else "no_free_blocks", need, have
        if not self.config.preemption:
            need = self._missing_blocks(request, len(match.blocks))
            have -= self.reserved_blocks()
            if need > have:
                return "reserved_blocks", need, have
        return None

    def _admit(self, request: Request, match: PrefixMatch) -> None:
        """Move a request from the queue to the running requests."""
        key = list(self.waiting.key(request))
        resumed = request.preemptions > 0
        if self.adapters is not None:
            self.adapters.admit(request)
        self.cache.attach(request, match)  # this comes first because it may emit a split
        self.waiting.remove(request)
        self.running.append(request)
        blocks, hits = list(request.block_table), list(self.cache.hits)
        self._emit(v.Admitted(request.id, request.last_node, blocks, resumed, key, hits))
        if self.cache.tiers is not None:
            self.cache.tiers.fetch(request)
        if not resumed and self.on_served is not None:
            self.on_served(request, request.num_uncomputed_tokens, 0)

    def _missing_blocks(self, request: Request, held: int) -> int:
        """Count the blocks that a request with `held` blocks may still allocate for all its samples."""
        most = request.params.max_tokens
        return max_blocks(request.prompt_length, most, request.num_seqs, self.config) - held

    def _form_static_batch(self) -> None:
        """Form a new batch from the head of the queue; it runs until its last request finishes."""
        self._static_batch = set()
        seats = self.config.max_batch_size
        with closing(self.waiting.in_order()) as candidates:
            for request in candidates:
                seats -= request.num_seqs
                if seats < 0:
                    break
                self._static_batch.add(request.root)
