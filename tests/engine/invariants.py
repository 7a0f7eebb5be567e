"""Invariants after every event, at every scheduling decision and after every step.

Everything here is recounted from scratch from the folded state or the live objects; nothing reads a
counter that the engine keeps for itself.
"""

from collections.abc import Callable
from typing import Any

from engine import Engine, EngineConfig, EventLog
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.vocabulary import HoldState
from engine.core.request import Request
from engine.core.scheduling.policies import LongestPrefixMatch, Policy
from engine.extensions.draft_model import DraftModel
from engine.extensions.holds import HELD_SHARE
from engine.simulation.checking_runner import CheckingRunner
from tests.engine.workloads import Workload, make_engine, play, reference

# The events that move a request's lock to a node and those above it.
LOCKING = (v.Admitted, v.Forked, v.RadixJoined, v.RadixInserted, v.RadixExtended, v.PrefixHeld)


class CheckingLog(EventLog):
    """A log that compares the fold with the live engine after every event."""

    def __init__(self, drop: type[v.Event] | None = None) -> None:
        super().__init__()
        self.engine: Engine | None = None  # set once it exists: its constructor appends already
        self.folded = State()
        self.drop = drop
        self.preempted_in_step = False
        self.checking = False  # whether it is a check that asks the parts, and not the engine
        self.uses: dict[int, int] = {}  # tree node -> requests that came to read it

    def append(self, event: v.Event) -> None:
        runner = self.engine and self.engine.runner
        if isinstance(event, v.BlocksAllocated) and isinstance(runner, CheckingRunner):
            runner.forget(event.blocks)
            if isinstance(self.engine.drafter, DraftModel):
                self.engine.drafter.runner.forget(event.blocks)
        if isinstance(event, v.WindowPagesEvicted):
            check_window_eviction(self.folded, event, self.engine)
        if isinstance(event, v.BlockEvicted):
            front = next(iter(self.folded.queue))
            assert event.block == front, "evicted a block that is not the front of the queue"
        if isinstance(event, v.RadixEvicted) and self.engine is not None:
            check_eviction(self.folded, event, type(self.engine.tree.eviction).__name__, self.uses)
        locked = self._locked(event) if isinstance(event, LOCKING) else set()
        if isinstance(event, v.Admitted):
            assert not self.preempted_in_step, "admitted after a preemption in the same step"
        super().append(event)
        if self.drop is not None and isinstance(event, self.drop):
            self.folded.seq += 1  # as if the vocabulary lacked it
        else:
            self.folded.apply(event)
        if isinstance(event, LOCKING):
            for node in self._locked(event) - locked:
                self.uses[node] = self.uses.get(node, 0) + 1
        if isinstance(event, v.PrefixAdopted) and not self.folded.is_hashed:
            for node in self.folded._path(event.nodes[-1]):
                self.uses[node.id] = self.uses.get(node.id, 0) + 1
        if isinstance(event, v.RadixSplit):
            self.uses[event.upper] = self.uses[event.node]
        if isinstance(event, v.StepStarted):
            self.preempted_in_step = False
        if isinstance(event, v.Preempted):
            self.preempted_in_step = True
        if self.engine is None:
            return
        if isinstance(event, v.BlockEvicted) and event.reason == "cleared" and self.folded.queue:
            return  # the cache is cleared at once, and compared after its last event
        if isinstance(event, v.Preempted):
            assert self.engine.config.preemption, "preempted although preemption is off"
        live = self.engine.snapshot()
        folded = self.folded.core()
        assert folded == live, difference(folded, live, event)
        check_counts(self.folded)
        if isinstance(event, v.StepScheduled):
            self.checking = True
            check_decisions(self.folded, event, self.engine, self.preempted_in_step)
            self.checking = False

    def _locked(self, event: Any) -> set[int]:
        """The nodes that the event's request, or hold, has locked in the folded state."""
        path, holder = set(), None
        if isinstance(event, v.PrefixHeld):
            holder = self.folded.holds.get(event.hold)
        else:
            holder = self.folded.requests.get(event.request)
        at = holder.last_node if holder else 0
        while at:
            path.add(at)
            at = self.folded.nodes[at].parent
        return path


def difference(folded: dict[str, Any], live: dict[str, Any], event: v.Event) -> str:
    keys = [key for key in live if folded[key] != live[key]]
    return f"after {event}:\n" + "\n".join(f"{k}: fold {folded[k]}, live {live[k]}" for k in keys)


def check_counts(state: State) -> None:
    """Reference counts and locks, recounted; block tables begin with the locked path."""
    refs = [0] * len(state.refs)
    for node in state.nodes.values():
        for block in node.blocks + node.copies:
            refs[block] += 1
    cached = {block for block, count in enumerate(refs) if count}
    locks = dict.fromkeys(state.nodes, 0)
    for holder in (*state.requests.values(), *state.holds.values()):
        for block in holder.block_table:
            refs[block] += 1
        path, at = [], holder.last_node
        while at != 0:
            node = state.nodes[at]
            if state.is_hashed:
                path.insert(
                    0, next(b for b in node.blocks + node.copies if b in holder.block_table)
                )
            else:
                locks[at] += 1
                path = node.blocks + path
            at = node.parent
        assert holder.block_table[: len(path)] == path, "the table's head is not the locked path"
        if isinstance(holder, HoldState):
            assert holder.block_table == path, "a hold has more blocks than it has locked"
    assert refs == state.refs, "reference counts do not recount"
    assert {block for block, count in enumerate(refs) if count == 0} == set(state.free)
    assert len(state.free) == len(set(state.free)), "a block is free twice"
    if state.is_hashed:
        idle = {block for block in cached if refs[block] == 1}
        assert idle == set(state.queue), "the queue is not the cached blocks without a user"
    assert locks == {id_: node.lock_ref for id_, node in state.nodes.items()}, (
        "locks do not recount"
    )


def check_eviction(before: State, event: v.RadixEvicted, order: str, uses: dict[int, int]) -> None:
    """Check that only unlocked leaves are evicted, the least recently or frequently used first."""
    leaves = [n for n in before.nodes.values() if n.id and not n.lock_ref and not n.children]
    victim = before.nodes[event.node]
    assert victim in leaves, "evicted a node that is locked or has children"
    if order == "LeastRecentAccess":
        return  # SGLang's accesses are not in the log
    assert sum(leaf.last == victim.last for leaf in leaves) == 1, "two evictable leaves tie"
    if order == "LRU":
        assert victim.last == min(leaf.last for leaf in leaves), "not the least recently locked"
    elif order == "LFU":
        least = min((uses[leaf.id], leaf.last) for leaf in leaves)
        assert (uses[victim.id], victim.last) == least, "not the least often read leaf"
    else:  # a part from outside may evict any leaf
        assert order == "CheckedPart", f"say here which leaf {order} evicts"


def check_window_eviction(
    before: State, event: v.WindowPagesEvicted, engine: Engine | None
) -> None:
    """Check that no more pages than necessary are evicted, and none that a running request reads."""
    assert engine is not None and event.blocks
    assert before.window_pages.issuperset(event.blocks)
    assert len(event.blocks) + before.settings["num_window_pages"] - len(before.window_pages) >= 1
    size, window = before.block_size, before.settings["window"]
    for request in engine.scheduler.running:
        start = max(request.num_scheduled_tokens - window + 1, 0)
        assert not {*request.block_table[start // size :]} & {*event.blocks}, (
            "evicted a page in use"
        )


def check_slots(state: State, id_: int, engine: Engine) -> None:
    """Check that each slot's adapter is in use, and the request's own is in none."""
    # A request that was aborted may still be in a pass in flight.
    in_flight = [row.request for plan in engine.scheduler.plans for row in plan.rows]
    computing = [*engine.scheduler.running, *in_flight]
    in_use = {request.extra_key[0] for request in computing if request.extra_key}
    assert "" not in state.adapters and set(state.adapters) <= in_use
    assert state.requests[id_].extra_key[0] not in state.adapters


def check_decisions(state: State, event: v.StepScheduled, engine: Engine, preempted: bool) -> None:
    """Check that the plan keeps its limits, covers every running request, and gives true reasons."""
    config = engine.config
    if config.scheduler != "vllm":
        return  # `tests/parity` compares the decisions with SGLang's
    used = sum(row.count for row in event.rows)
    stopped = any(reason == "after_preemption" for _, reason in event.skipped)
    itself = preempted and engine.log.of(v.Preempted)[-1]
    in_flight = [row for step, rows in state.plans.items() if step != state.step for row in rows]
    waited_for = {row.request for row in in_flight}
    depth = getattr(engine.loop, "depth", 1 + config.async_scheduling)
    assert len(state.plans) <= depth
    assert event.rows or waited_for or (itself and itself.request == itself.needed_by), (
        "there is work, yet no request got a token"
    )
    assert not stopped or itself.request == itself.needed_by
    assert used <= config.token_budget
    assert all(row.count >= 1 for row in event.rows)
    assert sum(state.requests[id_].num_seqs for id_ in state.running) <= config.max_batch_size
    plan = engine.scheduler.plan
    scheduled = {row.request.id for row in plan.rows}
    assert all(request.id in scheduled for request, _, _ in plan.copies), "copies for a victim"
    deferred = [id_ for id_, _ in event.skipped if id_ in state.waiting]
    accounted = [row.request for row in event.rows] + [id_ for id_, _ in event.skipped]
    assert sorted(accounted) == sorted(state.running + deferred)
    for row in event.rows:
        request = state.requests[row.request]
        end = row.start + row.count - len(row.drafts)
        assert end - row.start <= longest_chunk(state, config)
        before = [one for one in in_flight if one.request == row.request]
        assert row.start == request.num_computed_tokens + sum(one.count for one in before)
        # A row in flight that reaches the last token stands for one token more.
        known = len(request.tokens)
        assert end <= known + any(one.start + one.count == known for one in before)
        assert not row.drafts or end == len(request.tokens), "drafts behind a gap"
        needed = request.prompt_length + request.max_tokens - 1
        assert row.start + row.count <= needed, "computes tokens that the request did not ask for"
        for position in range(row.start, row.start + row.count):
            block = request.block_table[position // config.block_size]
            alone = state.refs[block] == 1 + (block in state.node_of)
            # Who found a block of this step reads what the step writes.
            assert alone or block in state.node_of, "writes into a block that others read"
    for id_, reason in event.skipped:
        if id_ in deferred:
            assert reason in ("policy", "adapter_slot")
            assert not preempted, "an admission was tried although the step preempted"
            if reason == "policy":
                check_deferral(state, id_, event, engine)
            else:
                check_slots(state, id_, engine)
        elif reason == "awaits_token":
            assert id_ in waited_for
        elif reason != "after_preemption":
            assert reason == "token_budget"
            assert used == config.token_budget
    if event.blocked is None:
        assert sorted(state.waiting) == sorted(deferred)
        return
    blocked = event.blocked
    assert blocked.request not in deferred
    assert blocked.behind == len(state.waiting) - 1 - len(deferred)
    if engine.policy.keys_change:  # the order is that before this step's admissions evicted any
        assert blocked.request in state.waiting
    else:
        asked = (one.id for one in engine.scheduler.waiting.in_order() if one.id not in deferred)
        assert blocked.request == next(asked), "the blocked one is not the head of the queue"
    drafts = sum(len(row.drafts) for row in event.rows)  # added after the head was asked
    check_reason(state, blocked, engine, preempted, config.token_budget - used + drafts)


def check_deferral(state: State, id_: int, event: v.StepScheduled, engine: Engine) -> None:
    """Return whether a request of this step computes a prefix that this one would find next (lpm)."""
    if not isinstance(engine.policy, LongestPrefixMatch):
        return
    tokens, size = state.requests[id_].tokens, state.block_size
    key = state.requests[id_].extra_key
    cached, _ = cached_prefix(state, tokens, engine.config.prefix_cache != "off", key)
    gains = [0]
    for row in event.rows:
        other, shared = state.requests[row.request].tokens, 0
        for mine, theirs in zip(tokens[:-1], other, strict=False):
            if mine != theirs:
                break
            shared += 1
        if state.requests[row.request].num_computed_tokens < shared // size * size:
            gains.append(shared // size - cached)
    assert max(gains) * size >= max(1, engine.policy.worth_waiting_for), "deferred for nothing"


def check_reason(
    state: State, blocked: v.Blocked, engine: Engine, preempted: bool, left: int
) -> None:
    config = engine.config
    if blocked.reason == "after_preemption":
        assert preempted
        return
    assert not preempted, "an admission was tried although the step preempted"
    if blocked.reason == "static_batch":
        assert config.batching == "static"
        assert state.running
        return
    if blocked.reason == "policy":
        assert type(engine.policy).admit is not Policy.admit
        assert state.plan, "a step must make progress"
        return
    assert blocked.need > blocked.have
    request = state.requests[blocked.request]
    reads = config.prefix_cache != "off" and "prompt_logprobs" not in request.sampling
    cached, locked = cached_prefix(state, request.tokens, reads, request.extra_key)
    if blocked.reason == "batch_full":
        places = config.max_batch_size - sum(state.requests[i].num_seqs for i in state.running)
        assert (blocked.need, blocked.have) == (request.num_seqs, places)
    elif blocked.reason == "token_budget":
        assert blocked.have == left
        missing = len(request.tokens) - cached * config.block_size
        is_whole = left > 0 and not config.chunked_prefill
        assert blocked.need == (min(missing, longest_chunk(state, config)) if is_whole else 1)
    else:
        room = len(state.free) + state.evictable - (cached - locked)
        if state.running:
            room -= int(config.watermark * (config.num_blocks + 1))
        drafted = 0  # blocks that drafts took after the head was asked
        for row in state.plan:
            end = row.start + row.count - len(row.drafts)
            drafted += len(state.requests[row.request].block_table) - config.blocks_for(end)
        room += drafted
        if blocked.reason == "whole_sequence":
            assert config.admission == "whole"
            assert blocked.need == config.blocks_for(len(request.tokens)) - cached
            assert blocked.have == room
        elif blocked.reason == "no_free_blocks":
            assert config.admission == "first_chunk"
            tokens = min(left, longest_chunk(state, config))
            end = min(len(request.tokens), cached * config.block_size + tokens)
            assert blocked.need == config.blocks_for(end) - cached
            assert blocked.have == room
        else:
            assert blocked.reason == "reserved_blocks"
            assert not config.preemption
            for other in engine.scheduler.running:
                room -= worst_case(other, config) - len(other.block_table)
            head = engine.requests[request.id]
            assert blocked.need == worst_case(head, config) - cached
            assert blocked.have == room - drafted  # which the tables have already


def longest_chunk(state: State, config: EngineConfig) -> int:
    """The most tokens of one request in this step, without drafts."""
    requests = len(state.running) + len(state.waiting)
    if not config.long_prefill_token_threshold or requests == 1:
        return config.token_budget
    share = config.token_budget // requests * config.long_prefill_token_threshold_adaptive
    return min(max(config.long_prefill_token_threshold, share), config.token_budget)


def worst_case(request: Request, config: EngineConfig) -> int:
    """Blocks of a request and of the samples that have yet to fork off it, at their longest."""
    one = config.blocks_for(request.prompt_length + request.params.max_tokens - 1)
    if request.num_seqs == 1:
        return one
    shared = request.prompt_length // config.block_size
    return shared + request.num_seqs * (one - shared)


def cached_prefix(
    state: State, tokens: list[int], prefix_cache: bool, extra_key: list[str]
) -> tuple[int, int]:
    """Whole blocks of `tokens` in the tree, found by comparing text, and how many are locked.

    With sliding layers, only a prefix counts before whose end each block in the window has its page.
    """
    size = state.block_size
    limit = (len(tokens) - 1) // size if prefix_cache else 0
    best = (0, 0)
    for node in state.nodes.values():
        path, at = [], node.id
        while at:
            path.insert(0, state.nodes[at])
            at = state.nodes[at].parent
        if path and path[0].extra_key != extra_key:
            continue
        found: list[int] = []
        for part in path:
            for index in range(len(part.tokens) // size):
                piece = part.tokens[index * size : (index + 1) * size]
                here = tokens[len(found) * size : (len(found) + 1) * size]
                if len(found) == limit or piece != here:
                    break
                copies = [part.blocks[index], *part.copies]
                with_page = [block for block in copies if block in state.window_pages]
                found.append((with_page or copies)[0])
            else:
                continue
            break
        while not is_usable(state, found):
            found.pop()
        best = max(best, (len(found), sum(state.refs[block] > 1 for block in found)))
    return best


def is_usable(state: State, prefix: list[int]) -> bool:
    """Whether the blocks in the window of the token after a cached prefix have their pages."""
    size, end = state.block_size, len(prefix) * state.block_size
    if not state.has_windows:
        return True
    window = range(max(0, end - state.settings["window"] + 1), end)
    return all(prefix[position // size] in state.window_pages for position in window)


def check_after_step(engine: Engine) -> None:
    """Between steps: everything computed is cached, tables fit, locks and counts agree."""
    engine.pool.check_integrity()
    cache = engine.cache
    cache.check_integrity()
    if engine.cache.pages is not None:
        engine.cache.pages.check_integrity()
    size, hashed = engine.config.block_size, engine.config.prefix_cache == "hash"
    in_tree = {b: n for n in cache.nodes.values() for b in (*n.blocks, *n.copies)}
    for block, node in in_tree.items():
        assert hashed or engine.pool.refs[block] == 1 + node.lock_ref
    held: dict[int, list[list[int]]] = {}
    for request in engine.requests.values():
        assert len(request.block_table) == -(-request.num_scheduled_tokens // size)
        if engine.config.prefix_cache != "off" and engine.config.scheduler == "vllm":
            full = request.block_table[: request.num_computed_tokens // size]
            assert all(block in in_tree for block in full), "a full block is not in the tree"
        for index, block in enumerate(request.block_table):
            end = min((index + 1) * size, request.num_scheduled_tokens)
            held.setdefault(block, []).append(request.tokens[:end])
    for prefixes in held.values():
        assert all(prefix == prefixes[0] for prefix in prefixes), "shared, but not by one prefix"
    kept = {block for hold in engine.holds.live.values() for block in hold.block_table}
    assert len(kept) <= HELD_SHARE * engine.pool.num_blocks, "holds have more than their share"
    for request in engine.requests.values():
        room = engine.pool.num_blocks - len(kept)
        needed = request.prompt_length + request.params.max_tokens - 1
        assert engine.config.blocks_for(needed) <= room, "a request cannot fit beside the holds"
    free, cached = len(engine.pool.free), len(in_tree)
    held_only = len(set(held) - set(in_tree))
    assert free + cached + held_only == engine.pool.num_blocks


def checked(make: Callable[..., Engine], *args: Any, **parts: Any) -> Engine:
    """Make an engine whose log checks every invariant after every event."""
    log = CheckingLog()
    engine = make(*args, log=log, **parts)
    log.engine = engine
    return engine


def check(workload: Workload, drop: type[v.Event] | None = None, **parts: object) -> CheckingLog:
    """Play a workload with every check on; outputs equal the naive loop's, all blocks are released."""
    log = CheckingLog(drop)
    engine = make_engine(workload, log, **parts)
    log.engine = engine
    requests = play(engine, workload, check_after_step)
    for request in requests:
        seed = 0 if request.params.temperature == 0 else request.seed + request.sample
        prompt = request.tokens[: request.prompt_length]
        expected, text = reference(prompt, request.params, seed)
        # The engine ends the requests of a failed pass; a wrong read must fail the test, too.
        assert "WrongKVError" not in request.error, request.error
        if request.finish_reason in ("stop", "length"):
            assert request.output_ids == expected
            assert request.output_text == text
            assert not request.unscored
        else:
            assert request.output_ids == expected[: len(request.output_ids)]
        if request.finish_reason != "error":
            assert request.error == ""
    for step in log.of(v.StepFinished):
        assert "WrongKVError" not in step.draft_error, step.draft_error
    engine.clear_prefix_cache()
    # Once more from the start: an event that shared a list with a live object would have changed.
    assert drop or log.state().core() == engine.snapshot()
    assert len(engine.pool.free) == engine.config.num_blocks, "blocks are still held at the end"
    assert not engine.loop.outputs
    return log
