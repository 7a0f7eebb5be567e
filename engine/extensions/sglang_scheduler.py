"""SGLang's scheduler: a step is a batch of prefills or a batch of decodes, and prefills come first.

Each step tries to admit waiting requests. If at least one can be admitted, or a prompt is in chunks,
the step computes prompts only, and the running requests wait. Otherwise they all decode one token.
With `scheduler="sglang_mixed"` they decode in the same step as the prompts.

Memory is a forecast. A running request counts with a share of the tokens that it may still produce,
the `new_token_ratio`. The share begins at 0.7 and shrinks with every step of decodes, so that more and
more requests are admitted. If the forecast was too low, the requests with the fewest output tokens are
retracted: they lose their KV and go to the back of the queue, and the ratio is set to what was learned.

A batch counts as full once a request was not admitted for lack of seats or memory, and nothing is
admitted until a request has left it. With `policy="priority"`, a request may instead preempt running
ones whose priority value is larger by more than 10.

With `async_scheduling`, a step is scheduled while the one before is computed, which SGLang calls
overlap and does by default.

Source: SGLang's `python/sglang/srt/managers/scheduler.py` (`get_next_batch_to_run`,
`event_loop_overlap`), `schedule_policy.py` (`PrefillAdder`, `SchedulePolicy`) and `schedule_batch.py`
(`retract_decode`).

Differs from SGLang, which stops with an error where the next chunk of a prompt does not fit into
memory. Here the chunk is shortened, or it waits. SGLang computes an aborted request once more; here it
ends at once. After a failed pass SGLang stops; here the pass's requests end, and with overlap those of
the next step, too.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from engine.core.async_loop import AsyncLoop, Flight
from engine.core.cache.kv_cache_manager import KVCacheManager
from engine.core.cache.prefix_cache import PrefixLookup
from engine.core.cache.radix_tree import Match, RadixTree
from engine.core.config import EngineConfig
from engine.core.log import vocabulary as v
from engine.core.loop import Loop, StepOutput
from engine.core.request import Request
from engine.core.runner import Row, Sampled
from engine.core.scheduling.policies import Fcfs, LongestPrefixMatch, Priority
from engine.core.scheduling.policy import Policy
from engine.core.scheduling.scheduler import Plan, Scheduler
from engine.core.scheduling.waiting_queue import WaitingQueue
from engine.core.speculation.drafter import Speculation
from engine.extensions.sglang_cache import SGLangCache
from engine.extensions.sglang_policies import (
    LongestPrefixFirst,
    Pass,
    SGLangPolicy,
    ShortestPrefillFirst,
)

INIT_NEW_TOKEN_RATIO = 0.7  # times `schedule_conservativeness`
MIN_NEW_TOKEN_RATIO_FACTOR = 0.14
NEW_TOKEN_RATIO_DECAY_STEPS = 600
RETRACT_DECODE_STEPS = 20
PREEMPTION_THRESHOLD = 10  # how much more urgent than a victim a request must be
CLIP_MAX_NEW_TOKENS = 4096  # a forecast counts no more tokens of a request than this
IN_BATCH_CHECK, IN_BATCH_DEPRIORITIZE = 32, 32  # tokens, see `_deprioritized`
REFRESH_INTERVAL = (
    32  # under fcfs, prefixes of waiting requests are accessed once in so many passes
)

AddReqResult = Literal["continue", "no_token", "other"]


def max_new_tokens(request: Request) -> int:
    """Return how many tokens a request may still produce, as a forecast counts them."""
    return min(request.params.max_tokens - len(request.output_ids), CLIP_MAX_NEW_TOKENS)


class PrefillAdder:
    """What one step may admit: tokens to compute, and tokens of memory with a forecast.

    rem_chunk_tokens  tokens left to compute
    total_offset      memory that is promised, and what the running requests are expected to need
    current_offset    memory that this step's prompts need
    can_run           the requests of the batch, and how many tokens each computes
    new_chunked       the request of which only a chunk was added
    """

    def __init__(
        self, cache: SGLangCache, config: EngineConfig, batch: Sequence[Request], ratio: float
    ) -> None:
        self._cache, self.batch, self._ratio = cache, batch, ratio
        self._page, self._chunks = config.block_size, config.chunked_prefill
        mixed = len(batch) if config.scheduler == "sglang_mixed" and self._chunks else 0
        self.rem_chunk_tokens = config.token_budget - mixed
        self.total_offset: float = mixed
        self.total_offset += sum([self.expected_tokens(request) for request in batch])
        self.current_offset = mixed
        self.can_run: list[tuple[Request, int]] = []
        self.new_chunked: Request | None = None
        self._may_chunk = True  # only one prompt can be in chunks
        self._ends: list[tuple[float, int]] | None = None  # see `_fits_until_the_end`

    @property
    def rem_total_tokens(self) -> float:
        """Memory that is neither used nor promised."""
        return self._available() - self.total_offset

    def budget_state(self) -> AddReqResult:
        """Return whether another request can be added."""
        if self.rem_total_tokens <= 0 or self._available() <= self.current_offset:
            return "no_token"
        return "other" if self.rem_chunk_tokens <= 0 else "continue"

    def needed_tokens(self, request: Request, cached: int) -> int:
        """Return the tokens of memory that must be left over to admit a request."""
        return len(request.tokens) - cached + max(0, max_new_tokens(request)) + self._page

    def add_chunked_req(self, request: Request, limit: int) -> Request | None:
        """Add a prompt's next chunk, at most `limit` tokens. Return the request if more follow."""
        left = request.num_unscheduled_tokens
        room = len(request.block_table) * self._page + self._available()
        chunk = min(self.rem_chunk_tokens, int(self.rem_total_tokens))
        chunk = min(chunk if chunk > 0 else self.rem_chunk_tokens, limit, left)
        chunk = min(chunk, room - request.num_scheduled_tokens)
        self._may_chunk = chunk == left
        if chunk <= 0:
            return request
        self._add(request, chunk, left)
        return request if chunk < left else None

    def add_one_req(
        self, request: Request, match: Match, admit: Callable[[Request, Match], None]
    ) -> AddReqResult:
        """Add a waiting request if it fits, whole or its first chunk. `admit` locks its prefix."""
        cached = len(match.blocks) * self._page
        left = count = len(request.tokens) - cached
        rest = self.rem_chunk_tokens
        if request.params.ignore_eos and not self._cache.tree.enabled:
            if not self._fits_until_the_end(request):
                return "no_token"
            if self._chunks:
                count = min(left, rest)
        else:
            path = self._cache.tree.path(match.node)
            unlocked = sum(len(node.blocks) for node in path if not node.lock_ref) * self._page
            if self.needed_tokens(request, cached) >= self.rem_total_tokens - unlocked:
                return "no_token"
            if not self._chunks:
                if self.can_run and self._ceil(left) >= rest:
                    return "other"
            elif self._ceil(left) > rest:
                count = rest // self._page * self._page if self._may_chunk else 0
        if count <= 0:
            return "other"
        admit(request, match)
        self._add(request, count, left)
        if count < left:
            self.new_chunked = request
        return self.budget_state()

    def _add(self, request: Request, count: int, left: int) -> None:
        self.can_run.append((request, count))
        pages = self._ceil(count) + self._page
        self.current_offset += pages
        self.total_offset += pages
        if count == left:
            self.total_offset += min(request.params.max_tokens, CLIP_MAX_NEW_TOKENS)
        self.rem_chunk_tokens -= self._ceil(count)

    def _available(self) -> int:
        return self._cache.num_available_blocks * self._page

    def _ceil(self, tokens: int) -> int:
        return -(-tokens // self._page) * self._page

    def expected_tokens(self, request: Request) -> float:
        """Return how many tokens a running request is expected to produce yet."""
        return max_new_tokens(request) * self._share(request)

    def _share(self, request: Request) -> float:
        """Return how much of its remaining output a request is expected to produce."""
        return 1.0 if request.params.ignore_eos else self._ratio

    def _fits_until_the_end(self, request: Request) -> bool:
        """Return whether memory lasts until the running requests have ended, one after another.

        SGLang asks this for a request with `ignore_eos` if the prefix cache is off. `_ends` has what is
        left to produce and the memory that becomes free then, for each request in order of its end.
        """
        need = self._ceil(len(request.tokens)) + self._page
        if need > min(self._available() - self.current_offset, self.rem_total_tokens):
            return False
        if self._ends is None:
            others = [*self.batch, *(one for one, _ in self.can_run)]
            self._ends = [end for one in (request, *others) if (end := self._end(one))]
            self._ends.sort(key=lambda end: end[0])
        elif end := self._end(request):
            later = (at for at, other in enumerate(self._ends) if end[0] <= other[0])
            self._ends.insert(next(later, max(0, len(self._ends) - 1)), end)
        free = self._available() - self.current_offset - need
        for at, (left, occupied) in enumerate(self._ends):
            running = len(self._ends) - at
            if free - left * running <= running:  # one token each is kept
                return False
            free += occupied
        return True

    def _end(self, request: Request) -> tuple[float, int] | None:
        left = request.params.max_tokens * self._share(request) - len(request.output_ids)
        return (left, len(request.tokens)) if left > 0 else None


class ArrivalQueue(WaitingQueue):
    """The queue of waiting requests, and the list that the scheduler sorts in place, as SGLang does."""

    def __init__(self, policy: Policy, tree: PrefixLookup, scheduler: "SGLangScheduler") -> None:
        super().__init__(policy, tree)
        self._scheduler = scheduler
        self.order: list[Request] = []
        self.joined: dict[int, int] = {}  # when live requests joined the queue last
        self.computed_before: dict[int, int] = {}  # the scheduler's `computed_tokens` then
        self._joins = 0

    def add(self, request: Request, *, front: bool = False) -> None:
        """Add a request. If nothing ran or waited, SGLang has been idle and has reset its ratio."""
        scheduler = self._scheduler
        if not self and not scheduler.running and not scheduler.plans:
            scheduler.new_token_ratio = scheduler.init_new_token_ratio
        super().add(request, front=front)
        self._joins += 1
        self.joined[request.id] = self._joins
        self.computed_before[request.id] = scheduler.computed_tokens
        self.order.insert(0 if front else len(self.order), request)

    def remove(self, request: Request) -> None:
        """Remove a request from any position."""
        super().remove(request)
        self.order.remove(request)


class SGLangScheduler(Scheduler):
    """Schedules prefills before decodes.

    batch            the requests that decode, in SGLang's order (its `running_batch`)
    chunked          the request whose prompt is computed in chunks, if there is one
    batch_is_full    whether nothing is admitted until a request leaves the batch
    new_token_ratio  the share of its remaining output that a running request is expected to produce
    completing       the requests whose prompt a step completes, by step
    computed_tokens  SGLang's clock for hrrn: the tokens of all prefills. A comment says that decodes
                     count 0, but a batch of decodes counts as the prefill that it began as
    """

    cache: SGLangCache

    def __init__(
        self,
        config: EngineConfig,
        policy: Policy,
        cache: KVCacheManager,
        emit: Callable[[v.Event], None],
        speculation: Speculation | None,
    ) -> None:
        super().__init__(config, policy, cache, emit, speculation)
        self.waiting: ArrivalQueue = ArrivalQueue(policy, cache.lookup, self)
        self.page = config.block_size
        self.batch: list[Request] = []
        self.chunked: Request | None = None
        self.batch_is_full = False
        ratio = min(INIT_NEW_TOKEN_RATIO * config.schedule_conservativeness, 1.0)
        self.init_new_token_ratio = self.new_token_ratio = ratio
        self.completing: dict[int, set[int]] = {}
        self.computed_tokens = self._prefill_tokens = self._batch_tokens = 0
        self._by_priority = isinstance(policy, Priority)
        is_lpm = isinstance(policy, LongestPrefixMatch)
        self._order = LongestPrefixFirst() if is_lpm else policy
        self._known: dict[int, tuple[int, int]] = {}  # see `_preempt_for`
        self._prefilled: list[Request] = []  # the requests of the last step, if it had prefills
        self._passes = 0
        self._blocked: v.Blocked | None = None
        self._obstacle: tuple[v.WaitingReason, int, int] = ("batch_full", 0, 0)

    def _schedule_running(self, plan: Plan) -> bool:
        """Plan prefills, or else decodes. Preemption and admission never happen in one step."""
        self._blocked = None
        self._merge()
        self._prefill(plan)
        if not plan.rows and self.batch:
            self._decode(plan)
        return False

    def _admit_waiting(self, plan: Plan, *, after_preemption: bool) -> v.Blocked | None:
        return self._blocked

    def _merge(self) -> None:
        """Let the requests whose prompt is complete join the batch, and drop those that have ended."""
        if self.chunked is not None and self.chunked not in self.running:
            self.chunked = None
        if self.chunked is not None and self.chunked in self._prefilled:
            self.cache.checkpoint(self.chunked, in_flight=True)
        alive = {request.id for request in self.running} - {self.chunked and self.chunked.id}
        known, was_empty = [*self.batch, *self._prefilled], not self.batch
        self.batch = [request for request in known if request.id in alive]
        if len(self.batch) < len(known) or was_empty:  # SGLang's new batch is another object
            self.batch_is_full = False
        if was_empty and self._prefilled:
            self._batch_tokens = self._prefill_tokens
        alive.difference_update(request.id for request in self.batch)
        if alive:  # samples that have forked
            self.batch += [request for request in self.running if request.id in alive]
        self._prefilled = []
        live = {request.id for request in (*self.running, *self.waiting.order)}
        for seen in (self._known, self.waiting.joined, self.waiting.computed_before):
            for gone in seen.keys() - live:
                del seen[gone]

    # Prefills

    def _prefill(self, plan: Plan) -> None:
        waiting, seats = self.waiting.order, self._free_seats()
        if not self.batch or self._by_priority:
            self.batch_is_full = False
        may_admit = seats > 0 or self._by_priority
        if not may_admit and not self.batch_is_full and waiting and self.chunked is None:
            self.batch_is_full, self._obstacle = True, ("batch_full", 1, seats)
        if self.chunked is None and (self.batch_is_full or not waiting):
            if waiting:
                self._block(waiting[0], len(waiting) - 1)
            return
        self._sort()
        adder = PrefillAdder(self.cache, self.config, self.batch, self.new_token_ratio)
        chunked = self.chunked
        if chunked is not None:
            limit = adder.rem_chunk_tokens
            if isinstance(self._order, ShortestPrefillFirst) and limit >= 2 * self.page:
                left = chunked.num_unscheduled_tokens
                limit = self._order.chunk_limit(left, waiting, limit, self.page)
            self.chunked = adder.add_chunked_req(chunked, limit)
        self._add_waiting(plan, adder)
        self.chunked = self.chunked or adder.new_chunked
        if adder.can_run:
            self._compute(plan, adder)

    def _free_seats(self) -> int:
        return self.config.max_batch_size - sum(request.num_seqs for request in self.batch)

    def _add_waiting(self, plan: Plan, adder: PrefillAdder) -> None:
        """Admit waiting requests in order, up to the first that does not fit."""
        reason: v.WaitingReason | None = None
        deferred = set[int]()
        for request in tuple(self.waiting.order):
            if adder.budget_state() == "other":
                reason = "token_budget"
                break
            if self.adapters and self.adapters.lacks_slot(request):
                plan.skipped.append((request.id, "adapter_slot"))
                deferred.add(request.id)
                continue
            taken = sum(one.num_seqs for one, _ in adder.can_run) + request.num_seqs
            if taken > self._free_seats():
                self.batch_is_full, reason = True, "batch_full"
            preempts = self._by_priority
            if self.batch_is_full and not (preempts and self._preempt_for(request, adder)):
                reason = "batch_full" if preempts else reason
                break
            reason = None
            match = self.cache.match_prefix(request)
            if self._by_priority:
                self._known[request.id] = len(request.tokens), len(match.blocks) * self.page
            result = adder.add_one_req(request, match, self._admit)
            if result == "no_token":
                self.batch_is_full, reason = bool(adder.can_run or self.batch), "expected_tokens"
            elif result == "other":
                reason = "token_budget"
            if reason is not None:
                break
        self._explain(adder, reason, deferred)

    def _explain(
        self, adder: PrefillAdder, reason: v.WaitingReason | None, deferred: set[int]
    ) -> None:
        """Note why the first request that waits was not admitted, or the next one would not be."""
        blocked = [request for request in self.waiting.order if request.id not in deferred]
        seats = need = 1
        if blocked:
            seats, tokens = blocked[0].num_seqs, blocked[0].tokens
            cached = self.cache.tree.match(tokens, (len(tokens) - 1) // self.page)
            need = adder.needed_tokens(blocked[0], len(cached.blocks) * self.page)
        if reason == "batch_full":
            left = self._free_seats() - sum(one.num_seqs for one, _ in adder.can_run)
            self._obstacle = (reason, seats, left)
        elif reason == "expected_tokens":
            self._obstacle = (reason, need, int(adder.rem_total_tokens))
        elif reason == "token_budget":
            self._obstacle = (reason, 1, max(0, adder.rem_chunk_tokens))
        if blocked:
            self._block(blocked[0], len(blocked) - 1)

    def _preempt_for(self, request: Request, adder: PrefillAdder) -> bool:
        """Preempt running requests that are much less urgent. Return whether there is room now.

        SGLang counts the tokens of the request and of its cached prefix as of when it tried the last
        time to admit it, and counts none before. The least urgent go first, among equals the latest.
        """
        tokens, cached = self._known.get(request.id, (0, 0))
        need = tokens - cached + min(request.params.max_tokens, CLIP_MAX_NEW_TOKENS)
        missing, victims = need - adder.rem_total_tokens, list[Request]()
        joined = self.waiting.joined
        for running in sorted(self.batch, key=lambda one: (-one.priority, -joined.get(one.id, 0))):
            if running.priority - request.priority <= PREEMPTION_THRESHOLD:
                break
            victims.append(running)
            missing -= adder.expected_tokens(running)
            if missing <= 0:
                break
        if not victims or missing > 0:
            return False
        for running in tuple(self.batch):
            if running in victims:
                adder.total_offset -= adder.expected_tokens(running)
                self.batch = [one for one in self.batch if one is not running]
                self._release(running, -1, len(self.batch), request)
        adder.batch = self.batch
        for victim in victims:
            self.waiting.add(victim)
        return True

    def _block(self, request: Request, behind: int) -> None:
        reason, need, have = self._obstacle
        self._blocked = v.Blocked(request.id, reason, behind, need, have)

    def _compute(self, plan: Plan, adder: PrefillAdder) -> None:
        """Allocate the blocks of the admitted requests and, in a mixed step, of the batch."""
        page = self.page
        tokens = sum(count for _, count in adder.can_run)
        # With pages, SGLang evicts one page per request more than it may need.
        pages = tokens if page == 1 else tokens // page + len(adder.can_run) + (tokens % page > 0)
        self.cache.make_free(pages, adder.can_run[0][0])
        for request, count in adder.can_run:
            self._add_allocated(plan, request, count)
        completing = {request.id for request, _ in adder.can_run if request is not self.chunked}
        self.completing[plan.step] = completing
        self._prefilled = [request for request, _ in adder.can_run]
        if self.config.scheduler == "sglang_mixed" and self.config.chunked_prefill:
            self._drop_ending()
            if self.batch and self._fits(self.batch):
                self._add_decodes(plan)
                self._prefilled += self.batch
                self.batch = []
        self._prefill_tokens = sum(row.count for row in plan.rows)
        self.computed_tokens += self._prefill_tokens
        plan.skipped += [(request.id, "prefill_batch") for request in self.batch]

    def _sort(self) -> None:
        """Sort the waiting requests in place, as the policy orders them."""
        waiting, enabled, order = self.waiting.order, self.cache.tree.enabled, self._order
        if self._by_priority:
            waiting.sort(key=lambda request: request.priority)
        elif isinstance(order, SGLangPolicy) and not order.reads_cache:
            order.sort(waiting, self._pass(looked_up=()))
        elif isinstance(order, SGLangPolicy):
            if enabled and not self.waiting.is_over_limit:
                order.sort(waiting, self._pass(looked_up=waiting))
                return
        elif not isinstance(order, Fcfs):
            waiting[:] = self.waiting.in_order()
        if waiting and enabled:
            if self._passes % REFRESH_INTERVAL == 0:
                for request in reversed(waiting[: LongestPrefixMatch.sort_limit]):
                    self.cache.touch_prefix(request.tokens)
            self._passes += 1

    def _pass(self, looked_up: Sequence[Request]) -> Pass:
        """Return what a policy can look at. Looking up a request's prefix is an access to the cache."""
        before, computed = self.waiting.computed_before, self.computed_tokens
        waited = {one.id: computed - before[one.id] for one in self.waiting.order}
        cached, repeats = self._prefixes(looked_up)
        return Pass(self.cache.tree, self.batch, self.waiting.joined, waited, cached, repeats)

    def _prefixes(self, waiting: Sequence[Request]) -> tuple[dict[int, int], set[int]]:
        """Look up the prefixes of waiting requests. Return a pass's `cached` and `repeats`."""
        seen, known, repeats = RadixTree(1), dict[int, int](), set[int]()
        for request in waiting:
            length = len(request.tokens)
            cached = self.cache.touch_prefix(request.tokens)
            known[request.id] = min(cached, length - 1)
            if cached <= IN_BATCH_CHECK:
                match = seen.match(request.tokens, length)
                if len(match.blocks) >= IN_BATCH_DEPRIORITIZE:
                    repeats.add(request.id)
                elif len(match.blocks) < length:
                    node, start = match.node, len(match.blocks)
                    if match.depth < len(node.blocks):
                        node = seen.split(node, match.depth)
                    rest = request.tokens[start:] if start else request.tokens
                    seen.insert(node, rest, list(range(start, length)))
        return known, repeats

    # Decodes

    def _drop_ending(self) -> bool:
        """With overlap, drop the requests whose last token the step in flight computes."""
        ending = [request for request in self.batch if not request.num_unscheduled_tokens]
        if ending:
            self.batch = [request for request in self.batch if request not in ending]
            self.batch_is_full = False
        return bool(ending)

    def _decode(self, plan: Plan) -> None:
        some_end = self._drop_ending()
        if not self.batch:
            return
        fits = self._fits(self.batch)
        if not fits and some_end:  # the memory of those will do
            return
        if fits:
            lowest = self.init_new_token_ratio * MIN_NEW_TOKEN_RATIO_FACTOR
            decay = (self.init_new_token_ratio - lowest) / NEW_TOKEN_RATIO_DECAY_STEPS
            self.new_token_ratio = max(self.new_token_ratio - decay, lowest)
        else:
            self._retract_decode()
        self.computed_tokens += self._batch_tokens
        self._add_decodes(plan)

    def _add_decodes(self, plan: Plan) -> None:
        if self._by_priority and plan.rows:  # a mixed step
            known = {one.id: (len(one.tokens), 0) for one in self.batch}
            self._known |= known
        if self.page > 1:  # SGLang evicts a page for each request, needed or not
            self.cache.make_free(len(self.batch), self.batch[0])
        for request in self.batch:
            self._add_allocated(plan, request, request.num_unscheduled_tokens)

    def _add_allocated(self, plan: Plan, request: Request, count: int) -> None:
        copies = self.cache.allocate_slots(request, count)
        assert copies is not None, "memory was checked before"
        self._add_row(plan, request, count, copies)

    def _fits(self, requests: Sequence[Request]) -> bool:
        """Return whether each request can decode, after evicting what the cache can spare."""
        need = sum(
            self.cache.blocks_needed(request, request.num_unscheduled_tokens)
            for request in requests
        )
        return self.cache.make_free(need, requests[0])

    def _retract_decode(self) -> None:
        """Retract requests until the others can decode: the fewest output tokens first.

        Among equals, the longest prompt goes first. What is left is enough for at least one request,
        because a request that does not fit into memory alone is rejected on submission.
        """
        kept = sorted(
            self.batch,
            key=lambda request: (len(request.output_ids), -request.prompt_length),
            reverse=True,
        )
        first = True
        while len(kept) > 1 and (first or not self._fits(kept)):
            first = False
            self._retract(kept.pop(), kept)
        if self.chunked is not None and not self._fits(kept):
            self._retract(self.chunked, kept)
            self.chunked = None
        if len(kept) < len(self.batch):
            self.batch, self.batch_is_full = kept, False
        decoded = sum(len(request.output_ids) + RETRACT_DECODE_STEPS for request in kept)
        most = sum(request.params.max_tokens for request in kept)
        self.new_token_ratio = min(1.0, decoded / (most + 1))

    def _retract(self, victim: Request, kept: Sequence[Request]) -> None:
        self.waiting.add(victim)  # this comes first because the policy may raise
        self._release(victim, kept[0].id, len(kept), kept[0])

    def _release(self, victim: Request, needed_by: int, others: int, request: Request) -> None:
        """Take a request's memory, and evict what the `others` will need soon.

        The log has `needed_by` only if a running request lacked blocks.
        """
        for plan in self.plans:  # unlike vLLM, SGLang drops the token of a step in flight
            plan.rows = [row for row in plan.rows if row.request is not victim]
        victim.forget_in_flight()
        self.running.remove(victim)
        self.cache.free(victim)
        victim.preemptions += 1
        if victim.id in self._known:
            self._known[victim.id] = self._known[victim.id][0], 0
        self._emit(v.Preempted(victim.id, needed_by, 0))
        self.cache.make_free(-(-others * RETRACT_DECODE_STEPS // self.page), request)


class _Checkpoints:
    """Makes a checkpoint when a step has completed a prompt, and the last when a request ends."""

    __slots__ = ()

    def commit(self: Any, plan: Plan, rows: list[Row], sampled: list[list[Sampled]]) -> StepOutput:
        """Commit a step. Its tokens for requests that were retracted in the meantime are dropped."""
        self.cache.checkpoint_due = self.scheduler.completing.pop(plan.step, set())
        kept = [at for at, row in enumerate(rows) if any(row is one for one in plan.rows)]
        output: StepOutput = super().commit(  # type: ignore[misc]
            plan, [rows[at] for at in kept], [sampled[at] for at in kept]
        )
        return output

    def finish(self: Any, request: Request, reason: v.FinishReason, matched: str = "") -> None:
        """Release everything that a request holds."""
        if reason != "error" and request.num_computed_tokens >= request.prompt_length:
            self.cache.checkpoint(request, in_flight=True)
        super().finish(request, reason, matched)  # type: ignore[misc]


class NormalLoop(_Checkpoints, Loop):
    """SGLang's `event_loop_normal`."""


class OverlapLoop(_Checkpoints, AsyncLoop):
    """SGLang's `event_loop_overlap`: a step is scheduled while the one before is computed."""

    def _fail(self, flight: Flight, ahead: Plan | None, error: Exception) -> StepOutput:
        """End the requests of a failed pass and of the next step, which may share its prefixes."""
        if ahead is not None:
            flight.copied += [row.request for row in ahead.rows]
        output = super()._fail(flight, ahead, error)
        self.cache.clear()
        return output
