"""Find the requests, steps and labels of a log in one pass over the events, without folding."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.indexed.known import Known, known_of

_SHOWN = 6  # of the first and the last requests of a log


class WhyError(ValueError):
    """The log has no such request or no such step."""


def requests_words(labels: Mapping[int, str]) -> str:
    """Say which requests a log has, by their names and ids: of many, the first and the last."""
    if not labels:
        return "it has no request"
    if not any(labels.values()):
        return f"its requests are r{min(labels)} to r{max(labels)}"
    names = [f"{label} (r{one})" if label else f"r{one}" for one, label in labels.items()]
    if len(names) > 2 * _SHOWN:
        left_out = f"{len(names) - 2 * _SHOWN:,} others"
        names = [*names[:_SHOWN], left_out, *names[-_SHOWN:]]
    return f"its requests are {', '.join(names)}"


@dataclass(slots=True)
class RequestSpan:
    """The first and the last event of a request's life, as indexes into the log.

    A sample that has not forked off yet has an id and a span that has not begun.

    begin   its arrival or fork; -1: before the log begins; None: it has not begun
    end     its end, or one past the log's last event
    parent  the request that it forks off from; None if it arrives on its own
    reason  its finish reason; "" while it lives
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
    abandoned  steps that failed before their step_scheduled
    spans      by request
    labels     by request
    classes    as in run_started; None if the log does not have them
    vocab      number of tokens in the vocabulary; 0 if the log begins later
    """

    steps: Mapping[int, int] = field(default_factory=dict)
    abandoned: set[int] = field(default_factory=set)
    spans: dict[int, RequestSpan] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    classes: dict[str, str] | None = None
    vocab: int = 0

    @classmethod
    def of(cls, events: Iterable[v.Event], end: int) -> "LogIndex":
        """Index a log, or some of its events; `end` is the length of the log."""
        steps = dict[int, int]()
        found, step, planned = cls(steps), 0, True
        for index, event in enumerate(events):
            match event:
                case v.RunStarted():
                    found.classes = event.classes
                    found.vocab = event.tokenizer.get("vocab_size", 0)
                case v.Keyframe():
                    step = event.state.step
                    found.classes = event.state.classes or None
                    for one in event.state.requests:
                        found._add(one.id, -1, one.num_seqs, one.label, end)
                case v.StepStarted():
                    step, planned = event.step, False
                case v.StepScheduled():
                    steps[step], planned = index, True
                case v.StepFinished() if not planned:
                    found.abandoned.add(step)
                case v.RequestArrived():
                    found._add(event.request, index, event.n, event.label, end)
                case v.Forked(request=request, parent=parent):
                    found.labels[request] = found.labels[parent]
                    found.spans[request] = RequestSpan(index, end, parent, event.sample)
                case v.RequestFinished():
                    span = found.spans[event.request]
                    span.end, span.reason = index, event.reason
        return found

    def find(self, request: int, step: int | None) -> tuple[RequestSpan, int]:
        """Return the request's span and a step; None: its last step.

        Raises WhyError for a request or a step that is not in the log.
        """
        if not self.steps:
            raise WhyError("step: the log has no scheduled step yet; run one")
        if request not in self.spans:
            raise WhyError(
                f"request: {request!r} is not in this log; {requests_words(self.labels)}"
            )
        span, last = self.spans[request], max(self.steps)
        if step is None and span.begin is not None:
            lived = (number for number, at in self.steps.items() if span.begin < at < span.end)
            step = max(lived, default=last)
        step = last if step is None else step
        if step in self.abandoned:
            raise WhyError(f"step: {step} decided nothing, because its scheduling failed")
        if step not in self.steps:
            raise WhyError(
                f"step: {step} is not in this log; its steps are {min(self.steps)} to {last}"
            )
        return span, step

    def name(self, request: int) -> str:
        """Return "Ada (r1)", or "r1" for a request without a label."""
        label = self.labels.get(request, "")
        return f"{label} (r{request})" if label not in ("", f"r{request}") else f"r{request}"

    def names(self, requests: list[int]) -> str:
        """Return the names, separated by commas, or "none"."""
        return ", ".join(self.name(request) for request in requests) or "none"

    def _add(self, request: int, begin: int, samples: int, label: str, end: int) -> None:
        self.spans[request] = RequestSpan(begin, end)
        self.labels[request] = label
        for sample in range(1, samples):
            self.spans[request + sample] = RequestSpan(None, end, request, sample)
            self.labels[request + sample] = label


def index_of(log: EventLog) -> LogIndex:
    """Return the index of a log. If it is read from its file, what is known there is enough."""
    if not isinstance(log, IndexedLog):
        return LogIndex.of(log, len(log))
    known, first = known_of(log), log.next_seq - len(log)
    numbers, indexes, found = array("q"), array("q"), LogIndex()
    for part in known.steps:
        for number, at, status in zip(part.step, part.scheduled, part.status, strict=True):
            if at is not None:
                numbers.append(number)
                indexes.append(at - first)
            elif status == "finished":
                found.abandoned.add(number)
    found.steps = steps = _Steps(numbers, indexes)
    run = known.run
    found.classes = run.classes or None
    found.vocab = (run.tokenizer or {}).get("vocab_size", 0)
    found.labels = known.labels
    found.spans = _Spans(known, steps, first, len(log))  # type: ignore[assignment]  # it is only read
    return found


class _Spans(Mapping[int, RequestSpan]):
    """The spans of the requests that an index has, each made when it is asked for."""

    def __init__(self, known: Known, steps: "_Steps", first: int, end: int) -> None:
        self._known, self._steps, self._first, self._end = known, steps, first, end

    def __len__(self) -> int:
        return len(self._known.labels)

    def __iter__(self) -> Iterator[int]:
        return iter(self._known.labels)

    def __getitem__(self, request: int) -> RequestSpan:
        one = self._known.request(request)
        if one is None:
            for parent, _, samples in self._known.names:
                if parent < request < parent + samples:  # it has not forked off
                    return RequestSpan(None, self._end, parent, request - parent)
            raise KeyError(request)
        # The scheduler could see it first in the step `examined`, so it arrived after the one before.
        after = one.examined if one.forked is None else one.forked[0] + 1
        span = RequestSpan(self._steps.end_before(after), self._end)
        if one.finished is not None:
            span.end, span.reason = one.finished[3] - self._first, one.finished[1]
        if one.forked is not None:
            span.parent, span.sample = one.forked[1], one.sample
        elif one.arrived is None:
            span.begin = -1
        return span


class _Steps(Mapping[int, int]):
    """Steps and the indexes of their step_scheduled, both ascending."""

    def __init__(self, numbers: Sequence[int], indexes: Sequence[int]) -> None:
        self._numbers, self._indexes = numbers, indexes

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def end_before(self, step: int) -> int:
        """Return the index after the last step before `step` was scheduled."""
        at = bisect_left(self._numbers, step)
        return self._indexes[at - 1] + 1 if at else 0

    def __getitem__(self, step: int) -> int:
        at = bisect_left(self._numbers, step)
        if at == len(self) or self._numbers[at] != step:
            raise KeyError(step)
        return self._indexes[at]
