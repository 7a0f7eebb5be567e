"""`read(log).regimes`: what limited a run, from when to when, and what that cost.

regimes = read(log).regimes
regimes.sentence       one sentence for the whole run
print(regimes)         the sentence, and a line for each regime
regimes[2].waited      the waiting time of a regime by cause; those of all regimes add up to `waited`
regimes.worst          the step at which a board opens

calm           hardly a request waits
seat-bound     the batch has too few free seats, or a static batch has not finished
memory-bound   too few KV blocks are free
thrash         memory-bound, and many tokens are computed a second time after preemptions
burst          many requests arrive at once, and afterwards the queue becomes empty again
prefill-bound  prompts spend the token budget of the steps
idle           the engine has no request for most of the time
queue          requests wait, and a foreign log does not say why
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, get_args

from engine.simulation.facts import Knowledge
from visualizer.indexed.known import Known, known_of
from visualizer.reading.knowledge import LogKnowledge
from visualizer.reading.regimes.columns import Columns, Pairs, StepColumns
from visualizer.reading.regimes.segments import (
    LABELS,
    THRASH_SHARE,
    THRASH_VICTIMS,
    Segment,
    segments_of,
)
from visualizer.reading.waterfall.parts import mark_of

if TYPE_CHECKING:
    from engine.core.log.log import EventLog

Kind = Literal[
    "calm", "seat-bound", "memory-bound", "thrash", "burst", "prefill-bound", "idle", "queue"
]
_KINDS: dict[str, Kind] = {
    "calm": "calm",
    "seats": "seat-bound",
    "memory": "memory-bound",
    "thrash": "thrash",
    "prefill": "prefill-bound",
    "waiting": "queue",
    "idle": "idle",
}
assert {*_KINDS.values(), "burst"} == {*get_args(Kind)}
LIMITS: dict[Kind, str] = {
    "seat-bound": "seats",
    "memory-bound": "memory",
    "thrash": "memory",
    "burst": "burst",
    "prefill-bound": "budget",
    "queue": "queue",
}
# A burst: this share of the requests arrives in this share of the steps, so many times as fast as the
# others of the run.
_BURST_SHARE, _BURST_STEPS, _BURST_RATE, _BURST_LEAST, _LEAD = 0.75, 0.125, 4, 6, 2
_CALM = 0.75  # of a regime's weight: with less, it is not calm
_MOST_QUIET = 2  # calm and idle regimes in a row: more are one
_EDGE = 0.1  # of the run: a board does not open there, because little has happened yet


@dataclass(frozen=True, kw_only=True)
class Regime:
    """Steps with one limit. Times are in the unit of `Regimes`; a None is not in a foreign log.

    first, last  steps
    cause        what requests wait for most; "" if none waits
    mark         whether the log recorded that cause, or it is inferred or unknown
    busy, idle   how long its steps took, and how long the engine had no request before them
    waited       time that requests waited, by cause: their number times each step's length
    preemptions  (step, request) of each
    twice        requests of which `again` tokens are computed a second time because of them, in order
    tokens, prompt   computed in all, and those of prompts
    stalled      how often a running request got no tokens because the budget was spent
    queued       number of steps in which requests wait
    waiting      how many requests wait on average in those steps
    empty        how many of all `seats` are empty on average in those steps
    arrived      requests that arrive; `burst` has the first and the last step of those of a burst, and
                 their number
    worst        the step with the most preemptions; if several have as many, the first with the longest
                 queue. If it can, it is not in the first tenth of the run
    words, cost  the cause and what it cost, for people
    """

    kind: Kind
    first: int
    last: int
    cause: str
    mark: Knowledge
    busy: int
    idle: int
    waited: dict[str, int]
    preemptions: Pairs
    twice: "array[int]"
    again: int | None
    tokens: int
    prompt: int | None
    stalled: int
    queued: int
    waiting: float
    empty: float | None
    seats: int
    arrived: int
    burst: tuple[int, int, int] | None
    worst: int
    words: str = ""
    cost: str = ""

    @property
    def waited_in_all(self) -> int:
        """The waiting time of all causes."""
        return sum(self.waited.values())


@dataclass(frozen=True)
class Regimes:
    """The regimes of a log, in order: at most seven, which cover all its finished steps.

    unit     "us" (microseconds), or "steps" if the log was saved without times
    names    of requests
    """

    columns: Columns = field(repr=False)
    names: Mapping[int, str] = field(repr=False)
    regimes: list[Regime]

    @property
    def unit(self) -> Literal["us", "steps"]:
        """See above."""
        return "us" if self.columns.unit == "us" else "steps"

    @cached_property
    def waited(self) -> dict[str, int]:
        """Time that requests waited in the whole run, by cause."""
        sums = Counter[str]()
        for regime in self.regimes:
            sums.update(regime.waited)
        return dict(sums)

    @cached_property
    def limit(self) -> list[Regime]:
        """The neighbours with one limit in which requests waited longest; [] without a limit."""
        groups: list[list[Regime]] = []
        for regime in self.regimes:
            limit = LIMITS.get(regime.kind)
            if groups and limit == LIMITS.get(groups[-1][-1].kind):
                groups[-1].append(regime)
            else:
                groups.append([regime])
        limits = [group for group in groups if group[0].kind in LIMITS]
        return max(limits, key=_waited, default=[])

    @property
    def worst(self) -> int | None:
        """The worst step of the regime in which requests waited longest; None without a limit."""
        return max(self.limit, key=lambda one: one.waited_in_all).worst if self.limit else None

    @property
    def sentence(self) -> str:
        """What limited the run, in one sentence."""
        from visualizer.reading.regimes.words import sentence

        return sentence(self)

    def __getitem__(self, index: int) -> Regime:
        return self.regimes[index]

    def __len__(self) -> int:
        return len(self.regimes)

    def __iter__(self) -> Iterator[Regime]:
        return iter(self.regimes)

    def __str__(self) -> str:
        from visualizer.reading.regimes.words import table

        return table(self)

    def as_dict(self) -> dict[str, Any]:
        """Return what a page shows, as plain values."""
        shown = ("kind", "first", "last", "cause", "worst", "words", "cost")
        bars = [{name: getattr(one, name) for name in shown} for one in self.regimes]
        return {"sentence": self.sentence, "worst": self.worst, "regimes": bars}


def regimes_of(log: "EventLog", known: Known | None = None) -> Regimes:
    """Return the regimes of a log, of which the facts may be `known`.

    A foreign log without its queue has none.
    """
    from visualizer.indexed.names import unique_names
    from visualizer.reading.regimes.words import cause_words, cost_words

    columns = Columns(known or known_of(log))
    found = Regimes(columns, unique_names(columns.labels), [])
    if LogKnowledge(columns.source).lacks("queue"):
        return found
    maker = _Maker(columns)
    for regime in maker.regimes(segments_of(columns)):
        words, cost = cause_words(regime, found), cost_words(regime, found)
        found.regimes.append(replace(regime, words=words, cost=cost))
    return found


def _waited(regimes: list[Regime]) -> int:
    return sum(one.waited_in_all for one in regimes)


class _Maker:
    """Measures segments."""

    def __init__(self, columns: Columns) -> None:
        self.columns, self.steps = columns, columns.steps
        self.knows = LogKnowledge(columns.source)

    def regimes(self, segments: list[Segment]) -> Iterator[Regime]:
        """Yield a regime for each segment; equal neighbours become one."""
        kinds = [self._kind(segments, index) for index in range(len(segments))]
        pairs = zip(kinds, segments, strict=True)
        for is_quiet, near in groupby(pairs, key=lambda pair: pair[0] in ("calm", "idle")):
            group = list(near)
            if is_quiet and len(group) > _MOST_QUIET:
                begin, end = group[0][1].begin, group[-1][1].end
                is_idle = sum(self.steps.idle[begin:end]) > sum(self.steps.busy[begin:end])
                group = [("idle" if is_idle else "calm", Segment(begin, end, []))]
            for kind, same in groupby(group, key=lambda pair: pair[0]):
                parts = [segment for _, segment in same]
                yield self._measured(kind, parts[0].begin, parts[-1].end)

    def _kind(self, segments: list[Segment], index: int) -> Kind:
        one = segments[index]
        weights = dict(zip(LABELS, one.weights, strict=True))
        if one.label == "calm" and weights.pop("calm") < _CALM * sum(one.weights):
            kind = _KINDS[max(weights, key=lambda label: weights[label])]
        else:
            kind = _KINDS[one.label]
        if kind == "thrash":
            again, tokens, victims = (
                sum(values[one.begin : one.end])
                for values in (self.steps.again, self.steps.tokens, self.steps.preempted)
            )
            is_thrash = victims >= THRASH_VICTIMS and again >= THRASH_SHARE * tokens
            return "thrash" if is_thrash else "memory-bound"
        before, after = segments[max(0, index - 1)], segments[index + 1 : index + 2]
        is_alone = index > 0 and all(near.label in ("calm", "idle") for near in (before, *after))
        if kind in ("seat-bound", "prefill-bound") and is_alone and self._burst(one.begin, one.end):
            return "burst"
        return kind

    def _burst(self, begin: int, end: int) -> tuple[int, int, int] | None:
        """Return the first and the last step in which a burst arrives, and the number of requests."""
        arrived, start = self.steps.arrived, max(0, begin - _LEAD)
        until = begin + max(1, int((end - begin) * _BURST_STEPS))
        early, its = sum(arrived[start:until]), sum(arrived[start:end])
        others, other_steps = sum(arrived) - its, len(arrived) - (end - start)
        rate = early / (until - start)
        if (
            early < max(_BURST_LEAST, _BURST_SHARE * its)
            or not others
            or rate * other_steps < _BURST_RATE * others
        ):
            return None
        at = [index for index in range(start, until) if arrived[index]]
        number = self.steps.number
        return number[at[0]], number[at[-1]], early

    def _measured(self, kind: Kind, begin: int, end: int) -> Regime:
        steps, columns, within = self.steps, self.columns, range(begin, end)
        waited = Counter[str]()
        for index in within:
            if steps.waiting[index]:
                for cause, amount in columns.amounts(index).items():
                    waited[cause] += amount * steps.busy[index]
        waited = +waited
        queued = array("q", (index for index in within if steps.waiting[index]))
        cause = max(waited, key=lambda one: waited[one], default="")
        victims = Pairs()
        for index, request in columns.victims:
            if index in within:
                victims.append(steps.number[index], request)
        twice = dict.fromkeys(request for index, request in columns.twice if index in within)
        seats = columns.settings.get("max_batch_size")
        empty = None
        if seats and queued and not self.knows.lacks("settings", "admissions"):
            empty = seats - sum(steps.seats[index] for index in queued) / len(queued)
        late = range(max(begin, math.ceil(_EDGE * len(steps.number))), end) or within
        worst = max(late, key=lambda index: (steps.preempted[index], steps.waiting[index], -index))
        has_rows = not self.knows.lacks("scheduled_tokens")
        return Regime(
            kind=kind,
            first=steps.number[begin],
            last=steps.number[end - 1],
            cause=cause,
            mark=mark_of(cause, columns.source) if cause else "recorded",
            busy=sum(steps.busy[begin:end]),
            idle=sum(steps.idle[begin:end]),
            waited=dict(waited),
            preemptions=victims,
            twice=array("q", twice),
            again=sum(steps.again[begin:end]) if has_rows else None,
            tokens=sum(steps.tokens[begin:end]),
            prompt=sum(steps.prompt[begin:end]) if has_rows else None,
            stalled=sum(steps.stalled[begin:end]),
            queued=len(queued),
            waiting=_mean(steps, queued),
            empty=empty,
            seats=seats or 0,
            arrived=sum(steps.arrived[begin:end]),
            burst=self._burst(begin, end) if kind == "burst" else None,
            worst=steps.number[worst],
        )


def _mean(steps: StepColumns, queued: Sequence[int]) -> float:
    return sum(steps.waiting[index] for index in queued) / len(queued) if queued else 0.0
