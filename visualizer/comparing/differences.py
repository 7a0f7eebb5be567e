"""The first decision in which two runs differ, found by folding both logs in lock-step.

A decision is what scheduler and cache do to requests: who is admitted and how much of it is found, who
is preempted, which cached prefix is evicted, who computes how many tokens; and what the model answers
to it. Numbers of blocks and nodes are not compared, because one block more gives all of them other
numbers: an evicted prefix is known by its tokens. Why somebody waits is told, not compared.

One pass over both logs; then each is folded a few times more to say what its state was there.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from engine.events import EventLog, State
from engine.events import vocabulary as v
from engine.events.state import ROOT
from visualizer.moments import Moment, Words, count, evictable

# Where the runs part, the rarer kind is what is told.
_KINDS = ("preempted", "evicted", "admitted", "scheduled", "finished", "output")


class Decision(NamedTuple):
    """One decision. `key` is what two runs have in common; `at` is its event's index in the log."""

    kind: str
    request: int
    key: tuple[Any, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Difference:
    """What the runs first decide otherwise.

    kind      "preempted", "evicted", "admitted", "scheduled" (tokens of the budget), "output" (what the
              model answers) or "finished"
    requests  whom it is about, as each log numbers them; None where it does not have the request
    a, b      what happens there, and why
    """

    step: int
    kind: str
    requests: tuple[int | None, int | None]
    a: Words
    b: Words


def pair(a: EventLog, b: EventLog) -> dict[int, int]:
    """Requests of `a` -> those of `b`: equal label and prompt, in order of arrival.

    The samples of paired requests are paired by their number.
    """
    known: defaultdict[tuple[str, tuple[int, ...]], deque[tuple[int, int]]] = defaultdict(deque)
    for request, label, prompt, n in _arrivals(b):
        known[label, prompt].append((request, n))
    pairs: dict[int, int] = {}
    for request, label, prompt, n in _arrivals(a):
        if same := known[label, prompt]:
            other, others = same.popleft()
            pairs |= {request + sample: other + sample for sample in range(min(n, others))}
    return pairs


def _arrivals(log: EventLog) -> Iterator[tuple[int, str, tuple[int, ...], int]]:
    for event in log:
        if isinstance(event, v.RequestArrived):
            yield event.request, event.label, tuple(event.prompt), event.n
        elif isinstance(event, v.Keyframe):
            for entry in event.state["requests"]:
                prompt = tuple(entry["tokens"][: entry["prompt_length"]])
                yield entry["id"], entry["label"], prompt, max(1, entry["slots"])


def decisions(log: EventLog, ids: dict[int, int]) -> Iterator[tuple[int, list[Decision]]]:
    """Each step with its decisions in order. `ids` names the requests; who has no name there gets
    one that no other log has.
    """
    state, step = State(), 0
    made: list[Decision] = []
    events: list[Decision] = []  # what was decided before the rows are known

    def name(request: int) -> int:
        return ids.get(request, -2 - request)

    for index, event in enumerate(log):
        match event:
            case v.StepStarted():
                if step:
                    yield step, made + events
                step, made, events = event.step, [], []
            case v.Preempted(request=who):
                by = name(event.needed_by)
                events.append(Decision("preempted", who, (name(who), by), index))
            case v.RadixEvicted(reason="room", needed_by=who):
                node = state.nodes[event.node]
                lost = len(node.tokens), _spelled(state, event.node)
                events.append(Decision("evicted", who, (name(who), *lost), index))
            case v.Admitted(request=who):
                found = len(event.blocks) * state.block_size, event.resumed
                events.append(Decision("admitted", who, (name(who), *found), index))
            case v.StepScheduled():
                rows = [
                    Decision(
                        "scheduled",
                        row.request,
                        (name(row.request), row.start, row.count, tuple(row.drafts)),
                        index,
                    )
                    for row in event.rows
                ]
                made, events = _in_order(events, rows, log), []
            case v.StepFinished():
                for row in event.tokens:
                    gained = *row.ids, row.accepted, row.forced
                    made.append(
                        Decision("output", row.request, (name(row.request), *gained), index)
                    )
            case v.RequestFinished(request=who) if event.reason != "abort":
                made.append(Decision("finished", who, (name(who), event.reason), index))
        state.apply(event)
    if step:
        yield step, made + events


def _in_order(events: list[Decision], rows: list[Decision], log: EventLog) -> list[Decision]:
    """Rows between what else was decided: room for a request is made before its row."""
    order: list[Decision] = []
    place = {row.request: at for at, row in enumerate(rows)}
    given = 0
    for one in events:
        event = log[one.at]
        who = event.needed_by if isinstance(event, v.Preempted) else one.request
        until = max(given, place.get(who, given))
        order += rows[given:until]
        order.append(one)
        given = until
    return order + rows[given:]


def _spelled(state: State, node: int) -> tuple[int, ...]:
    """All tokens from the root to the end of a node's edge."""
    edges: list[list[int]] = []
    while node != ROOT:
        edges.append(state.nodes[node].tokens)
        node = state.nodes[node].parent
    return tuple(token for edge in reversed(edges) for token in edge)


def first_difference(a: EventLog, b: EventLog, pairs: dict[int, int]) -> Difference | None:
    """Where the runs first part. A log that begins in the middle is compared from there on."""
    same = {request: request for request in pairs}
    back = {other: request for request, other in pairs.items()}
    left, right = decisions(a, same), decisions(b, back)
    one, two = next(left, None), next(right, None)
    # A window begins late: what only one log still knows is passed over.
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
                return _Told(a, b, pairs, one[0]).difference(x, y)
        one, two = next(left, None), next(right, None)
    return None


def _one_goes_on(
    one: tuple[int, list[Decision]] | None, two: tuple[int, list[Decision]] | None
) -> Difference:
    longer, step = (one, True) if one else (two, False)
    assert longer is not None
    ends: Words = ["there is no such step: nothing is left to do"]
    goes: Words = [f"the run goes on, with {count(len(longer[1]), 'decision')} in this step"]
    a, b = (goes, ends) if step else (ends, goes)
    return Difference(longer[0], "scheduled", (None, None), a, b)


class _Told:
    """Both runs in the step in which they part."""

    def __init__(self, a: EventLog, b: EventLog, pairs: dict[int, int], step: int) -> None:
        self.step = step
        self.moments = Moment(a, step), Moment(b, step)
        self.pairs = pairs, {other: request for request, other in pairs.items()}

    def difference(self, x: Decision | None, y: Decision | None) -> Difference:
        """`x` in the one run stands where `y` does in the other."""
        sides = [(one, side) for side, one in enumerate((x, y)) if one is not None]
        lead, side = min(sides, key=lambda it: (_KINDS.index(it[0].kind), it[1]))
        other = (y, x)[side]
        own = lead.request
        theirs = self.pairs[side].get(own)
        told: list[Words] = [[], []]
        told[side] = self._tell(lead, side)
        told[1 - side] = self._answer(lead, other, theirs, 1 - side)
        requests = (own, theirs) if side == 0 else (theirs, own)
        return Difference(self.step, lead.kind, requests, told[0], told[1])

    def _tell(self, one: Decision, side: int) -> Words:
        """What was decided, and why."""
        moment = self.moments[side]
        event = moment.log[one.at]
        match event:
            case v.RadixEvicted():
                return moment.evicted(event)
            case v.StepFinished():
                row = next(row for row in event.tokens if row.request == one.request)
                return [one.request, f" gets “{''.join(row.texts)}” from the model"]
            case v.RequestFinished():
                return [one.request, f" ends: {event.message or event.reason}"]
        return [one.request, " ", *moment.fate(one.request)]

    def _answer(
        self, lead: Decision, other: Decision | None, theirs: int | None, side: int
    ) -> Words:
        """What the other run does instead."""
        if theirs is None:
            return ["there is no such request"]
        moment = self.moments[side]
        it: Words = [theirs, " "] if side == 0 else ["it "]  # what is told first names it
        if lead.kind in ("output", "finished"):
            same = other and other.request == theirs
            return self._tell(other, side) if other and same else [*it, "gets nothing"]
        if other and other.kind == lead.kind != "scheduled":
            # Somebody else, or something else, in its place.
            stead = other.request != theirs
            fate: Words = ["; ", theirs, " ", *moment.fate(theirs)] if stead else []
            return self._tell(other, side) + fate
        if lead.kind == "evicted":
            it = ["nothing is evicted: ", theirs, " "]
        room = self._room(side, theirs) if lead.kind in ("evicted", "preempted") else ""
        if lead.kind == "scheduled" and other and self._only_later(lead, theirs, side):
            return [*it, "does the same, but after ", other.request]
        return [*it, *moment.fate(theirs), room]

    def _only_later(self, lead: Decision, theirs: int, side: int) -> bool:
        rows = self.moments[side].rows.get(theirs), self.moments[1 - side].rows[lead.request]
        one, two = (row and (row.start, row.count, row.drafts) for row in rows)
        return one == two

    def _room(self, side: int, request: int) -> str:
        """Blocks that could be had when the request was asked, or else when the step had been made."""
        moment = self.moments[side]
        end = len(moment.events)
        for offset, event in enumerate(moment.events):
            if isinstance(event, v.BlocksAllocated) and event.request == request:
                end = offset
                break
        at = moment.state_at(end)
        return f" ({len(at.free)} free, {evictable(at)} to evict)"
