"""What each step of a log decided and cost, as columns: one pass over the events, without the fold.

A fold costs twenty times as much as this pass, because it follows every block. What limited a run can
be read from a tenth of its events: arrivals, admissions, preemptions, ends, and what a step reports.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.core.log import vocabulary as v
from engine.simulation.latencies import PausedTime

if TYPE_CHECKING:
    from engine.core.log.log import EventLog

UNKNOWN = "unknown"  # the cause of a wait that the source of a foreign log does not give


@dataclass(slots=True)
class StepColumns:
    """One entry per finished step, in order. Requests and seats are those when it was scheduled.

    number    of the step
    busy      how long it took, in the log's unit: from its start, or the end of the step before if that
              is later (asynchronous scheduling), to its end
    idle      how long the engine had no request before it
    rows, tokens, prompt   requests that compute, the tokens they compute, and those of prompts
    again     tokens that later steps compute again because of preemptions in this step
    seats     taken
    waiting   requests in the queue; `away` of them were preempted, the policy deferred `deferred`
    stalled   running requests that get no tokens because the budget is spent
    cause     why the head of the queue waits; "" if none does
    arrived, preempted   requests since the step before was scheduled
    """

    number: list[int] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    prompt: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    seats: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    away: list[int] = field(default_factory=list)
    deferred: list[int] = field(default_factory=list)
    stalled: list[int] = field(default_factory=list)
    cause: list[str] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Step:
    number: int
    arrived: int
    is_after_idle: bool
    rows: int = 0
    tokens: int = 0
    prompt: int = 0
    seats: int = 0
    waiting: int = 0
    away: int = 0
    deferred: int = 0
    stalled: int = 0
    cause: str = ""
    preempted: int = 0


class Columns:
    """The columns of a log.

    unit      "us", or "steps" if the log was saved without times: then each step takes 1
    settings, source   as in run_started
    begins_after   the step after which a cut log begins; 0 for a whole one
    requests  how many the log has, samples included
    twice     (index of the step of its preemption, request) of each row that computes tokens again
    victims   (index of a step, request) of each preemption
    """

    def __init__(self, log: "EventLog") -> None:
        self.steps = StepColumns()
        self.settings: dict[str, Any] = {}
        self.source: dict[str, Any] = {}
        self.begins_after = self.requests = 0
        self.twice: list[tuple[int, int]] = []
        self.victims: list[tuple[int, int]] = []
        self._waiting: set[int] = set()
        self._away: set[int] = set()  # preempted and not resumed
        self._running: set[int] = set()
        self._seats: dict[int, int] = {}  # by live request
        self._taken = 0
        self._prompts: dict[int, int] = {}
        # Tokens whose KV a request has, and had at most before a preemption; of live requests.
        self._computed: dict[int, int] = {}
        self._highest: dict[int, int] = {}
        self._lost_in: dict[int, int] = {}  # request -> the step of its last preemption
        self._step = _Step(0, 0, is_after_idle=False)
        self._open: dict[int, tuple[_Step, list[v.ScheduledRow]]] = {}
        self._arrived = 0
        self._is_idle = False
        self._victims: list[tuple[int, int]] = []  # step, request
        self._repeats: list[
            tuple[int, int, int, int]
        ] = []  # its preemption's, step, request, tokens
        self._times: list[tuple[int, int, bool]] = []
        self._paused = PausedTime()
        is_timed = all("end" in event.t for event in log.each(v.StepFinished))
        self.unit = "us" if is_timed else "steps"
        for event in log.each(*_NOTES):
            _NOTES[type(event)](self, event)
        self._set_times()
        self._set_losses()

    def amounts(self, index: int) -> dict[str, int]:
        """Return how many requests wait in a step, by cause. A preempted one waits for its blocks."""
        steps = self.steps
        others = steps.waiting[index] - steps.away[index] - steps.deferred[index]
        found = {"preempted": steps.away[index], "policy": steps.deferred[index]}
        if others:
            found[steps.cause[index] or UNKNOWN] = others
        return found

    def _run_started(self, event: v.RunStarted) -> None:
        self.settings, self.source = event.settings, event.source

    def _keyframe(self, event: v.Keyframe) -> None:
        state = event.state
        self._paused.note(event)
        self.settings, self.source, self.begins_after = state.settings, state.source, state.step
        for one in state.requests:
            self._meet(one.id, one.prompt_length, one.num_seqs)
            has_output = len(one.tokens) > one.prompt_length
            self._computed[one.id] = one.num_computed_tokens
            self._highest[one.id] = len(one.tokens) - 1 if has_output else one.num_computed_tokens
            if one.id in state.waiting and one.preemptions:
                self._away.add(one.id)
        self._waiting, self._running = set(state.waiting), set(state.running)
        self._taken = sum(self._seats[request] for request in self._running)
        for number, rows in [*state.in_flight, (state.step, state.plan)]:
            self._step = _Step(number, 0, is_after_idle=False)
            if rows:  # with asynchronous scheduling, a request may have ended since
                self._plan(self._step, [row for row in rows if row.request in self._prompts])
                self._describe(self._step)

    def _request_arrived(self, event: v.RequestArrived) -> None:
        self._is_idle |= not self._waiting and not self._running
        self._meet(event.request, len(event.prompt), event.n)
        self._waiting.add(event.request)
        self._arrived += 1

    def _meet(self, request: int, prompt: int, seats: int) -> None:
        self.requests += 1
        self._prompts[request], self._seats[request] = prompt, seats
        self._computed[request] = 0

    def _step_started(self, event: v.StepStarted) -> None:
        self._step = _Step(event.step, self._arrived, self._is_idle)
        self._open[event.step] = self._step, []
        self._arrived, self._is_idle = 0, False

    def _admitted(self, event: v.Admitted) -> None:
        request = event.request
        self._waiting.discard(request)
        self._away.discard(request)
        self._running.add(request)
        self._taken += self._seats[request]
        self._computed[request] = len(event.blocks) * self.settings["block_size"]

    def _preempted(self, event: v.Preempted) -> None:
        request, highest = event.request, self._computed[event.request]
        for _, rows in self._open.values():
            for row in rows[:]:
                if row.request == request:
                    highest = max(highest, row.start + row.count - len(row.drafts))
                    rows.remove(row)
        self._highest[request] = max(highest, self._highest.get(request, 0))
        self._computed[request] = 0
        self._running.discard(request)
        self._taken -= self._seats[request]
        self._waiting.add(request)
        self._away.add(request)
        self._step.preempted += 1
        self._lost_in[request] = self._step.number
        self._victims.append((self._step.number, request))

    def _forked(self, event: v.Forked) -> None:
        parent, request = event.parent, event.request
        self._taken += 2 - self._seats[parent]  # the parent keeps one seat
        self._seats[parent] = 1
        self._meet(request, self._prompts[parent], 1)
        self._computed[request] = self._computed[parent]
        for values in (self._highest, self._lost_in):
            if parent in values:
                values[request] = values[parent]
        self._running.add(request)
        for _, rows in self._open.values():
            copies = [row for row in rows if row.request == parent]
            rows += [v.ScheduledRow(request, row.start, row.count, row.drafts) for row in copies]

    def _blocks_trimmed(self, event: v.BlocksTrimmed) -> None:
        kept = event.keep * self.settings["block_size"]
        self._computed[event.request] = min(self._computed[event.request], kept)

    def _step_scheduled(self, event: v.StepScheduled) -> None:
        step = self._step
        self._plan(step, event.rows)
        self._describe(step)
        for request, reason in event.skipped:
            step.deferred += reason == "policy" and request not in self._away
            step.stalled += reason == "token_budget"
        step.cause = event.blocked.reason if event.blocked else ""

    def _describe(self, step: _Step) -> None:
        step.seats, step.waiting, step.away = self._taken, len(self._waiting), len(self._away)

    def _plan(self, step: _Step, rows: list[v.ScheduledRow]) -> None:
        self._open[step.number] = step, list(rows)
        prompts, highest = self._prompts, self._highest
        step.rows = len(rows)
        for row in rows:
            count, start = row.count, row.start
            step.tokens += count
            if start < prompts[row.request]:
                step.prompt += count
            if row.request in highest:
                end = min(start + count - len(row.drafts), highest[row.request])
                if end > start:
                    lost_in = self._lost_in.get(row.request, step.number)
                    self._repeats.append((lost_in, step.number, row.request, end - start))

    def _step_reported(self, event: v.StepReported) -> None:
        step = self._step
        step.rows, step.tokens = (
            event.prefills + event.decodes,
            event.prefill_tokens + event.decodes,
        )
        step.prompt, step.waiting = event.prefill_tokens, event.waiting

    def _step_finished(self, event: v.StepFinished) -> None:
        step, rows = self._open.pop(event.step, (self._step, []))
        computed = self._computed
        for row in rows:
            if row.request in computed and row.request not in event.wasted:
                computed[row.request] = row.start + row.count - len(row.drafts)
        for gain in event.tokens:
            if gain.accepted:
                computed[gain.request] += gain.accepted
        if any(other < event.step for other in self._open):
            return  # it failed while the step before was still being computed
        if self.unit == "us":
            self._paused.note(event)
            self._times.append((event.t["start"], event.t["end"], step.is_after_idle))
        columns = self.steps
        columns.number.append(event.step)
        for name in _PER_STEP:
            getattr(columns, name).append(getattr(step, name))

    def _request_finished(self, event: v.RequestFinished) -> None:
        request = event.request
        if request in self._running:
            self._running.discard(request)
            self._taken -= self._seats[request]
        self._waiting.discard(request)
        self._away.discard(request)
        for values in (
            self._seats,
            self._prompts,
            self._computed,
            self._highest,
            self._lost_in,
        ):
            values.pop(request, None)

    def _note_pause(self, event: v.EnginePaused | v.EngineResumed) -> None:
        if self.unit == "us":
            self._paused.note(event)

    def _events_missing(self, _event: v.EventsMissing) -> None:
        self._is_idle = False  # requests may have come and gone

    def _set_losses(self) -> None:
        index_of = {number: index for index, number in enumerate(self.steps.number)}
        self.steps.again = [0] * len(index_of)
        for lost_in, step, request, tokens in self._repeats:
            if step in index_of:
                index = index_of.get(lost_in, index_of[step])  # it may be before a cut log begins
                self.steps.again[index] += tokens
                self.twice.append((index, request))
        self.victims = [
            (index_of[step], request) for step, request in self._victims if step in index_of
        ]

    def _set_times(self) -> None:
        steps, before = self.steps, -1
        if self.unit == "steps":
            steps.busy, steps.idle = [1] * len(steps.number), [0] * len(steps.number)
        for start, end, is_after_idle in self._times:
            idle = 0
            if is_after_idle and 0 <= before < start:
                idle = start - before - self._paused.between(before, start)
            steps.idle.append(idle)
            steps.busy.append(max(0, end - max(start, before)))
            before = max(before, end)


_PER_STEP = "rows tokens prompt seats waiting away deferred stalled cause arrived preempted".split()
_NOTES: dict[type[v.Event], Callable[[Columns, Any], None]] = {
    v.RunStarted: Columns._run_started,
    v.Keyframe: Columns._keyframe,
    v.RequestArrived: Columns._request_arrived,
    v.StepStarted: Columns._step_started,
    v.Admitted: Columns._admitted,
    v.Preempted: Columns._preempted,
    v.Forked: Columns._forked,
    v.BlocksTrimmed: Columns._blocks_trimmed,
    v.StepScheduled: Columns._step_scheduled,
    v.StepReported: Columns._step_reported,
    v.StepFinished: Columns._step_finished,
    v.RequestFinished: Columns._request_finished,
    v.EnginePaused: Columns._note_pause,
    v.EngineResumed: Columns._note_pause,
    v.EventsMissing: Columns._events_missing,
}
