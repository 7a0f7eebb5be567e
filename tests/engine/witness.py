"""A log that records from the live objects what `why` has to answer, and can test its remedies.

Nothing here reads the fold: pool, tree, scheduler and requests are read at the moment when the
engine emits an event.
"""

import copy
import copyreg
import queue
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from engine import Engine, EventLog
from engine.core.cache.block_pool import BlockPool
from engine.core.cache.hash_cache import HashCache, HashNode
from engine.core.cache.prefix_cache import BlockOwner
from engine.core.cache.radix_tree import LockOwner, RadixNode, RadixTree
from engine.core.log import vocabulary as v
from engine.core.request import Request
from tests.engine.workloads import Workload, make_engine


class WatchedPool(BlockPool):
    """Remembers what was there before the last release: (blocks, free)."""

    before: tuple[list[int], int] = ([], 0)

    def release(self, blocks):
        self.before = (list(blocks), len(self.free))
        super().release(blocks)


class WatchedTree(RadixTree):
    """Remembers every evicted path, with the part that stayed, and what a release had unlocked."""

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size)
        self.evicted: list[tuple[list[int], int]] = []  # (path, tokens of it that stayed)
        self.unlocked_before = 0

    def evict(self, node: RadixNode) -> None:
        path = spelled(node)
        self.evicted.append((path, len(path) - len(node.tokens)))
        super().evict(node)

    def move_lock(self, owner: LockOwner, new: RadixNode) -> None:
        self.unlocked_before = self.unlocked_blocks
        super().move_lock(owner, new)


class WatchedHash(HashCache):
    """Remembers what `WatchedTree` does. A hash cache is no part to pass in, so one becomes this."""

    def watch(self) -> None:
        self.evicted: list[tuple[list[int], int]] = []
        self.unlocked_before = 0

    def _remove(self, block: int) -> HashNode:
        node = super()._remove(block)
        path = spelled(node)
        self.evicted.append((path, len(path) - (0 if node.blocks else len(node.tokens))))
        return node

    def free(self, owner: BlockOwner, keep: int = 0) -> None:
        self.unlocked_before = len(self.eviction_queue)
        super().free(owner, keep)


@dataclass
class Seen:
    """What the live objects said about a step when it was scheduled."""

    event: v.StepScheduled
    waiting: list[int]
    running: dict[int, int]  # request -> blocks it holds
    free: int
    evictable: int
    unlocked: int = 0  # blocks without a lock that the blocked request found
    victims: dict[int, dict[str, int]] = field(default_factory=dict)
    admitted: dict[int, dict[str, object]] = field(default_factory=dict)
    twin: Engine | None = None  # the engine as it was before this step was scheduled


# A copy of an engine has no thread below it, so it has nothing to do for one either.
copyreg.pickle(queue.SimpleQueue, lambda _jobs: (queue.SimpleQueue, ()))


class Witness(EventLog):
    """Records `Seen` for each step, and the requests that ended."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Engine | None = None
        self.seen: dict[int, Seen] = {}
        self.ended: dict[int, tuple[int, str]] = {}  # request -> (step, reason)
        self.first_step: dict[int, int] = {}  # request -> first step that is scheduled with it
        self._victims: dict[int, dict[str, int]] = {}
        self._admitted: dict[int, dict[str, object]] = {}
        self.losses: list[tuple[list[int], int, int, int]] = []  # path, stayed, step, needed by
        self._twin: Engine | None = None

    def append(self, event: v.Event) -> None:
        super().append(event)
        engine = self.engine
        match event:
            case v.StepStarted():
                self._victims, self._admitted = {}, {}
                self._twin = copy.deepcopy(engine, {id(self): EventLog()})
            case v.RadixEvicted() | v.BlockEvicted():
                path, stayed = engine.tree.evicted[-1]
                self.losses.append((path, stayed, engine.step_count, event.needed_by))
            case v.Preempted():
                self._victims[event.request] = self._victim(engine, event)
            case v.Admitted():
                self._admitted[event.request] = self._admission(engine, event)
            case v.StepScheduled():
                self.seen[engine.step_count] = self._seen(engine, event)
                for id_ in engine.requests:
                    self.first_step.setdefault(id_, engine.step_count)
            case v.RequestFinished():
                self.ended[event.request] = (engine.step_count, event.reason)

    def _victim(self, engine: Engine, event: v.Preempted) -> dict[str, int]:
        table, free = engine.pool.before
        others = (*engine.requests.values(), *engine.holds.live.values())
        tables = {block for other in others for block in other.block_table}
        freed = sum(block in engine.pool.free for block in table)
        shared = sum(block in tables for block in table)
        nodes = engine.cache.nodes.values()
        cached = {block for node in nodes for block in (*node.blocks, *node.copies)} - tables
        return {
            "free": free,
            "evictable": engine.tree.unlocked_before,
            "held": len(table),
            "shared": shared,
            "cached": sum(block in cached for block in table),
            "freed": freed,
        }

    def _admission(self, engine: Engine, event: v.Admitted) -> dict[str, object]:
        request, size = engine.requests[event.request], engine.config.block_size
        found, tokens = request.num_computed_tokens, request.tokens
        paths = [spelled(node) for node in engine.tree.nodes.values()]
        agree = max(common(path, tokens) for path in paths)
        # What this admission evicts comes after its Admitted, so the list has only earlier evictions.
        lost = [
            (usable, step, by)
            for path, stayed, step, by in self.losses
            if (usable := min(common(path, tokens), len(tokens) - 1) // size * size)
            > max(found, stayed, agree // size * size)  # sliding layers may not use all of it
        ]
        return {
            "found": found,
            "tokens": len(tokens),
            "size": size,
            "scored": engine.config.prefix_cache != "off"
            and request.params.prompt_logprobs is not None,
            "sharers": {
                other.id
                for other in engine.requests.values()
                if other is not request and set(other.block_table) & set(request.block_table)
            },
            "agree": agree,
            "lost": lost[-1] if lost else None,
        }

    def _seen(self, engine: Engine, event: v.StepScheduled) -> Seen:
        running = {request.id: len(request.block_table) for request in engine.scheduler.running}
        waiting = [request.id for request in engine.scheduler.waiting]
        free = len(engine.pool.free)
        evictable = engine.cache.num_available_blocks - free
        free += drafted_blocks(engine)  # drafts take theirs after the head of the queue is asked
        seen = Seen(event, waiting, running, free, evictable)
        seen.victims, seen.admitted, seen.twin = self._victims, self._admitted, self._twin
        if event.blocked is not None:
            head = engine.requests[event.blocked.request]
            found = engine.cache.match_prefix(head)
            seen.unlocked = sum(engine.pool.refs[block] == 1 for block in found.blocks)
        return seen


Kind = TypeVar("Kind", bound=Witness)


def drafted_blocks(engine: Engine) -> int:
    """Blocks that only drafts of this step need."""
    size = engine.config.block_size
    ends = [(r.request, r.start + r.count - len(r.drafts)) for r in engine.scheduler.plan.rows]
    return sum(len(request.block_table) - -(-end // size) for request, end in ends)


def starts_with(twin: Engine, request: int, unit: str, more: int) -> bool:
    """Whether the twin's step admits a request when it has `more` of `unit`."""
    twin = copy.deepcopy(twin)
    if unit == "free block":
        find, pool = twin.cache.match_prefix, twin.pool

        def find_with_more(asked: Request):
            if asked.id == request:  # in the moment when it is asked, not before
                pool.free[:0] = range(pool.num_blocks, pool.num_blocks + more)
                pool.refs += [0] * more
            return find(asked)

        twin.cache.match_prefix = find_with_more
    else:
        name = {"seat": "max_batch_size", "token": "token_budget"}[unit]
        changed = {name: getattr(twin.config, name) + more}
        twin.scheduler.config = msgspec.structs.replace(twin.config, **changed)
        if (pages := twin.cache.pages) is not None:  # their number follows from the settings
            pages._free += range(pages.num_pages, pages.num_pages + 1000)
            pages.num_pages += 1000
    twin.scheduler.schedule()
    return request in [event.request for event in twin.log.of(v.Admitted)]


def watched_engine(workload: Workload, kind: type[Kind] = Witness) -> tuple[Engine, Kind]:
    """Return an engine, and the witness of this kind that is its log."""
    log, config = kind(), workload.config
    pool, parts = WatchedPool(config.num_blocks), {}
    if config.prefix_cache != "hash":
        parts["tree"] = WatchedTree(config.block_size)
    engine = make_engine(workload, log, pool=pool, **parts)
    if config.prefix_cache == "hash":
        engine.tree.__class__ = WatchedHash
        engine.tree.watch()
    log.engine = engine
    return engine, log


def spelled(node: RadixNode | HashNode) -> list[Any]:
    path, key = list[int](), ()
    while node.parent is not None:  # the node below the root has the key
        path[:0], key, node = node.tokens, node.extra_key, node.parent
    return keyed(path, key)


def keyed(tokens: Sequence[int], key: tuple[str, ...]) -> list[Any]:
    """Tokens that equal no tokens with another adapter or salt."""
    return [(key, token) for token in tokens] if key else list(tokens)


def common(one: list[int], other: list[int]) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length
