"""Find the first decision in which two runs differ, by folding both logs in lockstep.

A decision is something that the scheduler or the cache does for a request (admit it with a cached
prefix, preempt it, evict a cached prefix for it, schedule its tokens) or a token that the model
outputs. Block and node numbers are not compared, because a single extra block renumbers all of them.
An evicted prefix is therefore identified by its tokens. Reasons for waiting are reported but not
compared.

One pass finds the difference. Each log is then folded a few more times to describe its state there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from engine.core.log import EventLog, State
from engine.core.log import vocabulary as v
from engine.simulation.facts import Fact
from visualizer import read
from visualizer.comparing.engines import is_foreign, match_equal, match_foreign
from visualizer.reading.messages import Words, count, supply_words
from visualizer.reading.story import Story

# If the two decisions are of different kinds, the rarer kind is described.
_KINDS = ("preempted", "evicted", "admitted", "scheduled", "finished", "output")


class Decision(NamedTuple):
    """One decision. `at` is the index of its event in the log. Equal decisions have equal keys."""

    kind: str
    request: int
    key: tuple[Any, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between two runs.

    kind      "preempted", "evicted", "admitted", "scheduled" (tokens from the budget), "output"
              (the model's tokens) or "finished"
    requests  the request's id in each log, or None if the log does not have the request
    a, b      what happens in each run, and why
    """

    step: int
    kind: str
    requests: tuple[int | None, int | None]
    a: Words
    b: Words


def pair(a: EventLog, b: EventLog) -> dict[int, int]:
    """Map the requests of `a` to those of `b` with the same label and prompt, in arrival order.

    The samples of paired requests are paired by sample number. For the logs of other engines, see
    `engines.py`.
    """
    matched = match_foreign(a, b) if is_foreign(a, b) else match_equal(a, b)
    return {
        own.request + sample: other.request + sample
        for own, other in matched
        for sample in range(min(own.n, other.n))
    }


def decisions(
    log: EventLog, ids: dict[int, int], unknown: frozenset[Fact] = frozenset()
) -> Iterator[tuple[int, list[Decision]]]:
    """Yield each step with its decisions in order.

    `ids` maps request ids in this log to common ids. A request without a common id gets an id that is
    unique to this log. The tokens of an asynchronous step belong to it, although the next step has
    started when they are logged. Facts that are `unknown` in one of the logs are left out of the keys.
    """
    state = State()
    step = committed = 0  # the step that started last; the one whose tokens are appended
    made: dict[int, list[Decision]] = {}  # by step; kept until a step starts after this one's end
    finished: set[int] = set()
    events: list[Decision] = []  # decisions before the rows are known

    def decision(kind: str, request: int, *key: Any) -> Decision:
        return Decision(kind, request, (ids.get(request, -2 - request), *key), index)

    def output(row: v.TokenRow) -> tuple[int, ...]:
        return (len(row.ids),) if "token_ids" in unknown else tuple(row.ids)

    for index, event in enumerate(log):  # noqa: B007 (`decision` reads the index)
        match event:
            case v.StepStarted():
                if step:
                    made[step] += events
                yield from [(one, made.pop(one)) for one in list(made) if one in finished]
                step = committed = event.step
                made[step], events = [], []
            case v.Preempted(request=request, needed_by=by):
                causes = [] if "preemption_causes" in unknown else [ids.get(by, -2 - by)]
                events.append(decision("preempted", request, *causes))
            case (
                v.RadixEvicted(reason="room", needed_by=request)
                | v.BlockEvicted(reason="room", needed_by=request)
            ) if not unknown.intersection(("eviction_causes", "token_ids")):
                path, key = state.prefix_tokens(event.node), state.prefix_key(event.node)
                lost = len(state.nodes[event.node].tokens), tuple(path), tuple(key)
                events.append(decision("evicted", request, *lost))
            case v.Admitted(request=request):
                found = len(event.blocks) * state.block_size
                events.append(decision("admitted", request, found, event.resumed))
            case v.StepScheduled():
                rows = [
                    decision("scheduled", row.request, row.start, row.count, tuple(row.drafts))
                    for row in event.rows
                ]
                made[step], events = _in_order(events, rows, log, unknown), []
            case v.StepFinished():
                committed = event.step
                finished.add(committed)
                if committed in made:  # else it started before the log's window
                    made[committed] += [
                        decision("output", row.request, *output(row), row.accepted, row.forced)
                        for row in event.tokens
                    ]
            case v.RequestFinished(request=request) if event.reason != "abort":
                if committed in made:
                    reasons = [] if "finish_reasons" in unknown else [event.reason]
                    made[committed].append(decision("finished", request, *reasons))
        state.apply(event)
    if step:
        made[step] += events
    yield from made.items()


def _in_order(
    events: list[Decision], rows: list[Decision], log: EventLog, unknown: frozenset[Fact]
) -> list[Decision]:
    """Merge rows and other decisions. Decisions that free blocks for a request precede its row."""
    order: list[Decision] = []
    row_of = {row.request: at for at, row in enumerate(rows)}
    merged = 0  # number of rows merged so far
    for one in events:
        event = log[one.at]
        needed_by = one.request
        if isinstance(event, v.Preempted):
            needed_by = -1 if "preemption_causes" in unknown else event.needed_by
        until = max(merged, row_of.get(needed_by, merged))
        order += [*rows[merged:until], one]
        merged = until
    return order + rows[merged:]


def first_difference(a: EventLog, b: EventLog, pairs: dict[int, int]) -> Difference | None:
    """Return the first difference, or None. The comparison of a windowed log starts at its window."""
    same = {request: request for request in pairs}
    back = {other: request for request, other in pairs.items()}
    unknown = _unknown_in(a, b)
    if "scheduled_tokens" in unknown:
        return None  # at least one of the logs has no decisions
    left, right = decisions(a, same, unknown), decisions(b, back, unknown)
    one, two = next(left, None), next(right, None)
    # A windowed log starts late, so skip the steps that only one log has.
    while one and two and one[0] != two[0]:
        if one[0] < two[0]:
            one = next(left, None)
        else:
            two = next(right, None)
    while one or two:
        if one is None or two is None or one[0] != two[0]:
            return _one_goes_on(one, two)
        for x, y in zip_longest(one[1], two[1]):
            if x is None or y is None or (x.kind, x.key) != (y.kind, y.key):
                return _Divergence(a, b, pairs, one[0]).difference(x, y)
        one, two = next(left, None), next(right, None)
    return None


def differing_steps(a: EventLog, b: EventLog, pairs: dict[int, int]) -> list[int]:
    """Return the steps that both runs have and in which they decide differently, in order."""
    ids = {request: request for request in pairs}, {other: one for one, other in pairs.items()}
    unknown = _unknown_in(a, b)
    made = [
        {
            step: hash(tuple((one.kind, one.key) for one in all_))  # of a long log, there are many
            for step, all_ in decisions(log, own, unknown)
        }
        for log, own in zip((a, b), ids, strict=True)
    ]
    return [step for step in made[0] if step in made[1] and made[0][step] != made[1][step]]


def _unknown_in(*logs: EventLog) -> frozenset[Fact]:
    return frozenset(fact for log in logs for fact in read(log).knowledge.facts("unknown"))


def _one_goes_on(
    one: tuple[int, list[Decision]] | None, two: tuple[int, list[Decision]] | None
) -> Difference:
    longer = one or two
    assert longer is not None
    ends: Words = ["the run has ended: no request is left"]
    goes: Words = [f"the run goes on, with {count(len(longer[1]), 'decision')} in this step"]
    a, b = (goes, ends) if one else (ends, goes)
    return Difference(longer[0], "scheduled", (None, None), a, b)


class _Divergence:
    """Both runs at the step of their first difference."""

    def __init__(self, a: EventLog, b: EventLog, pairs: dict[int, int], step: int) -> None:
        self.step = step
        self.stories = Story(a, step), Story(b, step)
        self.pairs = pairs, {other: request for request, other in pairs.items()}

    def difference(self, x: Decision | None, y: Decision | None) -> Difference:
        """Describe how decision `x` of the first run differs from `y` of the second."""
        sides = [(one, side) for side, one in enumerate((x, y)) if one is not None]
        lead, side = min(sides, key=lambda it: (_KINDS.index(it[0].kind), it[1]))
        other = (y, x)[side]
        own = lead.request
        theirs = self.pairs[side].get(own)
        here = self._describe(lead, side)
        there = self._counterpart(lead, other, theirs, 1 - side)
        if side == 0:
            return Difference(self.step, lead.kind, (own, theirs), here, there)
        return Difference(self.step, lead.kind, (theirs, own), there, here)

    def _describe(self, one: Decision, side: int) -> Words:
        """Say what was decided, and why."""
        story = self.stories[side]
        match event := story.log[one.at]:
            case v.RadixEvicted() | v.BlockEvicted():
                return story.evicted(event)
            case v.StepFinished():
                row = next(row for row in event.tokens if row.request == one.request)
                if not any(row.texts):
                    return [one.request, f" gets {count(len(row.ids), 'token')}"]
                return [one.request, f" gets “{''.join(row.texts)}” from the model"]
            case v.RequestFinished():
                return [one.request, f" ends: {event.message or event.reason}"]
        return [one.request, " ", *story.fate(one.request)]

    def _counterpart(
        self, lead: Decision, other: Decision | None, theirs: int | None, side: int
    ) -> Words:
        """Say what the other run does instead."""
        if theirs is None:
            return ["this run does not have the request"]
        story = self.stories[side]
        # The sentence about the first run has already named the request.
        it: Words = [theirs, " "] if side == 0 else ["it "]
        if lead.kind in ("output", "finished"):
            same = other and other.request == theirs
            return self._describe(other, side) if other and same else [*it, "gets nothing"]
        if other and other.kind == lead.kind != "scheduled":
            is_other_request = other.request != theirs
            fate: Words = ["; ", theirs, " ", *story.fate(theirs)] if is_other_request else []
            return self._describe(other, side) + fate
        if lead.kind == "evicted":
            it = ["nothing is evicted: ", theirs, " "]
        supply = self._supply(side, theirs) if lead.kind in ("evicted", "preempted") else ""
        if lead.kind == "scheduled" and other and self._only_later(lead, theirs, side):
            return [*it, "gets the same tokens, but after ", other.request]
        return [*it, *story.fate(theirs), supply]

    def _only_later(self, lead: Decision, theirs: int, side: int) -> bool:
        rows = self.stories[side].rows.get(theirs), self.stories[1 - side].rows[lead.request]
        one, two = (row and (row.start, row.count, row.drafts) for row in rows)
        return one == two

    def _supply(self, side: int, request: int) -> str:
        """Describe the available blocks when the request got its blocks, or at the end of the step."""
        story = self.stories[side]
        allocations = (
            offset
            for offset, event in enumerate(story.events)
            if isinstance(event, v.BlocksAllocated) and event.request == request
        )
        at = story.state_at(next(allocations, len(story.events)))
        return f" ({supply_words(len(at.free), at.evictable)})"
