"""The scheduler: who computes how many tokens in the next step, and why the others do not.

There is no prefill phase and no decode phase. Every request has tokens that are not computed yet,
and each step hands out `token_budget` tokens: running requests first, then waiting ones in the
policy's order; drafts get what is left. What follows from that: long prompts are cut into chunks,
prefill and decode share a forward pass, and a place that falls free is filled in the very next step.

Memory is promised optimistically. When a running request needs a block and none can be had, a
victim gives back everything and returns to the front of the queue, to be recomputed later.

Source: vLLM V1, `schedule()` in `vllm/v1/core/sched/scheduler.py`. One difference: a request that
preempts itself ends vLLM's loop; here the loop goes on, because the blocks it gave back may serve
those after it.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from engine.cache.kv_cache_manager import KVCacheManager
from engine.cache.radix_tree import Match
from engine.config import EngineConfig
from engine.events.vocabulary import (
    Admitted,
    Blocked,
    Event,
    Preempted,
    ScheduledRow,
    StepScheduled,
    WaitingReason,
)
from engine.part_errors import PolicyError, ask, named
from engine.runner import Row
from engine.scheduling.admission import worst_case
from engine.scheduling.policy import AdmissionLimits, Policy
from engine.scheduling.request import Request
from engine.scheduling.waiting_queue import WaitingQueue
from engine.speculation.drafter import Drafter, Speculation

_Obstacle = tuple[WaitingReason, int, int]  # reason, need, have


@dataclass(slots=True)
class Plan:
    """What one step computes: rows in order, and block copies (request, source, destination)."""

    rows: list[Row] = field(default_factory=list)
    copies: list[tuple[Request, int, int]] = field(default_factory=list)

    @property
    def block_copies(self) -> list[tuple[int, int]]:
        """(source, destination) of each copy, as a runner takes them."""
        return [(source, block) for _, source, block in self.copies]


class Scheduler:
    """Decides one step at a time. `running` is in order of admission."""

    def __init__(
        self,
        config: EngineConfig,
        policy: Policy,
        cache: KVCacheManager,
        emit: Callable[[Event], None],
        *,
        drafter: Drafter | None,
        vocab_size: int,
    ) -> None:
        self.config = config
        self.policy = policy
        self.cache = cache
        self.waiting = WaitingQueue(policy, cache.tree)
        self.running: list[Request] = []
        self._emit = emit
        self._speculation = Speculation(drafter, cache, vocab_size)
        self._static_batch: set[int] = set()  # roots of the requests in the current static batch
        self.plan = Plan()  # of the current step; empty between steps and while one is made
        self._plan = self.plan
        self._budget = 0

    def schedule(self) -> Plan:
        """Hand out one step's tokens. Changes requests, queue and cache; emits every change.

        Raises one of `part_errors.RECOVERABLE` for a mistake of a policy, drafter or eviction order;
        call `abandon` then.
        """
        self._plan = Plan()
        self._budget = self.config.token_budget
        skipped, preempted = self._schedule_running()
        may_draft = tuple(
            self._plan.rows
        )  # a request that is admitted gets drafts from its next step
        blocked, deferred = self._admit_waiting(after_preemption=preempted)
        self._add_drafts(may_draft)
        skipped += [(request.id, "policy") for request in deferred]
        rows = [
            ScheduledRow(row.request.id, row.start, row.count, row.drafts)
            for row in self._plan.rows
        ]
        self.plan = self._plan
        self._emit(StepScheduled(rows, skipped, blocked))
        return self.plan

    def close_plan(self) -> None:
        """The step is over: nobody who took part in it is held on to."""
        self.plan = self._plan = Plan()

    def reserved_blocks(self) -> int:
        """Count the blocks that running requests may still allocate and must get.

        With preemption on that is none. Samples that share a partly filled block need a copy each,
        except for the last one.
        """
        if self.config.preemption:
            return 0
        ahead = sum(self._blocks_to_come(one, held=len(one.block_table)) for one in self.running)
        shared = [
            one.block_table[-1] for one in self.running if self.cache.writes_shared_block(one)
        ]
        return ahead + len(shared) - len(set(shared))

    def abandon(self) -> Plan:
        """Take back what an unfinished plan promised; who was admitted or preempted stays so.

        Returns the plan: its block copies are in the log already, so they have to run even though
        nobody computes.
        """
        plan, self._plan = self._plan, Plan()
        for row in plan.rows:
            self.cache.trim(row.request)
        return plan

    # Running requests

    def _schedule_running(self) -> tuple[list[tuple[int, str]], bool]:
        """Give every running request its next tokens, oldest admission first.

        Returns the requests that got nothing, with reasons, and whether anybody was preempted.
        """
        preempted: set[int] = set()
        skipped: list[tuple[int, str]] = []
        for request in tuple(self.running):  # a copy: victims leave while we go through it
            if request.id in preempted:
                continue
            if self._budget == 0:
                skipped.append((request.id, "token_budget"))
                continue
            count = min(request.num_uncomputed_tokens, self._budget)
            preempted.update(self._preempt_until_fits(request, count))
            if request.id not in preempted:
                self._add_row(request, count)
        return skipped, bool(preempted)

    def _preempt_until_fits(self, request: Request, count: int) -> list[int]:
        """Take blocks from others until `count` more tokens of `request` fit into memory.

        What is needed is counted anew after each victim: when a sibling of a shared block leaves,
        the copy that was needed before is needed no more. Returns the victims' ids.
        """
        victims: list[int] = []
        while self.cache.blocks_needed(request, count) > self.cache.num_available_blocks:
            victim = ask(PolicyError, self.policy.victim, tuple(self.running), request)
            if victim not in self.running:
                what = f"request {victim.id}" if isinstance(victim, Request) else repr(victim)
                raise PolicyError(f"{named(self.policy, 'victim')} chose one not running: {what}")
            self._preempt(victim, needed_by=request)
            victims.append(victim.id)
            if victim is request:
                break
        return victims

    def _preempt(self, victim: Request, needed_by: Request) -> None:
        self.waiting.add_front(victim)  # first: a policy may raise in it
        refunded = sum(row.count for row in self._plan.rows if row.request is victim)
        self._budget += refunded
        self._plan.rows = [row for row in self._plan.rows if row.request is not victim]
        self._plan.copies = [copy for copy in self._plan.copies if copy[0] is not victim]
        self.running.remove(victim)
        self.cache.free(victim)
        victim.preemptions += 1
        self._emit(Preempted(victim.id, needed_by.id, refunded))

    def _add_row(self, request: Request, count: int) -> None:
        start = request.num_computed_tokens
        copy = self.cache.allocate_slots(request, count)
        if copy is not None:
            self._plan.copies.append((request, *copy))
        samples: list[int] = []
        if start + count == len(request.tokens):
            # slots > 1 means that samples are still to fork off: the prompt is complete now.
            samples = list(range(request.num_seqs)) if request.num_seqs > 1 else [request.sample]
        self._plan.rows.append(Row(request, start, count, samples=samples))
        self._budget -= count

    def _add_drafts(self, rows: Sequence[Row]) -> None:
        """Lengthen rows by drafts, with what is left of the budget and free blocks."""
        for row in rows:
            drafts = self._speculation.drafts(row, self._budget)
            if drafts:
                row.drafts = drafts
                row.count += len(drafts)
                self.cache.allocate_slots(row.request, row.count)
                self._budget -= len(drafts)

    # Waiting requests

    def _admit_waiting(self, *, after_preemption: bool) -> tuple[Blocked | None, list[Request]]:
        """Admit from the queue, in the policy's order, until somebody does not fit.

        The first who does not fit blocks those behind, or a large request would wait forever while
        small ones pass. Those whom the policy puts off block nobody. Returns who is blocked and why,
        None when nobody is, and who was put off.
        """
        deferred: list[Request] = []
        may_defer = not self.waiting.is_over_limit  # as the queue stands before anybody leaves it
        if self.config.batching == "static" and not self.running:
            self._form_static_batch()
        chosen = self._chosen() if self.waiting and not after_preemption else None
        with closing(self.waiting.in_order()) as candidates:
            for request in candidates:
                obstacle: _Obstacle | None = ("after_preemption", 0, 0)
                if not after_preemption:
                    obstacle = self._no_place(request)
                if obstacle is None and may_defer and self._is_deferred(request):
                    deferred.append(request)
                    continue
                if obstacle is None:
                    match = self.cache.match_prefix(request)
                    obstacle = self._no_room(request, match)
                left_out = chosen is not None and request not in chosen
                if obstacle is None and left_out and self._plan.rows:
                    obstacle = ("policy", 0, 0)
                if obstacle is not None:
                    reason, need, have = obstacle
                    behind = len(self.waiting) - len(deferred) - 1
                    return Blocked(request.id, reason, behind, need, have), deferred
                self._admit(request, match)
        return None, deferred

    def _chosen(self) -> Collection[Request] | None:
        """Those of the queue whom the policy lets join, if they fit; None: everybody."""
        places = self.config.max_batch_size - sum(other.num_seqs for other in self.running)
        limits = AdmissionLimits(
            places, self._budget, self.cache.num_available_blocks, self.config.block_size
        )
        with closing(self.waiting.in_order()) as waiting:
            chosen = ask(PolicyError, self.policy.admit, waiting, limits)
        if not isinstance(chosen, Collection | None):
            what = f"a collection of requests or None, got {chosen!r}"
            raise PolicyError(f"{named(self.policy, 'admit')} must return {what}")
        return chosen

    def _is_deferred(self, request: Request) -> bool:
        if not self._plan.rows:
            return False  # somebody has to compute, or the step would be in vain
        computing = [row.request for row in self._plan.rows]
        return ask(PolicyError, self.policy.defer, request, self.cache.tree, computing)

    def _no_place(self, request: Request) -> _Obstacle | None:
        """What keeps a request out of the batch, memory aside."""
        if self.config.batching == "static" and request.root not in self._static_batch:
            return "static_batch", 0, 0
        places = self.config.max_batch_size - sum(other.num_seqs for other in self.running)
        if request.num_seqs > places:
            return "batch_full", request.num_seqs, places
        if self._budget == 0:
            return "token_budget", 1, 0
        return None

    def _no_room(self, request: Request, match: Match) -> _Obstacle | None:
        """What keeps a request with this match from computing its first chunk."""
        tokens = self._tokens_needed(request, match)
        if tokens > self._budget:
            return "token_budget", tokens, self._budget
        blocks, room = (
            self._blocks_needed(request, match),
            self.cache.num_available_blocks_beside(match),
        )
        if blocks > room:
            return "no_free_blocks", blocks, room
        if not self.config.preemption:
            reserve = self._blocks_to_come(request, held=len(match.blocks))
            room -= self.reserved_blocks()
            if reserve > room:
                return "reserved_blocks", reserve, room
        return None

    def _blocks_to_come(self, request: Request, held: int) -> int:
        """Blocks that a request which holds `held` may come to take, samples still to fork included."""
        most = worst_case(
            request.prompt_length, request.params.max_tokens, request.num_seqs, self.config
        )
        return most - held

    def _tokens_needed(self, request: Request, match: Match) -> int:
        """Tokens of the budget without which an admission makes no sense.

        One, if prompts may be cut. Otherwise all of them; only a resumed request, which has grown
        since it was checked at submission, is cut when it exceeds a whole step.
        """
        if self.config.chunked_prefill:
            return 1
        left = len(request.tokens) - len(match.blocks) * self.config.block_size
        return min(left, self.config.token_budget)

    def _blocks_needed(self, request: Request, match: Match) -> int:
        """Blocks to take for the first chunk, which is as long as the budget allows."""
        found = len(match.blocks) * self.config.block_size
        end = min(len(request.tokens), found + self._budget)
        return self.config.blocks_for(end) - len(match.blocks)

    def _admit(self, request: Request, match: Match) -> None:
        key = list(self.waiting.key(request))
        resumed = request.preemptions > 0
        self.cache.attach_prefix(request, match)  # first: it may emit that it cut an edge
        self.waiting.remove(request)
        self.running.append(request)
        self._emit(Admitted(request.id, request.last_node, list(request.block_table), resumed, key))
        if not resumed:
            ask(PolicyError, self.policy.served, request, request.num_uncomputed_tokens, 0)
        self._add_row(request, min(request.num_uncomputed_tokens, self._budget))

    def _form_static_batch(self) -> None:
        """Close a new batch over the first in line; it runs until its last member has finished."""
        self._static_batch = set()
        places = self.config.max_batch_size
        with closing(self.waiting.in_order()) as candidates:
            for request in candidates:
                places -= request.num_seqs
                if places < 0:
                    break
                self._static_batch.add(request.root)
