"""Collect what is known of each step and each request while a log is folded: the facts of an index.

`Collector.apply` folds an event and tells four parts of it, each of which collects one kind of fact:
read `step_facts.py`, `pass_facts.py`, `request_facts.py`, `block_facts.py` and `node_facts.py`. The
board does the same for a log without an index, in `model.ts` and what it calls, and a test compares the
two. What can no longer change is given away, so that a long log needs little memory.
"""

from collections.abc import Callable
from typing import Any

from engine.core.log import vocabulary as v
from engine.core.log.expert_loads import packed
from engine.core.log.fold import State
from engine.core.log.log import LogError
from visualizer.indexed.block_facts import BlockFacts
from visualizer.indexed.facts import Fact, LiveRequest, Run, Slice
from visualizer.indexed.handlers import Handlers
from visualizer.indexed.node_facts import NodeFacts
from visualizer.indexed.pass_facts import PassFacts
from visualizer.indexed.request_facts import RequestFacts
from visualizer.indexed.step_facts import BEGIN, StepFacts


class Collector:
    """Folds a log and collects its facts. `state` is the state after the events so far."""

    def __init__(self) -> None:
        self.state = state = State()
        self._blocks, self._nodes = BlockFacts(state), NodeFacts(state)
        self._steps = StepFacts(state, self._blocks)
        self._passes = PassFacts(state, self._steps, self._blocks)
        self._requests = RequestFacts(state, self._steps, self._passes)
        self._run = Run(0, 0, {}, {}, {}, None, None, [], [], [], True, [])
        # Before an event, the requests need the steps as they were; after it, as they are.
        parts = (self._requests, self._steps, self._passes, self._blocks, self._nodes)
        self._before = _by_kind([part.before for part in parts])
        own: Handlers = {v.RunStarted: self._run_started, v.Keyframe: self._rejoined}
        self._after = _by_kind([own, *(part.after for part in reversed(parts))])

    @property
    def step(self) -> int:
        """The last step that began."""
        return self._steps.step

    @property
    def oldest(self) -> int:
        """How many steps had finished when the oldest request arrived that was not given away."""
        return self._requests.oldest

    def apply(self, event: v.Event) -> None:
        """Fold the next event. Raises LogError if it does not fit what came before."""
        kind, seq = type(event), self.state.seq + 1
        try:
            if kind in BEGIN or self._steps.oldest is None:
                self._steps.begin(event)
            for handle in self._before.get(kind, ()):
                handle(event)
            self.state.apply(event)
            for handle in self._after.get(kind, ()):
                handle(event)
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
            if isinstance(error, LogError):
                raise
            name = event.__struct_config__.tag
            raise LogError(f"event {seq}: {name} does not fit what came before") from error

    def facts(self, *, is_end: bool = False) -> list[Fact]:
        """Return what can no longer change and was not returned before; at the end, all of it."""
        facts: list[Fact] = [*self._steps.take(is_end=is_end), *self._passes.take()]
        facts += self._requests.take(is_end=is_end)
        return [*facts, self.run()] if is_end else facts

    def run(self) -> Run:
        """Return what is known of the whole log so far."""
        state, run = self.state, self._run
        run.settings, run.classes, run.source = state.settings, state.classes, state.source
        run.expert_loads = [packed(layer) for layer in state.expert_loads]
        run.causes, run.has_times = self._steps.causes, self._passes.has_times
        run.pauses, run.itl = [*self._passes.paused.intervals], self._requests.itl
        return run

    def slice(self) -> Slice:
        """Return the state without its tokens."""
        state = self.state
        requests, nodes = state.requests, state.nodes
        state.requests, state.nodes = {}, {}
        frame = state.keyframe().state
        state.requests, state.nodes = requests, nodes
        frame.refs = []
        own_requests = [
            LiveRequest(  # of a long queue, there are many
                one.id,
                len(one.tokens),
                one.num_computed_tokens,
                one.block_table,
                one.last_node,
                one.num_seqs,
                one.preemptions,
                one.extra_key,
                one.group_tables,
            )
            for one in requests.values()
        ]
        return Slice(frame, own_requests, *self._nodes.live(), self._blocks.reach)

    def _run_started(self, event: v.RunStarted) -> None:
        self._run.model, self._run.tokenizer = event.model, event.tokenizer

    def _rejoined(self, event: v.Keyframe) -> None:
        self._run.first_seq, self._run.steps_before = event.seq, self.state.step


def _by_kind(parts: list[Handlers]) -> dict[type[v.Event], list[Callable[[Any], None]]]:
    kinds = dict.fromkeys(kind for part in parts for kind in part)
    return {kind: [part[kind] for part in parts if kind in part] for kind in kinds}
