"""The requests' process: each request's life and its phases, and the arrows between them.

A phase that lasts is open until something else begins. Phases of a request never overlap, because
steps do not. They are written when the request ends, behind the life that they lie in: where an outer
and an inner slice begin together, viewers take the first for the outer.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from engine.events.vocabulary import Admitted, Preempted
from visualizer.perfetto.lanes import Lanes
from visualizer.perfetto.step import DECODE, Step
from visualizer.perfetto.trace import Trace, Track

PID = 2
Moment = tuple[Track, int]  # where an arrow begins or ends


@dataclass(slots=True)
class Phase:
    """A phase that goes on. `end` is None for a wait, which ends when something else begins."""

    name: str
    begin: int
    end: int | None
    args: dict[str, Any]
    step: int  # the last one it was in
    reasons: Counter[str] = field(default_factory=Counter)  # of the queue, when a wait began


@dataclass(slots=True)
class Life:
    """A request from its arrival, or the window's beginning, to its end."""

    name: str
    track: Track
    begin: int
    args: dict[str, Any]
    phase: Phase | None = None
    phases: list[tuple[str, int, int, dict[str, Any]]] = field(default_factory=list)
    preempted_at: Moment | None = None
    forked_at: Moment | None = None


class RequestLanes:
    """Writes phases and lives as they end."""

    def __init__(self, trace: Trace, lanes: Lanes, block_size: int) -> None:
        self._trace = trace
        self._lanes = lanes
        self._block_size = block_size
        self._lives: dict[int, Life] = {}
        self._names: dict[int, str] = {}
        self._reasons: Counter[str] = Counter()  # steps in which the queue waited for this
        self._producer: dict[int, tuple[int, Moment]] = {}  # block -> who computed it, and when
        trace.process(PID, "requests")

    def name(self, request: int) -> str:
        """What a request is called, in its lane and by others."""
        return self._names.get(request, f"r{request}")

    def arrive(self, request: int, label: str, begin: int, args: dict[str, Any]) -> Life:
        """A request comes into sight: submitted, or known to the keyframe that begins a window."""
        self._names[request] = f"r{request} {label}" if label else f"r{request}"
        name = self._names[request]
        before = self._lanes.count
        lane = self._lanes.take(begin)
        if lane > before:
            self._trace.thread((PID, lane), f"lane {lane}" if self._lanes.reuse else name)
        life = self._lives[request] = Life(name, (PID, lane), begin, args)
        return life

    def wait(self, request: int, name: str, begin: int, args: dict[str, Any]) -> None:
        """It waits from now on."""
        reasons = Counter(self._reasons)
        self._lives[request].phase = Phase(name, begin, None, args, 0, reasons)

    def fork(self, request: int, parent: int, step: Step) -> None:
        """A sample of the parent's prompt begins when the step is over."""
        source = self._lives[parent]
        label = source.name.partition(" ")[2]
        life = self.arrive(request, label, step.end, {"sample_of": source.name})
        life.forked_at = source.track, step.middle

    def step(self, step: Step) -> None:
        """All that happened to requests in a step."""
        hits: dict[int, list[Moment]] = {}
        for move in step.moves:
            if isinstance(move, Admitted):
                self._close(self._lives[move.request], step.start)
                hits[move.request] = self._found(move)
            else:
                self._preempt(move, step)
        self._count_reasons(step)
        found = {
            m.request: len(m.blocks) for m in step.moves if isinstance(m, Admitted) and m.blocks
        }
        accepted = {gain.request: gain.accepted for gain in step.gains}
        for row, kind in zip(step.plan.rows, step.kinds, strict=True):
            life = self._lives[row.request]
            drafts = len(row.drafts), accepted.get(row.request, 0)
            if kind == DECODE:
                self._go_on(life, DECODE, step, drafts)
            else:
                args = {"tokens": row.count - drafts[0], "from_token": row.start}
                if row.request in found:
                    args["cached_tokens"] = found[row.request] * self._block_size
                _add_drafts(args, drafts)
                self._close(life, step.start)
                args["step"] = step.number
                life.phases.append((f"{kind} {args['tokens']}", step.start, step.end, args))
            self._arrows(life, step, hits.get(row.request, []))
        for request, reason in step.plan.skipped:
            if request not in step.put_off:
                self._go_on(self._lives[request], f"stalled: {reason}", step)

    def produced(self, request: int, blocks: list[int], step: Step) -> None:
        """Blocks that the request computed are in the prefix cache now, for others to find."""
        life = self._lives[request]
        if life.begin <= step.start:  # a sample has no phase in the step that it forks in
            for block in blocks:
                self._producer[block] = request, (life.track, step.middle)

    def forget(self, blocks: list[int]) -> None:
        """Blocks left the prefix cache."""
        for block in blocks:
            self._producer.pop(block, None)

    def end(self, request: int, at: int, args: dict[str, Any]) -> None:
        """A request ended, or the log does."""
        life = self._lives.pop(request)
        at = max(at, life.begin)
        self._close(life, at)
        self._trace.slice(life.track, life.name, life.begin, at, life.args | args)
        for phase in life.phases:
            self._trace.slice(life.track, *phase)
        self._lanes.give_back(life.track[1], at)

    def close(self, at: int) -> None:
        """The log is over: whoever still lives is shown to its end."""
        for request in list(self._lives):
            self.end(request, at, {"finished": "the log ends before it does"})

    def _preempt(self, move: Preempted, step: Step) -> None:
        life = self._lives[move.request]
        self._close(life, step.start)
        by = self.name(move.needed_by)
        args = {"needed_by": by, "computed_tokens_lost": step.lost[move.request]}
        self.wait(move.request, "preempted", step.start, args)
        life.preempted_at = life.track, step.middle

    def _found(self, move: Admitted) -> list[Moment]:
        """Of everybody else who computed a part of what was found: when that was done."""
        known = [self._producer[block] for block in move.blocks if block in self._producer]
        return [moment for request, moment in dict(known).items() if request != move.request]

    def _count_reasons(self, step: Step) -> None:
        """All who wait do so for what blocks the head of the queue, but those put off by the policy."""
        blocked = step.plan.blocked
        if blocked is not None:
            self._reasons[blocked.reason] += 1
        for request in step.put_off:
            phase = self._lives[request].phase
            if phase is not None:
                phase.reasons["policy"] -= 1
                if blocked is not None:
                    phase.reasons[blocked.reason] += 1

    def _go_on(self, life: Life, name: str, step: Step, drafts: tuple[int, int] = (0, 0)) -> None:
        """A phase that a step begins, or lengthens if it was going on in the step before."""
        phase = life.phase
        if phase is None or phase.name != name or phase.step != step.number - 1:
            self._close(life, step.start)
            args = {"steps": 0, "from_step": step.number}
            phase = life.phase = Phase(name, step.start, step.end, args, step.number)
        phase.step, phase.end = step.number, step.end
        phase.args["steps"] += 1
        phase.args["to_step"] = step.number
        _add_drafts(phase.args, drafts)

    def _arrows(self, life: Life, step: Step, hits: list[Moment]) -> None:
        here = life.track, step.middle
        for source in hits:
            self._trace.flow("prefix hit", source, here)
        if life.preempted_at is not None:
            self._trace.flow("resumed", life.preempted_at, here)
            life.preempted_at = None
        if life.forked_at is not None:
            self._trace.flow("forked", life.forked_at, here)
            life.forked_at = None

    def _close(self, life: Life, at: int) -> None:
        """Write the phase that was open, at the latest to `at`."""
        phase = life.phase
        if phase is None:
            return
        life.phase = None
        if phase.end is None:
            reasons = self._reasons - phase.reasons
            if reasons:
                phase.args["steps_by_reason"] = dict(reasons.most_common())
                if phase.name == "waiting":
                    phase.name = f"waiting: {reasons.most_common(1)[0][0]}"
        end = at if phase.end is None else phase.end
        if end > phase.begin or phase.args:  # who was admitted at once has not waited
            life.phases.append((phase.name, phase.begin, end, phase.args))


def _add_drafts(args: dict[str, Any], drafts: tuple[int, int]) -> None:
    """How many tokens a drafter proposed, and how many of them came true."""
    for name, count in zip(("drafts", "accepted_drafts"), drafts, strict=True):
        if drafts[0]:
            args[name] = args.get(name, 0) + count
