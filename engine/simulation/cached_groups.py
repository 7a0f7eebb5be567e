"""Which blocks of several KV cache groups can be found, folded from the events of a log.

The log has the tables of all groups, but the prefix tree of only one. Which blocks of the others can be
found follows from its events, with the rules of `kv_groups.py`: full blocks of a request become
findable together, a block stops being so when it is allocated again, and a released block joins the end
of the queue if it can be found, and else its front.

The fold may begin at a keyframe. Of the blocks that no table has then, it knows only those of the
prefix tree, until they are allocated again.
"""

from collections import OrderedDict, defaultdict
from typing import NamedTuple

from engine.core.log import vocabulary as v
from engine.extensions.kv_groups import KVGroups, keeps


class CachedBlock(NamedTuple):
    """A block that a request can find: its place among the groups in the log, and its node."""

    place: int
    node: int


class CachedGroups:
    """The blocks of all groups, from the beginning of a run on, or from a keyframe.

    count  the number of groups
    """

    def __init__(self, groups: KVGroups, num_blocks: int) -> None:
        main = next(at for at, one in enumerate(groups.groups) if one.kind == "full")
        self._groups = [groups.groups[main], *groups.groups[:main], *groups.groups[main + 1 :]]
        self.count = len(groups.groups)
        self._released = [*range(1, main + 1), 0, *range(main + 1, len(groups.groups))]
        self._retention = groups.retention
        self._size = groups.groups[main].block_size
        self._tables = dict[int, list[list[int]]]()
        self._prompts, self._junctions = dict[int, int](), dict[int, int]()
        self._stored = defaultdict[int, int](int)  # request -> blocks that can be found
        self._running = set[int]()
        self._refs = defaultdict[int, int](int)
        self._key = dict[int, CachedBlock]()  # of each findable block
        self._queue = OrderedDict.fromkeys(range(num_blocks))

    def _begin(self, state: v.KeyframeState) -> None:
        for node in state.nodes:
            self._key |= {block: CachedBlock(0, node.id) for block in node.blocks}
        nodes = {node.id: node for node in state.nodes}
        depths = {node.id: 0 for node in state.nodes if node.parent < 0}
        for node in state.nodes:  # parents come first
            depths[node.id] = depths.get(node.parent, -1) + 1
        for one in state.requests:
            self._prompts[one.id] = one.prompt_length
            self._tables[one.id] = [list(one.block_table), *map(list, one.group_tables)]
            self._tables[one.id] += [[] for _ in self._groups[len(self._tables[one.id]) :]]
            self._stored[one.id] = depths.get(one.last_node, 0)
            self._find_again(one, nodes)
            for block in one.held_blocks:
                self._take(block)
        self._running.update(state.running)
        for block in state.queue:
            self._queue.move_to_end(block)

    def _find_again(self, one: v.RequestState, nodes: dict[int, v.NodeRecord]) -> None:
        """Note which blocks of a table can be found, as far as the state shows it."""
        way, node = list[int](), one.last_node
        while node in nodes and nodes[node].parent >= 0:
            way.append(node)
            node = nodes[node].parent
        ends = [(one.prompt_length - 1) // self._size]
        for place, table in enumerate(one.group_tables, 1):
            for index, (block, end) in enumerate(zip(table, reversed(way), strict=False)):
                if block >= 0 and keeps(self._groups[place], self._retention, index, ends):
                    self._key[block] = CachedBlock(place, end)

    def cached(self) -> tuple[list[int], dict[int, CachedBlock], dict[int, int]]:
        """Return `queue`, `found` and `junctions` of a `GroupMemory`, as they are now."""
        found = {block: one for block, one in self._key.items() if one.place}
        return list(self._queue), found, dict(self._junctions)

    def apply(self, event: v.Event) -> None:
        """Note an event."""
        match event:
            case v.Keyframe():
                self._begin(event.state)
            case v.RequestArrived():
                self._prompts[event.request] = len(event.prompt)
            case v.GroupTableChanged():
                self._change(event)
            case v.Admitted():
                self._admit(event)
            case v.BlocksAllocated():
                for block in event.blocks:
                    self._key.pop(block, None)
                    self._take(block)
                self._tables_of(event.request)[0] += event.blocks
            case v.BlocksStored():
                self._store(event)
            case v.BlockWithdrawn():
                self._withdraw(event)
            case v.BlockEvicted(reason="cleared"):
                self._key.clear()
            case v.BlockEvicted():
                self._key.pop(event.block, None)
            case v.BlocksTrimmed():
                self._trim(event)
            case v.Preempted() | v.RequestFinished():
                self._free(event.request)

    def _withdraw(self, event: v.BlockWithdrawn) -> None:
        self._key.pop(event.block, None)
        self._stored[event.request] -= 1
        for table in self._tables_of(event.request)[1:]:
            for block in table[self._stored[event.request] :]:
                self._key.pop(block, None)

    def _trim(self, event: v.BlocksTrimmed) -> None:
        table = self._tables_of(event.request)[0]
        for block in table[event.keep :][::-1]:
            self._release(block)
        del table[event.keep :]
        self._stored[event.request] = min(self._stored[event.request], event.keep)

    def _tables_of(self, request: int) -> list[list[int]]:
        return self._tables.setdefault(request, [[] for _ in self._groups])

    def _change(self, event: v.GroupTableChanged) -> None:
        table = self._tables_of(event.request)[event.group]
        for index, _ in sorted(event.changes, reverse=True):
            if index < len(table) and table[index] >= 0:
                self._release(table[index])
        for index, block in event.changes:
            table += [-1] * (index + 1 - len(table))
            table[index] = block
            if block >= 0:
                self._take(block)
                if event.request in self._running:  # else its admission says which are new
                    self._key.pop(block, None)

    def _admit(self, event: v.Admitted) -> None:
        request, cached = event.request, len(event.blocks)
        main, *others = self._tables_of(request)
        main += event.blocks
        for block in event.blocks:
            self._take(block)
        for table in others:
            for block in table[cached:]:
                self._key.pop(block, None)
        self._stored[request] = cached
        self._running.add(request)
        longest = event.hits[0] // self._size if event.hits else 0
        self._junctions[request] = longest if longest > cached else 0

    def _store(self, event: v.BlocksStored) -> None:
        request = event.request
        first, prompt = self._stored[request], self._prompts.get(request, 0)
        self._stored[request] += len(event.nodes)
        self._key |= {
            block: CachedBlock(0, node)
            for node, block in zip(event.nodes, event.blocks, strict=True)
        }
        ends = [(prompt - 1) // self._size, self._junctions.get(request, 0)]
        for place, table in enumerate(self._tables_of(request)):
            for index, node in enumerate(event.nodes, first):
                block = table[index] if place and index < len(table) else -1
                if block >= 0 and keeps(self._groups[place], self._retention, index, ends):
                    self._key[block] = CachedBlock(place, node)

    def _free(self, request: int) -> None:
        if tables := self._tables.pop(request, None):
            for block in (one for place in self._released for one in tables[place][::-1]):
                if block >= 0:
                    self._release(block)
        self._running.discard(request)
        self._stored.pop(request, None)
        self._junctions.pop(request, None)

    def _take(self, block: int) -> None:
        self._queue.pop(block, None)
        self._refs[block] += 1

    def _release(self, block: int) -> None:
        self._refs[block] -= 1
        if self._refs[block] <= 0:
            self._refs[block] = 0
            self._queue[block] = None
            self._queue.move_to_end(block, last=block in self._key)
