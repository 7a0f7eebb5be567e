"""A replica's real prefix tree as block keys, folded from its log and kept in a `BlockIndex`.

The fold (`engine/core/log/fold.py`) knows the tree of both caches, radix and hash. After each event
that changes the tree, only the keys of the changed node are updated.
"""

from collections.abc import Callable
from typing import Any

from engine.cluster.block_index import BlockIndex, block_keys, first_key
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.state import ROOT


class _State(State):
    """A replica's state without the lanes of a board and the order of eviction, a fifth of the work."""

    def _take_lane(self, request: int) -> None:
        pass

    def _move_lock(self, holder: v.RequestState | v.HoldState, node: int) -> None:
        holder.last_node = node


class ReplicaTree:
    """The tree of one replica, which must be in `index`.

    state  the replica's folded state; None before the first event
    seats  the requests that fit into a batch, as the log says; 1 before the first event
    slots  the token slots of all blocks; 1 before the first event
    free   token slots in blocks that are neither cached nor in use
    """

    def __init__(self, replica: str, index: BlockIndex) -> None:
        self.state: State | None = None
        self.seats = self.slots = 1
        self.free = 0
        self._block_size = 0
        self._replica = replica
        self._index = index
        self._keys: dict[int, list[int]] = {}  # node -> the keys of its blocks

    def apply(self, event: v.Event) -> list[int]:
        """Apply the next event and return the keys of blocks that are new in the tree.

        A run_started or a keyframe starts over. Raises ValueError for any other first event and, like
        `State.apply`, for an event that contradicts the earlier ones.
        """
        kind = type(event)
        if kind is v.RunStarted or kind is v.Keyframe:
            self.clear()
            self.state = _State()
        if self.state is None:
            raise ValueError(
                f"the events of replica {self._replica} must begin with run_started or keyframe, got "
                f"{kind.__struct_config__.tag}"
            )
        self.state.apply(event)
        new = _CHANGES[kind](self, event) if kind in _CHANGES else []
        self.free = len(self.state.free) * self._block_size
        return new

    def clear(self) -> None:
        """Remove all blocks from the tree and the index."""
        for keys in self._keys.values():
            self._index.discard(self._replica, keys)
        self._keys.clear()
        self.state, self.free = None, 0

    @property
    def is_off(self) -> bool:
        """Whether the replica, according to its log, caches no prefixes."""
        return self.state is not None and self.state.settings["prefix_cache"] == "off"

    @property
    def owed(self) -> int:
        """Prompt tokens that the replica, according to its log, has still to compute."""
        if self.state is None:
            return 0
        requests = self.state.requests.values()
        return sum(
            max(0, request.prompt_length - request.num_computed_tokens) for request in requests
        )

    # What an event changes in the tree; the result has the new keys

    def _started(self, _event: v.RunStarted | v.Keyframe) -> list[int]:
        assert self.state is not None
        self._block_size = self.state.block_size
        self.seats = self.state.settings["max_batch_size"]
        self.slots = self.state.settings["num_blocks"] * self._block_size
        new, nodes = list[int](), [ROOT]
        while nodes:
            node = nodes.pop()
            nodes += self.state.nodes[node].children
            if node != ROOT:
                new += self._grow(node)
        return new

    def _radix_grown(self, event: v.RadixInserted | v.RadixExtended) -> list[int]:
        return self._grow(event.node)

    def _added(self, event: v.BlocksStored | v.PrefixAdopted) -> list[int]:
        return [key for node in event.nodes for key in self._grow(node)]

    def _split(self, event: v.RadixSplit) -> list[int]:
        keys = self._keys[event.node]
        self._keys[event.upper], self._keys[event.node] = keys[: event.at], keys[event.at :]
        return []

    def _evicted(self, event: v.RadixEvicted | v.BlockEvicted | v.BlockWithdrawn) -> list[int]:
        assert self.state is not None
        if event.node not in self.state.nodes:  # otherwise another copy is left
            self._index.discard(self._replica, self._keys.pop(event.node))
        return []

    def _grow(self, node: int) -> list[int]:
        """Add the keys of blocks that are new at the end of a node's edge."""
        assert self.state is not None
        changed, size = self.state.nodes[node], self._block_size
        keys = self._keys.setdefault(node, [])
        if keys:
            before = keys[-1]
        elif changed.parent == ROOT:
            before = first_key(changed.extra_key)
        else:
            before = self._keys[changed.parent][-1]
        new = block_keys(changed.tokens[len(keys) * size :], size, before)
        keys += new
        self._index.add(self._replica, new)
        return new


_CHANGES: dict[type[v.Event], Callable[[ReplicaTree, Any], list[int]]] = {
    v.RunStarted: ReplicaTree._started,
    v.Keyframe: ReplicaTree._started,
    v.RadixInserted: ReplicaTree._radix_grown,
    v.RadixExtended: ReplicaTree._radix_grown,
    v.BlocksStored: ReplicaTree._added,
    v.PrefixAdopted: ReplicaTree._added,
    v.RadixSplit: ReplicaTree._split,
    v.RadixEvicted: ReplicaTree._evicted,
    v.BlockEvicted: ReplicaTree._evicted,
    v.BlockWithdrawn: ReplicaTree._evicted,
}
