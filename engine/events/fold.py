"""The fold: events in, the engine's state out.

`State().apply(event)` for events 0..k gives exactly the state that the engine had after event k.
Everything that shows a run reads this and never an engine object. It shares no code with the engine,
and `Engine.snapshot()`, which reads the live objects, shares none with it: a test holds the two equal
after every event of random workloads. `visualizer/frontend/src/model/fold.js` does the same in the
browser.

Three helpers carry most of it: `_take` takes blocks off the free stack, `_drop` gives references back,
`_move_lock` counts live readers along a path of the tree.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.events.vocabulary import (
    SCHEMA_VERSION,
    Admitted,
    BlockCopied,
    BlocksAllocated,
    BlocksTrimmed,
    Event,
    Forked,
    Keyframe,
    Preempted,
    PrefixHeld,
    PrefixReleased,
    RadixEvicted,
    RadixExtended,
    RadixInserted,
    RadixJoined,
    RadixSplit,
    RequestArrived,
    RequestFinished,
    RunStarted,
    ScheduledRow,
    StepFinished,
    StepScheduled,
    StepStarted,
)

ROOT = 0


@dataclass(slots=True)
class RequestState:
    """A live request. `texts` has one piece per token; the last block of fields is for display."""

    id: int
    root: int
    sample: int
    prompt_length: int
    tokens: list[int]
    computed: int
    table: list[int]
    lock: int
    slots: int
    preemptions: int
    texts: list[str]
    label: str
    priority: int
    max_tokens: int
    sampling: dict[str, Any]


@dataclass(slots=True)
class HoldState:
    """A prefix that somebody holds; `label` is for display."""

    id: int
    table: list[int]
    lock: int
    label: str


@dataclass(slots=True)
class NodeState:
    """A node of the radix tree with the edge above it."""

    id: int
    parent: int
    tokens: list[int]
    texts: list[str]
    blocks: list[int]
    last: int
    lock: int = 0
    children: set[int] = field(default_factory=set)


class State:
    """The folded state. Fields have the names that the keyframe and `core()` use."""

    def __init__(self) -> None:
        self.seq = -1
        self.step = 0
        self.tick = 0
        self.settings: dict[str, Any] = {}
        self.classes: dict[str, str] = {}  # what runs, as in run_started
        self.waiting: OrderedDict[int, None] = OrderedDict()
        self.running: list[int] = []
        self.plan: list[ScheduledRow] = []
        self.free: list[int] = []
        self.refs: list[int] = []
        self.requests: dict[int, RequestState] = {}
        self.nodes: dict[int, NodeState] = {}
        self.holds: dict[int, HoldState] = {}

    def apply(self, event: Event) -> None:
        """Take one event into account. Events must come in order, beginning with the first."""
        self.seq += 1
        _FOLD[type(event)](self, event)

    @property
    def block_size(self) -> int:
        """Token slots in a block."""
        return int(self.settings["block_size"])

    def core(self) -> dict[str, Any]:
        """The state without display fields: plain values, equal to `Engine.snapshot()`."""
        return {
            "seq": self.seq,
            "step": self.step,
            "tick": self.tick,
            "waiting": list(self.waiting),
            "running": list(self.running),
            "plan": [[row.request, row.start, row.count, list(row.drafts)] for row in self.plan],
            "free": list(self.free),
            "refs": list(self.refs),
            "requests": [
                {name: _plain(getattr(request, name)) for name in _CORE_REQUEST}
                for _, request in sorted(self.requests.items())
            ],
            "nodes": [
                {name: _plain(getattr(node, name)) for name in _CORE_NODE}
                for _, node in sorted(self.nodes.items())
            ],
            "holds": [
                {"id": hold.id, "table": list(hold.table), "lock": hold.lock}
                for _, hold in sorted(self.holds.items())
            ],
        }

    def keyframe(self) -> Keyframe:
        """The whole state as an event: where a window of the log, or a live join, begins."""
        state = self.core()
        state |= {"schema": SCHEMA_VERSION, "settings": dict(self.settings)}
        state["classes"] = dict(self.classes)
        for entry in state["requests"]:
            request = self.requests[entry["id"]]
            entry |= {name: _plain(getattr(request, name)) for name in _DISPLAY_REQUEST}
        for entry in state["nodes"]:
            entry["texts"] = list(self.nodes[entry["id"]].texts)
        for entry in state["holds"]:
            entry["label"] = self.holds[entry["id"]].label
        return Keyframe(self.seq, state)

    # Helpers

    def _take(self, blocks: list[int]) -> None:
        for block in blocks:
            if self.free and self.free[-1] == block:
                self.free.pop()
            elif block in self.free:  # a pool that somebody wrote takes whichever it likes
                self.free.remove(block)
            else:
                raise ValueError(f"event {self.seq} takes block {block}, which is not free")
            self.refs[block] = 1

    def _drop(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.free.append(block)

    def _share(self, blocks: list[int]) -> None:
        for block in blocks:
            self.refs[block] += 1

    def _path(self, node: int) -> Iterator[NodeState]:
        while node != ROOT:
            yield self.nodes[node]
            node = self.nodes[node].parent

    def _move_lock(self, holder: RequestState | HoldState, node: int) -> None:
        if holder.lock == node == ROOT:
            return
        self.tick += 1
        for above in self._path(node):
            above.lock += 1
            above.last = self.tick
        for above in self._path(holder.lock):
            above.lock -= 1
            above.last = self.tick
        holder.lock = node

    def _release(self, request: RequestState) -> None:
        self._drop(request.table)
        request.table = []
        request.computed = 0
        self._move_lock(request, ROOT)

    def _cached_blocks(self, request: RequestState) -> int:
        return sum(len(node.blocks) for node in self._path(request.lock))

    # One method per kind of event

    def _run_started(self, event: RunStarted) -> None:
        self.settings = dict(event.settings)
        self.classes = dict(event.classes)
        blocks = self.settings["num_blocks"]
        self.free = list(range(blocks - 1, -1, -1))
        self.refs = [0] * blocks
        self.nodes = {ROOT: NodeState(ROOT, -1, [], [], [], 0)}

    def _request_arrived(self, event: RequestArrived) -> None:
        self.requests[event.request] = RequestState(
            id=event.request,
            root=event.request,
            sample=0,
            prompt_length=len(event.prompt),
            tokens=list(event.prompt),
            computed=0,
            table=[],
            lock=ROOT,
            slots=event.n,
            preemptions=0,
            texts=list(event.texts),
            label=event.label,
            priority=event.priority,
            max_tokens=event.max_tokens,
            sampling=event.sampling,
        )
        self.waiting[event.request] = None

    def _step_started(self, event: StepStarted) -> None:
        self.step = event.step

    def _admitted(self, event: Admitted) -> None:
        request = self.requests[event.request]
        del self.waiting[event.request]
        self.running.append(event.request)
        self._share(event.blocks)
        request.table = list(event.blocks)
        request.computed = len(event.blocks) * self.block_size
        self._move_lock(request, event.node)

    def _blocks_allocated(self, event: BlocksAllocated) -> None:
        self._take(event.blocks)
        self.requests[event.request].table += event.blocks

    def _block_copied(self, event: BlockCopied) -> None:
        self._take([event.block])
        self.requests[event.request].table[event.index] = event.block
        self._drop([event.source])

    def _preempted(self, event: Preempted) -> None:
        request = self.requests[event.request]
        self.running.remove(event.request)
        self._release(request)
        request.preemptions += 1
        self.waiting[event.request] = None
        self.waiting.move_to_end(event.request, last=False)

    def _radix_evicted(self, event: RadixEvicted) -> None:
        node = self.nodes.pop(event.node)
        self.nodes[node.parent].children.remove(node.id)
        self._drop(node.blocks)

    def _step_scheduled(self, event: StepScheduled) -> None:
        self.plan = list(event.rows)

    def _forked(self, event: Forked) -> None:
        parent = self.requests[event.parent]
        parent.slots = 1
        sample = RequestState(
            id=event.request,
            root=parent.root,
            sample=event.sample,
            prompt_length=parent.prompt_length,
            tokens=list(parent.tokens),
            computed=parent.computed,
            table=list(parent.table),
            lock=ROOT,
            slots=1,
            preemptions=0,
            texts=list(parent.texts),
            label=parent.label,
            priority=parent.priority,
            max_tokens=parent.max_tokens,
            sampling=parent.sampling,
        )
        self.requests[sample.id] = sample
        self.running.append(sample.id)
        self._share(sample.table)
        self._move_lock(sample, parent.lock)
        row = next(row for row in self.plan if row.request == parent.id)
        self.plan.append(ScheduledRow(sample.id, row.start, row.count, list(row.drafts)))

    def _step_finished(self, event: StepFinished) -> None:
        for row in self.plan:
            if row.request in self.requests:  # else the forward pass failed and ended it
                request = self.requests[row.request]
                request.computed = row.start + row.count - len(row.drafts)
        for tokens in event.tokens:
            request = self.requests[tokens.request]
            request.tokens += tokens.ids
            request.texts += tokens.texts
            request.computed += tokens.accepted
        self.plan = []

    def _blocks_trimmed(self, event: BlocksTrimmed) -> None:
        request = self.requests[event.request]
        self._drop(request.table[event.keep :])
        del request.table[event.keep :]

    def _radix_split(self, event: RadixSplit) -> None:
        lower = self.nodes[event.node]
        cut = event.at * self.block_size
        upper = NodeState(
            id=event.upper,
            parent=lower.parent,
            tokens=lower.tokens[:cut],
            texts=lower.texts[:cut],
            blocks=lower.blocks[: event.at],
            last=lower.last,
            lock=lower.lock,
            children={lower.id},
        )
        self.nodes[upper.id] = upper
        siblings = self.nodes[lower.parent].children
        siblings.remove(lower.id)
        siblings.add(upper.id)
        lower.parent = upper.id
        lower.tokens, lower.texts = lower.tokens[cut:], lower.texts[cut:]
        lower.blocks = lower.blocks[event.at :]

    def _radix_joined(self, event: RadixJoined) -> None:
        request = self.requests[event.request]
        start = self._cached_blocks(request)
        end = start + len(event.blocks)
        own = request.table[start:end]
        self._share(event.blocks)
        self._drop(own)
        request.table[start:end] = event.blocks
        self._move_lock(request, event.node)

    def _radix_inserted(self, event: RadixInserted) -> None:
        request = self.requests[event.request]
        start = self._cached_blocks(request) * self.block_size
        end = start + len(event.blocks) * self.block_size
        self.nodes[event.node] = NodeState(
            id=event.node,
            parent=event.parent,
            tokens=request.tokens[start:end],
            texts=request.texts[start:end],
            blocks=list(event.blocks),
            last=0,
        )
        self.nodes[event.parent].children.add(event.node)
        self._share(event.blocks)
        self._move_lock(request, event.node)

    def _radix_extended(self, event: RadixExtended) -> None:
        request = self.requests[event.request]
        node = self.nodes[event.node]
        start = self._cached_blocks(request) * self.block_size
        end = start + len(event.blocks) * self.block_size
        node.tokens += request.tokens[start:end]
        node.texts += request.texts[start:end]
        node.blocks += event.blocks
        self._share(event.blocks)
        self._move_lock(request, event.node)

    def _request_finished(self, event: RequestFinished) -> None:
        request = self.requests.pop(event.request)
        self.waiting.pop(event.request, None)
        if event.request in self.running:
            self.running.remove(event.request)
        self._release(request)

    def _prefix_held(self, event: PrefixHeld) -> None:
        hold = HoldState(event.hold, list(event.blocks), ROOT, event.label)
        self.holds[hold.id] = hold
        self._share(hold.table)
        self._move_lock(hold, event.node)

    def _prefix_released(self, event: PrefixReleased) -> None:
        hold = self.holds.pop(event.hold)
        self._drop(hold.table)
        self._move_lock(hold, ROOT)

    def _keyframe(self, event: Keyframe) -> None:
        state = event.state
        self.seq, self.step, self.tick = event.seq, state["step"], state["tick"]
        self.settings = dict(state["settings"])
        self.classes = dict(state.get("classes", {}))  # older logs have none
        self.waiting = OrderedDict.fromkeys(state["waiting"])
        self.running = list(state["running"])
        self.plan = [ScheduledRow(*row) for row in state["plan"]]
        self.free = list(state["free"])
        fields = (*_CORE_REQUEST, *_DISPLAY_REQUEST)
        self.requests = {
            entry["id"]: RequestState(**{name: _plain(entry[name]) for name in fields})
            for entry in state["requests"]
        }
        self.nodes = {
            entry["id"]: NodeState(**{name: _plain(entry[name]) for name in (*_CORE_NODE, "texts")})
            for entry in state["nodes"]
        }
        self.holds = {
            entry["id"]: HoldState(entry["id"], list(entry["table"]), entry["lock"], entry["label"])
            for entry in state.get("holds", [])  # logs from before there were any
        }
        self._recount()

    def _recount(self) -> None:
        """Derive children and reference counts, which a keyframe need not be trusted for."""
        self.refs = [0] * self.settings["num_blocks"]
        for node in self.nodes.values():
            self._share(node.blocks)
            if node.id != ROOT:
                self.nodes[node.parent].children.add(node.id)
        for request in self.requests.values():
            self._share(request.table)
        for hold in self.holds.values():
            self._share(hold.table)


_CORE_REQUEST = (
    "id",
    "root",
    "sample",
    "prompt_length",
    "tokens",
    "computed",
    "table",
    "lock",
    "slots",
    "preemptions",
)
_DISPLAY_REQUEST = ("texts", "label", "priority", "max_tokens", "sampling")
_CORE_NODE = ("id", "parent", "tokens", "blocks", "last", "lock")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


_FOLD: dict[type[Event], Callable[[State, Any], None]] = {
    RunStarted: State._run_started,
    RequestArrived: State._request_arrived,
    StepStarted: State._step_started,
    Admitted: State._admitted,
    BlocksAllocated: State._blocks_allocated,
    BlockCopied: State._block_copied,
    Preempted: State._preempted,
    RadixEvicted: State._radix_evicted,
    StepScheduled: State._step_scheduled,
    Forked: State._forked,
    StepFinished: State._step_finished,
    BlocksTrimmed: State._blocks_trimmed,
    RadixSplit: State._radix_split,
    RadixJoined: State._radix_joined,
    RadixInserted: State._radix_inserted,
    RadixExtended: State._radix_extended,
    RequestFinished: State._request_finished,
    PrefixHeld: State._prefix_held,
    PrefixReleased: State._prefix_released,
    Keyframe: State._keyframe,
}
