"""Find the requests, steps and labels of a log in one pass over the events, without folding."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.indexed.known import IndexedKnown, known_of
from visualizer.indexed.scheduled import Scheduled, StepsPart

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

    steps    step -> index of its step_scheduled
    spans    by request
    labels   by request
    classes  as in run_started; None if the log does not have them
    vocab    number of tokens in the vocabulary; 0 if the log begins later
    """

    steps: Scheduled
    spans: Mapping[int, RequestSpan]
    labels: Mapping[int, str]
    classes: dict[str, str] | None = None
    vocab: int = 0

    @classmethod
    def of(cls, events: Iterable[v.Event], end: int) -> "LogIndex":
        """Index a log, or some of its events; `end` is the length of the log."""
        part, spans, labels = StepsPart(), dict[int, RequestSpan](), dict[int, str]()
        step, planned, classes, vocab = 0, True, None, 0

        def add(request: int, begin: int, samples: int, label: str) -> None:
            spans[request] = RequestSpan(begin, end)
            labels[request] = label
            for sample in range(1, samples):
                spans[request + sample] = RequestSpan(None, end, request, sample)
                labels[request + sample] = label

        for index, event in enumerate(events):
            match event:
                case v.RunStarted():
                    classes = event.classes
                    vocab = event.tokenizer.get("vocab_size", 0)
                case v.Keyframe():
                    step = event.state.step
                    classes = event.state.classes or None
                    for one in event.state.requests:
                        add(one.id, -1, one.num_seqs, one.label)
                case v.StepStarted():
                    step, planned = event.step, False
                case v.StepScheduled():
                    part.numbers.append(step)
                    part.indexes.append(index)
                    planned = True
                case v.StepFinished() if not planned:
                    part.abandoned.add(step)
                case v.RequestArrived():
                    add(event.request, index, event.n, event.label)
                case v.Forked(request=request, parent=parent):
                    labels[request] = labels[parent]
                    spans[request] = RequestSpan(index, end, parent, event.sample)
                case v.RequestFinished():
                    span = spans[event.request]
                    span.end, span.reason = index, event.reason
        return cls(Scheduled.of(part), spans, labels, classes, vocab)

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
        span, last = self.spans[request], self.steps.nth(len(self.steps) - 1)[0]
        if step is None and span.begin is not None:
            lived = self.steps.last_before(span.end)
            step = lived if lived is not None and self.steps[lived] > span.begin else last
        step = last if step is None else step
        if self.steps.is_abandoned(step):
            raise WhyError(f"step: {step} decided nothing, because its scheduling failed")
        if step not in self.steps:
            raise WhyError(
                f"step: {step} is not in this log; its steps are {self.steps.nth(0)[0]} to {last}"
            )
        return span, step

    def name(self, request: int) -> str:
        """Return "Ada (r1)", or "r1" for a request without a label."""
        label = self.labels.get(request, "")
        return f"{label} (r{request})" if label not in ("", f"r{request}") else f"r{request}"

    def names(self, requests: list[int]) -> str:
        """Return the names, separated by commas, or "none"."""
        return ", ".join(self.name(request) for request in requests) or "none"


def index_of(log: EventLog) -> LogIndex:
    """Return the index of a log. If it is read from its file, what is known there is enough."""
    if not isinstance(log, IndexedLog):
        return LogIndex.of(log, len(log))
    known = cast("IndexedKnown", known_of(log))
    return LogIndex(
        steps=known.scheduled,
        spans=_Spans(known, len(log)),
        labels=known.labels,
        classes=known.run.classes or None,
        vocab=(known.run.tokenizer or {}).get("vocab_size", 0),
    )


class _Spans(Mapping[int, RequestSpan]):
    """The spans of the requests that an index has, each made when it is asked for."""

    def __init__(self, known: IndexedKnown, end: int) -> None:
        self._known, self._end = known, end

    def __len__(self) -> int:
        return len(self._known.labels)

    def __iter__(self) -> Iterator[int]:
        return iter(self._known.labels)

    def __getitem__(self, request: int) -> RequestSpan:
        one = self._known.request(request)
        if one is None:
            if (parent := self._known.parent_of(request)) is None:
                raise KeyError(request)
            return RequestSpan(None, self._end, parent, request - parent)  # it has not forked off
        # The scheduler could see it first in the step `examined`, so it arrived after the one before.
        after = one.examined if one.forked is None else one.forked[0] + 1
        span = RequestSpan(self._known.scheduled.end_before(after), self._end)
        if one.finished is not None:
            span.end, span.reason = one.finished[3] - self._known.run.first_seq, one.finished[1]
        if one.forked is not None:
            span.parent, span.sample = one.forked[1], one.sample
        elif one.arrived is None:
            span.begin = -1
        return span
