"""Whose tokens the nodes of the prefix tree have, and when each was used, while a log is folded."""

from array import array
from bisect import bisect_left

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.state import ROOT
from visualizer.indexed.facts import LiveNode
from visualizer.indexed.handlers import Handlers


class NodeFacts:
    """The origins and the latest uses of nodes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._origins: dict[int, tuple[int, int]] = {}  # request, and its first token of the node
        self._ticks = array("q")  # at the beginning of each step from `_first_tick` on
        self._first_step = self._first_tick = self._steps_before = 0
        self._used: dict[int, int] = {}  # with the hash cache
        self._walked: set[int] = set()  # whose path to the root was used in this step
        self.before: Handlers = {
            v.StepStarted: self._step_started,
            v.Admitted: self._found,
            v.Preempted: self._use,
            v.RequestFinished: self._use,
            v.RadixSplit: self._split,
            v.RadixInserted: self._inserted,
            v.RadixExtended: self._extended,
            v.BlocksStored: self._stored,
            v.PrefixAdopted: self._adopted,
            v.PrefixReleased: self._released,
        }
        self.after: Handlers = {
            v.Keyframe: self._rejoin,
            v.Forked: self._use,
            v.Admitted: self._use,
            v.BlocksStored: self._use,
            v.PrefixHeld: lambda event: self._use_path(event.node),
            v.PrefixAdopted: lambda event: self._use_path(event.nodes[-1]),
            v.BlocksReported: self._reported,
        }

    def live(self) -> tuple[list[LiveNode], list[tuple[list[int], list[str]]]]:
        """Return all nodes, and the tokens and texts of those that no request computed."""
        nodes, known = self._state.nodes, self._origins
        self._origins = {node: known[node] for node in nodes if node in known}
        self._used = {node: self._used[node] for node in nodes if node in self._used}
        live, contents = [], []
        for node in nodes.values():
            origin, begin = self._origins.get(node.id, (-1, 0))
            if origin < 0:
                contents.append((node.tokens, node.texts))
            used = self._used_in(node.id, node.last)
            live.append(
                LiveNode(
                    *(node.id, node.parent, node.last, node.lock_ref, origin, begin, used),
                    *(node.blocks, node.copies, node.source, node.hash, node.media),
                    node.extra_key,
                )
            )
        return live, contents

    def _used_in(self, node: int, last: int) -> int | None:
        if last <= self._first_tick:  # always with the hash cache
            return self._used.get(node)
        at = bisect_left(self._ticks, last)
        return self._first_step + at - 1 if at else self._steps_before

    def _rejoin(self, _event: v.Keyframe) -> None:
        self._first_tick, self._steps_before = self._state.tick, self._state.step

    def _step_started(self, event: v.StepStarted) -> None:
        if not self._ticks:
            self._first_step = event.step
        self._ticks.append(self._state.tick)
        self._walked.clear()

    # The hash cache has no ticks

    def _use(
        self, event: v.Preempted | v.RequestFinished | v.Forked | v.Admitted | v.BlocksStored
    ) -> None:
        if self._state.is_hashed:
            self._use_path(self._state.requests[event.request].last_node)

    def _use_path(self, node: int) -> None:
        if self._state.is_hashed:
            step = self._state.step
            for one in self._state._path(node):
                if one.id in self._walked:
                    return  # those above have the step, too
                self._walked.add(one.id)
                self._used[one.id] = step

    def _released(self, event: v.PrefixReleased) -> None:
        self._use_path(self._state.holds[event.hold].last_node)

    def _reported(self, event: v.BlocksReported) -> None:
        if event.blocks:
            for node in event.nodes:
                self._used[node] = self._state.step

    # Origins

    def _split(self, event: v.RadixSplit) -> None:
        if (known := self._origins.get(event.node)) is not None:
            origin, begin = self._origins[event.upper] = known
            self._origins[event.node] = origin, begin + event.at * self._state.block_size

    def _inserted(self, event: v.RadixInserted) -> None:
        nodes, size = self._state.nodes, self._state.block_size
        node, begin = event.parent, 0
        while node != ROOT:
            begin += len(nodes[node].blocks) * size
            if node in self._origins:
                begin += self._origins[node][1]
                break
            node = nodes[node].parent
        self._origins[event.node] = event.request, begin

    def _extended(self, event: v.RadixExtended) -> None:
        # The request has the node's tokens, too, and those of the new blocks.
        if (known := self._origins.get(event.node)) is not None:
            self._origins[event.node] = event.request, known[1]
        else:
            above = self._state.nodes[event.node].parent
            self._inserted(v.RadixInserted(event.request, event.node, above, event.blocks))

    def _found(self, event: v.Admitted) -> None:
        """Who computed unknown tokens may have no hash of them, because they are its output."""
        state, begin = self._state, 0
        for node in reversed([*state._path(event.node)]) if state.is_hashed else ():
            end = begin + state.block_size
            if node.tokens[:1] != [-1] or end > state.requests[event.request].prompt_length:
                return
            self._origins[node.id] = event.request, begin
            begin = end

    def _stored(self, event: v.BlocksStored) -> None:
        state, size = self._state, self._state.block_size
        begin = state._first_token(state.requests[event.request], event.blocks)
        for at, node in enumerate(event.nodes):
            if node not in state.nodes:
                self._used.pop(node, None)
                self._walked.discard(node)
                self._origins[node] = event.request, begin + at * size
        self._use(event)

    def _adopted(self, event: v.PrefixAdopted) -> None:
        for node in event.nodes:
            self._origins.pop(node, None)
