"""What each KV block is used for at the end of a step, counted while a log is folded."""

from collections.abc import Iterable

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from visualizer.indexed.handlers import Handlers

_FREE, _CACHED, _UNSHARED, _SHARED = range(4)


class BlockFacts:
    """Counts blocks by their use. Only blocks that an event has named are looked at again.

    cached  the blocks in the prefix cache
    reach   one more than the highest number of a block that was ever allocated
    """

    def __init__(self, state: State) -> None:
        self.cached: set[int] = set()
        self.reach = 0
        self._state = state
        self._uses = bytearray()  # of each block, when it was last looked at
        self._counts = [0, 0, 0, 0]
        self._touched: set[int] = set()  # since then
        self.before: Handlers = {
            v.Admitted: self._touch,
            v.BlocksAllocated: self._allocated,
            v.GroupTableChanged: self._group_changed,
            v.BlockCopied: self._copied,
            v.Preempted: self._table_changes,
            v.RadixEvicted: self._evicted,
            v.BlockEvicted: self._evicted,
            v.BlockWithdrawn: self._withdrawn,
            v.RequestFinished: self._table_changes,
            v.Forked: self._forked,
            v.BlocksTrimmed: self._table_changes,
            v.RadixJoined: self._joined,
            v.RadixInserted: self._stored,
            v.RadixExtended: self._stored,
            v.BlocksStored: self._stored,
            v.PrefixAdopted: self._adopted,
            v.PrefixHeld: self._touch,
            v.PrefixReleased: self._released,
        }
        self.after: Handlers = {
            v.RunStarted: self._begin,
            v.Keyframe: self._rejoin,
            v.PrefixAdopted: self._path_changes,
            v.BlocksReported: self._reported,
        }

    def count(self) -> list[int]:
        """Return how many blocks are free, only cached, in one block table, and in several."""
        refs, uses, counts, cached = self._state.refs, self._uses, self._counts, self.cached
        if len(refs) > len(uses):  # another engine reported further blocks
            counts[_FREE] += len(refs) - len(uses)
            uses.extend(bytes(len(refs) - len(uses)))
        held = [block for hold in self._state.holds.values() for block in hold.block_table]
        for block in self._touched:
            if not (owners := refs[block]):
                use = _FREE
            else:
                owners -= (block in cached) + (held.count(block) if held else 0)
                use = _SHARED if owners > 1 else _UNSHARED if owners == 1 else _CACHED
            if (before := uses[block]) != use:
                counts[before] -= 1
                counts[use] += 1
                uses[block] = use
        self._touched.clear()
        return counts

    def _begin(self, _event: v.Event) -> None:
        blocks = len(self._state.refs)
        self._uses = bytearray(blocks)
        self._counts[_FREE] = blocks

    def _rejoin(self, event: v.Keyframe) -> None:
        state = self._state
        self._begin(event)
        for node in state.nodes.values():
            self.cached.update(node.blocks, node.copies)
        self._touched.update(range(len(state.refs)))
        self._reaches(block for block, refs in enumerate(state.refs) if refs)

    def _reaches(self, blocks: Iterable[int]) -> None:
        self.reach = max(self.reach, max(blocks, default=-1) + 1)

    def _touch(self, event: v.Admitted | v.PrefixHeld) -> None:
        self._touched.update(event.blocks)

    def _allocated(self, event: v.BlocksAllocated) -> None:
        self._touched.update(event.blocks)
        self._reaches(event.blocks)

    def _group_changed(self, event: v.GroupTableChanged) -> None:
        blocks = [block for _, block in event.changes if block >= 0]
        self._touched.update(self._state.requests[event.request].held_blocks, blocks)
        self._reaches(blocks)

    def _copied(self, event: v.BlockCopied) -> None:
        self._touched.update((event.block, event.source))
        self._reaches((event.block,))

    def _table_changes(self, event: v.Preempted | v.RequestFinished | v.BlocksTrimmed) -> None:
        self._touched.update(self._state.requests[event.request].held_blocks)

    def _forked(self, event: v.Forked) -> None:
        self._touched.update(self._state.requests[event.parent].block_table)

    def _joined(self, event: v.RadixJoined) -> None:
        self._touched.update(self._state.requests[event.request].block_table, event.blocks)

    def _stored(
        self, event: v.RadixInserted | v.RadixExtended | v.BlocksStored | v.PrefixAdopted
    ) -> None:
        self.cached.update(event.blocks)
        self._touched.update(event.blocks)

    def _adopted(self, event: v.PrefixAdopted) -> None:
        self._stored(event)
        self._reaches(event.blocks)

    def _path_changes(self, event: v.PrefixAdopted) -> None:
        self._touched.update(*(node.blocks for node in self._state._path(event.nodes[-1])))

    def _released(self, event: v.PrefixReleased) -> None:
        self._touched.update(self._state.holds[event.hold].block_table)

    def _evicted(self, event: v.RadixEvicted | v.BlockEvicted) -> None:
        blocks = self._state.evicted_blocks(event)
        self.cached.difference_update(blocks)
        self._touched.update(blocks)

    def _withdrawn(self, event: v.BlockWithdrawn) -> None:
        self.cached.discard(event.block)
        self._touched.add(event.block)

    def _reported(self, event: v.BlocksReported) -> None:
        self.cached.update(event.blocks)
        self._touched.update(event.blocks)
        self.reach = len(self._state.refs)
