"""Restore the memory of several KV cache groups, block by block, as it was in the middle of a run.

Every block is where it was: in the same tables, findable by the same prefix, and at the same place in
the queue of free blocks. With less memory than recorded, the front of that queue is evicted; with more,
the additional blocks come first.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from engine.core.cache.hash_cache import ROOT, HashNode
from engine.core.cache.prefix_cache import Adopted
from engine.core.engine import Engine
from engine.core.log import vocabulary as v
from engine.core.request import Request
from engine.extensions.grouped_cache import (
    NO_BLOCK,
    GroupedCache,
    GroupMatch,
    prefix_hash,
    prefix_hashes,
)
from engine.extensions.kv_transfer import ADOPTING
from engine.extensions.prefix_keys import keyed
from engine.simulation.group_memory import GroupMemory

_SOURCE = "the run before"


class RestoredGroups:
    """The memory of several groups in an engine that has not run yet.

    kept  the tables of the requests that have room, by request
    """

    def __init__(self, engine: Engine, memory: GroupMemory, requests: Sequence[int]) -> None:
        """Fill an engine's memory. Its `requests` ran, in the order of their admission."""
        assert isinstance(engine.cache, GroupedCache)
        self._engine, self._cache, self._memory = engine, engine.cache, memory
        self._records = {one.id: one for one in memory.nodes if one.id != ROOT}
        self._found = memory.found
        if not self._cache.enabled:
            self._records, self._found = {}, {}
        self.kept = dict[int, list[list[int]]]()
        used = self._keep(requests)
        numbers, queue = self._placed(used)
        self.kept = {
            request: [[numbers.get(block, NO_BLOCK) for block in table] for table in tables]
            for request, tables in self.kept.items()
        }
        self._cache.pool.queue = OrderedDict.fromkeys(queue)
        self._nodes, self._hashes = {ROOT: self._cache.nodes[ROOT]}, {ROOT: b""}
        self._make_nodes(numbers)
        for block, (place, node) in self._found.items():
            if block in numbers:
                self._cache._make_findable(numbers[block], (place - 1, self._hash(node)))

    def match(self, request: int) -> GroupMatch:
        """Return what a request had; of full attention, the blocks that others can find, too."""
        main, *others = self.kept[request]
        cached = self._cached(request)
        node = self._nodes[self._memory.ends[request] if cached else ROOT]
        return GroupMatch(node, main[:cached], others, cached)

    def give_rest(self, request: Request) -> None:
        """Give an admitted request the blocks of full attention that only it can find."""
        rest = self.kept[request.id][0][len(request.block_table) :]
        for block in rest:
            self._cache.pool.take(block)
        request.block_table += rest
        if rest:
            self._cache._emit(v.BlocksAllocated(request.id, rest))
        self._cache.junctions[request.id] = self._memory.junctions.get(request.id, 0)

    def _cached(self, request: int) -> int:
        """Return how many blocks of full attention a request has that others can find."""
        return sum(1 for _ in self._way(self._memory.ends[request]))

    def _way(self, node: int) -> Iterator[v.NodeRecord]:
        """Yield the nodes from one up to the root."""
        while node in self._records:
            yield self._records[node]
            node = self._records[node].parent

    # Blocks, by their number in the other run

    def _keep(self, requests: Sequence[int]) -> set[int]:
        """Note the tables of requests that have room. Return their blocks."""
        used = set[int]()
        new = max((*self._memory.queue, *self._memory.held), default=0) + 1
        for request in requests:
            cached, tables = self._cached(request), list[list[int]]()
            for place, table in enumerate(self._memory.tables[request]):
                tables.append(list(table))
                for index, block in enumerate(table):
                    is_shared = block in self._found if place else index < cached
                    if block in used and not is_shared:  # without a prefix cache, each has its own
                        tables[-1][index], new = new, new + 1
            blocks = {block for table in tables for block in table if block != NO_BLOCK}
            if len(used | blocks) > self._cache.pool.num_blocks:
                break
            used |= blocks
            self.kept[request] = tables
        return used

    def _placed(self, used: set[int]) -> tuple[dict[int, int], list[int]]:
        """Return the new number of each block that there is room for, and the new queue."""
        findable = {block for one in self._records.values() for block in (*one.blocks, *one.copies)}
        findable.update(self._found)
        others = [one for one in self._memory.held if one not in used]
        queue = [one for one in others if one not in findable]
        queue += [one for one in self._memory.queue if one not in used]
        queue += [one for one in others if one in findable]
        size = self._cache.pool.num_blocks
        queue = queue[max(0, len(queue) + len(used) - size) :]
        there = used.union(queue)
        spare = iter([one for one in range(size) if one not in there])
        numbers = {one: one if one < size else next(spare) for one in (*used, *queue)}
        return numbers, [*spare, *(numbers[one] for one in queue)]

    # The prefix tree of full attention

    def _make_nodes(self, numbers: dict[int, int]) -> None:
        """Cache the blocks of full attention; each log entry has blocks of one path."""
        cache, pool, number_of = self._cache, self._cache.pool, dict[int, int]()
        for one in self._records.values():  # parents come first
            blocks = [numbers[block] for block in (*one.blocks, *one.copies) if block in numbers]
            if not blocks or one.parent not in self._nodes:
                continue
            node = cache._child(self._nodes[one.parent], keyed(one.tokens, tuple(one.extra_key)))
            node.blocks, node.copies = blocks[:1], blocks[1:]
            self._nodes[one.id], number_of[node.id] = node, one.id
            for block in blocks:
                cache._node_of[block], pool.refs[block] = node, 1
                pool.free.pop(block, None)
        cache._queue = OrderedDict.fromkeys(one for one in pool.queue if one in cache._node_of)
        used = {block: at for at, block in enumerate(cache._queue)}
        above = {one.parent for one in self._nodes.values()}
        leaves = [one for one in self._nodes.values() if one not in above and one.blocks]
        leaves.sort(key=lambda one: used.get(one.blocks[0], len(used)))
        logged = dict[HashNode, int]()  # how many of its blocks are in the log
        for leaf in leaves:
            way, at = list[HashNode](), leaf
            while at.parent is not None:
                way.append(at)
                at = at.parent
            self._log(way[::-1], number_of, logged)
        if cache._queue:  # an owner of all evictable blocks gives them back in this order
            cache._emit(v.PrefixHeld(1, ROOT, [*cache._queue][::-1], ADOPTING))
            cache._emit(v.PrefixReleased(1, "released"))

    def _log(
        self, way: list[HashNode], numbers: dict[int, int], logged: dict[HashNode, int]
    ) -> None:
        """Log the blocks of a path, and then the copies of its blocks."""
        for copy in range(max(1 + len(one.copies) for one in way)):
            run = list[HashNode]()
            for one in (*way, None):
                if one and logged.get(one, 0) == copy <= len(one.copies):
                    logged[one] = copy + 1
                    run.append(one)
                elif run:
                    self._log_run(run, numbers, copy)
                    run = []

    def _log_run(self, run: list[HashNode], numbers: dict[int, int], copy: int) -> None:
        """Log a copy of some nodes that follow one another."""
        assert run[0].parent is not None
        blocks = [[*one.blocks, *one.copies][copy] for one in run]
        adopted = Adopted(run[0].parent.id, [one.id for one in run], blocks)
        records = [self._records[numbers[one.id]] for one in run]
        tokens = [token for one in records for token in one.tokens]
        texts = [text for one in records for text in one.texts or [""] * len(one.tokens)]
        recorder = self._engine.recorder
        recorder.prefix_adopted(
            adopted, tokens, texts, _SOURCE, num_window_pages=0, began=self._engine.clock.now()
        )

    def _hash(self, node: int) -> bytes:
        """Return the hash of a prefix, by the number that its last node had."""
        if node not in self._hashes:
            if (one := self._records.get(node)) is not None:
                above, key = self._hash(one.parent), tuple(one.extra_key)
                self._hashes[node] = prefix_hash(above, key, tuple(one.tokens))
            elif (prefix := self._memory.gone.get(node)) is not None:
                count = len(prefix) // self._cache.block_size
                self._hashes[node] = prefix_hashes(prefix, self._cache.block_size, count)[-1]
            else:
                self._hashes[node] = str(node).encode()  # no request has this prefix later
        return self._hashes[node]
