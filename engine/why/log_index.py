"""Who is in a log, from when to when, and which steps: one pass over the events, without folding."""

from dataclasses import dataclass, field

from engine.events import vocabulary as v
from engine.events.log import EventLog


class WhyError(ValueError):
    """The log knows no such request, or no such step."""


@dataclass(slots=True)
class RequestSpan:
    """From which event to which a request lives: indexes in the log.

    A sample that has not forked off yet has an id and a life that has not begun.

    begin   of its arrival or fork; -1: before what the log keeps; None: it has not begun
    end     of its end, or beyond the log's last event
    parent  whom it forks off from; None for one that arrives by itself
    reason  why it ended; "" while it lives
    """

    begin: int | None
    end: int
    parent: int | None = None
    sample: int = 0
    reason: str = ""


@dataclass(slots=True)
class LogIndex:
    """A log's steps, requests and labels.

    steps      step -> index of its step_scheduled
    abandoned  steps that ended without one
    lives      by request
    labels     by request, where it has one
    classes    what ran, as in run_started; None where a log does not say
    """

    steps: dict[int, int] = field(default_factory=dict)
    abandoned: set[int] = field(default_factory=set)
    lives: dict[int, RequestSpan] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    classes: dict[str, str] | None = None

    @classmethod
    def of(cls, log: EventLog) -> "LogIndex":
        """Read a log once."""
        found, step, planned = cls(), 0, True
        for index, event in enumerate(log):
            match event:
                case v.RunStarted():
                    found.classes = event.classes
                case v.Keyframe():
                    step = event.state["step"]
                    found.classes = event.state.get("classes") or None
                    for entry in event.state["requests"]:
                        found._enter(entry["id"], -1, entry["slots"], entry["label"], len(log))
                case v.StepStarted():
                    step, planned = event.step, False
                case v.StepScheduled():
                    found.steps[step], planned = index, True
                case v.StepFinished() if not planned:
                    found.abandoned.add(step)
                case v.RequestArrived():
                    found._enter(event.request, index, event.n, event.label, len(log))
                case v.Forked():
                    label = found.labels[event.parent]
                    found.labels[event.request] = label
                    found.lives[event.request] = RequestSpan(
                        index, len(log), event.parent, event.sample
                    )
                case v.RequestFinished():
                    life = found.lives[event.request]
                    life.end, life.reason = index, event.reason
        return found

    def find(self, request: int, step: int | None) -> tuple[RequestSpan, int]:
        """The request's life and a step; for None the last step that it lived to see.

        Raises WhyError for a request or a step that is not in the log.
        """
        if not self.steps:
            raise WhyError("step: the log has no scheduled step yet; run one")
        if request not in self.lives:
            known = f"{min(self.lives)} to {max(self.lives)}" if self.lives else "none"
            raise WhyError(f"request: {request!r} is not in this log; its requests are {known}")
        life, last = self.lives[request], max(self.steps)
        if step is None and life.begin is not None:
            seen = [number for number, at in self.steps.items() if life.begin < at < life.end]
            step = max(seen, default=last)
        step = last if step is None else step
        if step in self.abandoned:
            raise WhyError(
                f"step: {step} decided nothing, because a part failed while it was planned"
            )
        if step not in self.steps:
            raise WhyError(
                f"step: {step} is not in this log; its steps are {min(self.steps)} to {last}"
            )
        return life, step

    def name(self, request: int) -> str:
        """ "Ada (r1)", or "r1" for one without a label."""
        label = self.labels.get(request, "")
        return f"{label} (r{request})" if label not in ("", f"r{request}") else f"r{request}"

    def names(self, requests: list[int]) -> str:
        """Names in a row, or "nobody"."""
        return ", ".join(self.name(request) for request in requests) or "nobody"

    def _enter(self, request: int, begin: int, samples: int, label: str, end: int) -> None:
        self.lives[request] = RequestSpan(begin, end)
        self.labels[request] = label
        for sample in range(1, samples):
            self.lives[request + sample] = RequestSpan(None, end, request, sample)
            self.labels[request + sample] = label
