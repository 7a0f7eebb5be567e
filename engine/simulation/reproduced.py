"""How many steps of a log a replay with unchanged settings decides alike."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.facts import knowledge
from engine.simulation.log_part import LogPart, started_of


@dataclass(frozen=True, slots=True)
class Reproduced:
    """How many of the recorded steps an unchanged replay decides alike, with arrivals at their steps.

    first  the first step that differs, or the last one if the replay goes on after it; None if the
           replay makes the same decisions and then ends
    """

    equal: int
    steps: int
    first: int | None

    def __str__(self) -> str:
        where = "" if self.first is None else f"; the first that differs is step {self.first}"
        if where and self.equal == self.steps:
            where = f"; the replay goes on after step {self.first}"
        share = self.equal / self.steps if self.steps else 1.0
        return (
            f"{self.equal:,} of {self.steps:,} steps are decided as recorded ({share:.1%}){where}"
        )


def reproduced(log: EventLog, replay: EventLog) -> Reproduced:
    """Compare the decisions of each step: rows, admissions with their cached tokens, preemptions."""
    started = started_of(log)
    source = started.source if started is not None else {}
    with_hits = knowledge(source, "cached_tokens") != "unknown"  # a first row shows the hit, too
    events = _after_restoring(replay) if isinstance(log, LogPart) else replay
    recorded, again = _decided(log, with_hits), _decided(events, with_hits)
    ended = {one.step for one in log.each(v.StepFinished)}
    while ended and recorded and recorded[-1][0] not in ended:  # the recording stopped in this step
        recorded.pop()
        del again[len(recorded) :]
    pairs = zip_longest(recorded, again)
    differing = [at for at, (one, two) in enumerate(pairs) if (one and one[1]) != (two and two[1])]
    first = next(iter(differing), None)
    equal = len(recorded) - sum(at < len(recorded) for at in differing)
    where = None if first is None else recorded[min(first, len(recorded) - 1)][0]
    return Reproduced(equal, len(recorded), where)


def _after_restoring(replay: EventLog) -> Iterable[v.Event]:
    """Return the events of a part's replay without the step, if any, that restored its requests."""
    events = list(replay)
    first = next(replay.each(v.StepFinished), None)
    if first is None or first.t["start"] < first.t["end"]:
        return events
    at = next(at for at, one in enumerate(events) if isinstance(one, v.StepScheduled))
    return events[at + 1 :]  # with asynchronous scheduling, the second step begins before it ends


def _decided(log: Iterable[v.Event], with_hits: bool) -> list[tuple[int, list[Any]]]:
    """Return the number of each step that computes something, with its decisions."""
    steps, decided, step = list[tuple[int, list[Any]]](), list[Any](), 0
    for event in log:
        match event:
            case v.StepStarted():
                step = event.step
            case v.Admitted():
                decided.append(("admitted", event.request, with_hits and len(event.blocks)))
            case v.Preempted():
                decided.append(("preempted", event.request))
            case v.StepScheduled() if event.rows:
                decided += [(row.request, row.start, row.count) for row in event.rows]
                steps.append((step, decided))
                decided = []
    return steps
