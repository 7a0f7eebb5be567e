"""The state of an engine as plain values, without any engine object.

This is all the state that serving needs: a queue and a batch; a free stack and a reference count per
block; each request's computed tokens and block table; the tree of cached prefixes. `fold.py` applies
each event.

The whole state is an event, too: a keyframe. A window of the log begins with one, and so does the feed
of a client that joins a running engine.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from engine.core.log import vocabulary as v
from engine.core.log.expert_loads import packed, unpacked
from engine.core.log.lanes import Lanes

ROOT = 0
_CHUNK = 64
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class NodeState(v.NodeRecord):
    """A node of the folded tree, with the nodes below it."""

    children: set[int] = msgspec.field(default_factory=set)


class EngineState:
    """The fields are those of `StateCore` and `KeyframeState`, which explain them. Further ones:

    seq       number of the last applied event, -1 before the first
    plans     by step: the rows of the steps that are scheduled and have not finished. With asynchronous
              scheduling there may be two
    tiers     with memory below the GPU, for each tier the text of each used place, in order of use
    node_of   with the hash cache: the node of each cached block

    The engine itself has neither `source`, `expert_loads` nor `lanes`.
    """

    def __init__(self) -> None:
        self.seq = -1
        self.step = 0
        self.tick = 0
        self.paused = False
        self.settings: dict[str, Any] = {}
        self.classes: dict[str, str] = {}
        self.source: dict[str, Any] = {}
        self.waiting: OrderedDict[int, None] = OrderedDict()
        self.running: list[int] = []
        self.plans: dict[int, list[v.ScheduledRow]] = {}
        self.free: OrderedDict[int, None] = OrderedDict()
        self.queue: OrderedDict[int, None] = OrderedDict()
        self.refs: list[int] = []
        self.requests: dict[int, v.RequestState] = {}
        self.nodes: dict[int, NodeState] = {}
        self.node_of: dict[int, int] = {}
        self.window_pages: set[int] = set()
        self.tiers: dict[str, OrderedDict[int, str]] = {}
        self.adapters: list[str] = []
        self.holds: dict[int, v.HoldState] = {}
        self.reported: v.StepReported | None = None
        self.expert_loads: list[list[int]] = []
        self.lanes = Lanes()

    @property
    def plan(self) -> list[v.ScheduledRow]:
        """The rows of the current step; empty before it is scheduled and after it finished."""
        return self.plans.get(self.step, [])

    @property
    def block_size(self) -> int:
        """Token slots in a block."""
        return int(self.settings["block_size"])

    @property
    def has_windows(self) -> bool:
        """Whether sliding layers have a memory of window pages."""
        return "num_window_pages" in self.settings

    def cached_prefix(
        self,
        tokens: Sequence[int | str],
        tokens_of: Callable[[NodeState], Sequence[int | str]] = attrgetter("tokens"),
        extra_key: Sequence[str] = (),
    ) -> tuple[list[NodeState], int]:
        """Return the cached prefix of `tokens`: its nodes, and how many tokens agree with them.

        The last node may agree in part. `tokens_of` returns the tokens of a node's edge. The prefix is
        that of requests with this `extra_key`.
        """
        path, length, node = list[NodeState](), 0, self.nodes[ROOT]
        while node.children:
            rest = tokens[length:]
            node, agree = max(
                (
                    (child, common_length(tokens_of(child), rest))
                    for child in map(self.nodes.__getitem__, node.children)
                    if path or child.extra_key == [*extra_key]
                ),
                key=itemgetter(1),
                default=(node, 0),
            )
            if not agree:
                break
            path.append(node)
            length += agree
            if agree < len(tokens_of(node)):
                break
        return path, length

    def usable_prefix(self, copies: Sequence[Sequence[int]]) -> list[int]:
        """Return the blocks of a cached prefix that a request can use.

        `copies` has each block's copies, the oldest first; without sliding layers that is the one that
        is used. With them, it is the oldest that has a window page, and the prefix ends where each
        block in the window before its end has one.
        """
        blocks = [
            next((one for one in same if one in self.window_pages), same[0]) for same in copies
        ]
        if not self.has_windows:
            return blocks
        size, before = self.block_size, int(self.settings["window"]) - 1
        longest = in_a_row = 0
        for end, block in enumerate(blocks, start=1):
            in_a_row = in_a_row + 1 if block in self.window_pages else 0
            if in_a_row * size >= min(before, end * size):
                longest = end
        return blocks[:longest]

    def evicted_blocks(self, event: v.RadixEvicted | v.BlockEvicted) -> list[int]:
        """Return the blocks that the next event, an eviction, will free."""
        return [event.block] if isinstance(event, v.BlockEvicted) else self.nodes[event.node].blocks

    @property
    def is_hashed(self) -> bool:
        """Whether the prefix cache is a hash table, not a radix tree."""
        return bool(self.settings["prefix_cache"] == "hash")

    @property
    def frees_tail_first(self) -> bool:
        """Whether the last block of a released block table is the first to be allocated again."""
        return bool(self.settings["prefix_cache"] != "radix")

    @property
    def evictable(self) -> int:
        """The number of cached blocks that no request or hold uses."""
        if self.is_hashed:
            return len(self.queue)
        return sum(len(node.blocks) for node in self.nodes.values() if not node.lock_ref)

    def free_before_drafts(self, rows: list[v.ScheduledRow]) -> int:
        """Count the free blocks when the head of the queue was examined, before drafts took any."""
        free = len(self.free)
        for row in rows:
            end = row.start + row.count - len(row.drafts)
            free += len(self.requests[row.request].block_table) - -(-end // self.block_size)
        return free

    def adopted_prefix(self, node: int) -> tuple[int, str]:
        """Return how many tokens of a prefix, to the end of a node, were adopted, and from where."""
        tokens, sources = 0, dict[str, None]()
        while node != ROOT:
            here = self.nodes[node]
            if here.source:
                tokens += len(here.tokens)
                sources[here.source] = None
            node = here.parent
        return tokens, " and ".join(sources)

    def prefix_tokens(self, node: int) -> list[int]:
        """Return all tokens from the root to the end of a node's edge."""
        tokens: list[int] = []
        while node != ROOT:
            tokens = self.nodes[node].tokens + tokens
            node = self.nodes[node].parent
        return tokens

    def prefix_key(self, node: int) -> list[str]:
        """Return the `extra_key` of the requests that may find a node: the top of its path has it."""
        while (parent := self.nodes[node].parent) != ROOT:
            node = parent
        return self.nodes[node].extra_key

    def prefix_texts(self, node: int) -> list[str]:
        """Return the pieces of `prefix_tokens`, one per token."""
        texts: list[str] = []
        while node != ROOT:
            texts = self.nodes[node].texts + texts
            node = self.nodes[node].parent
        return texts

    def core(self) -> dict[str, Any]:
        """Return the state as plain values, without what viewers show: `StateCore`."""
        core: dict[str, Any] = msgspec.to_builtins(
            v.StateCore(
                **self._engine(),
                requests=_copies(self.requests, v.RequestCore),
                nodes=_copies(self.nodes, v.NodeCore),
                holds=_copies(self.holds, v.HoldCore),
            )
        )
        return core

    def keyframe(self) -> v.Keyframe:
        """Return the whole state as an event: the start of a window or of a live join."""
        state = v.KeyframeState(
            **self._engine(),
            requests=_copies(self.requests, v.RequestState),
            nodes=_copies(self.nodes, v.NodeRecord),
            holds=_copies(self.holds, v.HoldState),
            settings=dict(self.settings),
            classes=dict(self.classes),
            source=dict(self.source),
            reported=self.reported,
            expert_loads=[packed(layer) for layer in self.expert_loads],
            lanes=self.lanes.plain(),
            tier_texts={name: list(tier.values()) for name, tier in self.tiers.items()},
            schema=v.KEYFRAME_SCHEMA_VERSION,
        )
        return v.Keyframe(self.seq, state)

    def _engine(self) -> dict[str, Any]:
        """Return the fields of `StateCore` that are not about requests, nodes and holds."""
        plans = self.plans.items()
        return {
            "seq": self.seq,
            "step": self.step,
            "tick": self.tick,
            "paused": self.paused,
            "waiting": list(self.waiting),
            "running": list(self.running),
            "plan": list(self.plan),
            "in_flight": [(step, list(rows)) for step, rows in plans if rows and step != self.step],
            "free": list(self.free),
            "queue": list(self.queue),
            "refs": list(self.refs),
            "window_pages": sorted(self.window_pages) if self.has_windows else None,
            "tiers": {name: list(tier) for name, tier in self.tiers.items()} or None,
            "adapters": list(self.adapters),
        }

    def restore(self, event: v.Keyframe) -> None:
        """Replace the state with a keyframe's."""
        state = event.state
        self.seq, self.step, self.tick = event.seq, state.step, state.tick
        self.paused, self.reported = state.paused, state.reported
        self.settings, self.classes = dict(state.settings), dict(state.classes)
        self.source = dict(state.source)
        self.waiting = OrderedDict.fromkeys(state.waiting)
        self.running = list(state.running)
        plans = [*state.in_flight, (self.step, state.plan)]
        self.plans = {step: list(rows) for step, rows in plans if rows}
        self.free = OrderedDict.fromkeys(state.free)
        self.queue = OrderedDict.fromkeys(state.queue)
        self.window_pages = set(state.window_pages or ())
        self.tiers = {
            name: OrderedDict(zip(slots, state.tier_texts[name], strict=True))
            for name, slots in (state.tiers or {}).items()
        }
        self.adapters = list(state.adapters)
        self.requests = {one.id: _copy(one, v.RequestState) for one in state.requests}
        self.nodes = {one.id: _copy(one, NodeState) for one in state.nodes}
        self.holds = {one.id: _copy(one, v.HoldState) for one in state.holds}
        self.expert_loads = [unpacked(layer) for layer in state.expert_loads]
        self.lanes = Lanes(state.lanes)
        for request in (*self.running, *self.waiting):
            if request in self.running or self.requests[request].preemptions:
                self._take_lane(request)
        self._recount()

    def _take_lane(self, request: int) -> None:
        """Give a request a lane, unless it has one."""
        if self.lanes.of(request) is None:
            label, seats = self.requests[request].label, self.settings["max_batch_size"]
            self.lanes.take(request, label, self.step, seats)

    def _reference(self, blocks: list[int]) -> None:
        for block in blocks:
            self.refs[block] += 1

    def _recount(self) -> None:
        """Derive children and reference counts, which a keyframe lacks or may have wrong."""
        self.refs = [0] * self.settings["num_blocks"]
        self.node_of = {}
        for node in self.nodes.values():
            self._reference(node.blocks)
            self._reference(node.copies)
            if node.id != ROOT:
                self.nodes[node.parent].children.add(node.id)
            if self.is_hashed:
                self.node_of |= dict.fromkeys(node.blocks + node.copies, node.id)
        for request in self.requests.values():
            self._reference(request.held_blocks)
        for hold in self.holds.values():
            self._reference(hold.block_table)


def common_length(one: Sequence[int | str], other: Sequence[int | str]) -> int:
    """Return the length of the longest common prefix. An unknown token, -1, equals no other."""
    end, at = min(len(one), len(other)), 0
    while at < end and one[at : at + _CHUNK] == other[at : at + _CHUNK]:
        if -1 in one[at : at + _CHUNK]:
            break
        at += _CHUNK
    at = min(at, end)
    while at < end and one[at] == other[at] != -1:
        at += 1
    return at


def _copies(states: Mapping[int, msgspec.Struct], kind: type[_Struct]) -> list[_Struct]:
    return [_copy(one, kind) for _, one in sorted(states.items())]


def _copy(one: msgspec.Struct, kind: type[_Struct]) -> _Struct:
    """Return the fields that a base or a subclass `kind` has in common, without sharing a list."""
    values = structs.astuple(one)[: len(kind.__struct_fields__)]
    return kind(*(list(value) if type(value) is list else value for value in values))
