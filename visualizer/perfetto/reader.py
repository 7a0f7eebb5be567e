"""Read a log in one pass and write each step to the tracks as it finishes."""

from collections.abc import Callable
from typing import Any

from engine.core.log import EventLog, State
from engine.core.log import vocabulary as v
from engine.core.log.vocabulary import Event
from visualizer.logs import count_requests, settings_of
from visualizer.perfetto.engine_tracks import EngineTracks
from visualizer.perfetto.request_lanes import RequestLanes
from visualizer.perfetto.step import Step
from visualizer.perfetto.trace import Trace


class Reader:
    """A log, its folded state, and the current step."""

    def __init__(self, log: EventLog, trace: Trace) -> None:
        self._log = log
        self._trace = trace
        self._state = State()
        self._has_times = all("start" in event.t for event in log.each(v.StepFinished))
        self._steps_read = 0
        self._now = _first_time(log) if self._has_times else 0  # the latest known time
        self._last: Step | None = None  # the finished step, until the next one starts
        self._current: Step | None = None  # the step that started last, until it finishes
        self._in_flight: Step | None = None  # asynchronous scheduling: the step before that one
        settings = settings_of(log)
        self._is_async = settings.get("async_scheduling", False)
        self._requests = RequestLanes(trace, count_requests(log), settings.get("block_size", 0))
        self._engine = EngineTracks(trace, self._requests.name, settings.get("token_budget", 0))

    def read(self, on_event: Callable[[Event], object]) -> None:
        """Write the whole trace."""
        for event in self._log:
            self._before(event)
            self._state.apply(event)
            self._after(event)
            on_event(event)
        self._requests.close(self._now)
        self._engine.close()
        first = self._log[0] if len(self._log) else None
        clock = first.clock if isinstance(first, v.RunStarted) else "unknown (the log is a window)"
        times = "none in the log; each step is drawn as one millisecond"
        if self._has_times:
            times = f"microseconds, clock: {clock}"
        settings = settings_of(self._log)
        self._trace.close({"made_by": "Underglass", "times": times, "settings": settings})

    def _before(self, event: Event) -> None:
        """Read values from the state that the event is about to change."""
        state, step = self._state, self._current
        match event:
            case v.RadixEvicted() | v.BlockEvicted():
                blocks = state.evicted_blocks(event)
                self._requests.forget_producers(blocks)
                if step is None:
                    self._engine.eviction(event, len(blocks), self._now)
                else:
                    step.evictions.append((event, len(blocks)))
            case v.Preempted() if step is not None:
                step.lost[event.request] = state.requests[event.request].num_computed_tokens
            case v.Forked() if (forking := self._in_flight or step) is not None:
                forking.forks.append(event)
            case v.StepStarted() if step is not None and self._is_async:
                self._in_flight = step
            case v.StepStarted() if step is not None:  # the window did not begin within a step
                self._end_all(step.ended)
            case v.StepFinished() if (finished := self._open_step(event)) is not None:
                self._finish_step(finished, event)
            case v.RequestFinished() if step is not None and (
                event.reason == "error" or not self._is_async
            ):
                failed = self._in_flight or step
                failed.ended.append((event.request, self._outcome(event)))
            case v.RequestFinished():
                self._requests.end(event.request, self._now, self._outcome(event))

    def _open_step(self, event: v.StepFinished) -> Step | None:
        """Return the step that finishes, or None if the log begins in the middle of that step."""
        for step in (self._in_flight, self._current):
            if step is not None and event.step == step.number:
                return step
        return None

    def _after(self, event: Event) -> None:
        state, step = self._state, self._current
        match event:
            case v.Keyframe():
                self._start_window()
            case v.RequestArrived():
                at = event.t.get("at", self._now) if self._has_times else self._now
                self._now = max(self._now, at)
                self._arrive(event.request, at)
                self._requests.wait(event.request, "waiting", at, {})
            case v.StepStarted():
                self._current, self._last = Step(event.step), None
            case v.Admitted() | v.Preempted() if step is not None:
                step.transitions.append(event)
            case v.StepScheduled() if step is not None:
                step.schedule(event, state)
            case v.RadixInserted() | v.RadixExtended() if self._last is not None:
                self._requests.cached(event.request, event.blocks, self._last)

    def _finish_step(self, step: Step, event: v.StepFinished) -> None:
        step.finish(event, self._steps_read, self._has_times)
        self._steps_read += 1
        self._now = max(self._now, event.t["end"] if self._has_times else step.end)
        if not self._is_async or step.scheduling is not None:  # else nothing was computed
            self._engine.step(step)
            self._requests.step(step)
            for fork in step.forks:
                self._requests.fork(fork.request, fork.parent, step)
        self._end_all(step.ended)
        if step is self._current:
            self._current = None
        if step is self._in_flight:
            self._in_flight = None
        self._last = step

    def _end_all(self, ended: list[tuple[int, dict[str, Any]]]) -> None:
        for request, outcome in ended:
            self._requests.end(request, self._now, outcome)

    def _arrive(self, request: int, at: int) -> None:
        known = self._state.requests[request]
        args: dict[str, Any] = {
            "prompt_tokens": known.prompt_length,
            "max_tokens": known.max_tokens,
        }
        if known.extra_key and known.extra_key[0]:
            args["adapter"] = known.extra_key[0]
        self._requests.arrive(request, known.label, at, args | {"priority": known.priority})

    def _start_window(self) -> None:
        """Start a windowed log, possibly in mid-step, with the requests in its keyframe."""
        state = self._state
        for request in state.requests.values():
            self._arrive(request.id, self._now)
            if request.id in state.waiting:
                name = "preempted" if request.preemptions else "waiting"
                self._requests.wait(request.id, name, self._now, {})
        self._current = Step(state.step)
        # A row's request is missing if it has failed.
        planned = [row for row in state.plan if row.request in state.requests]
        if planned:
            self._current.schedule(v.StepScheduled(planned, []), state)

    def _outcome(self, event: v.RequestFinished) -> dict[str, Any]:
        request = self._state.requests[event.request]
        outcome: dict[str, Any] = {
            "finished": event.reason,
            "output_tokens": len(request.tokens) - request.prompt_length,
            "preemptions": request.preemptions,
        }
        more = {"message": event.message, "stop_string": event.matched}
        return outcome | {name: text for name, text in more.items() if text}


def _first_time(log: EventLog) -> int:
    """Return the earliest time in the log, or 0 if it has none."""
    for event in log:
        if isinstance(event, v.RequestArrived | v.StepFinished) and event.t:
            return int(event.t["at"] if isinstance(event, v.RequestArrived) else event.t["start"])
    return 0
