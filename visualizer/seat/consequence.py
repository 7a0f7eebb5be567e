"""The consequence of a choice in one sentence, made of facts of two logs whose differences add up.

Times are busy time: pauses and idle time do not count. The difference in busy time is split into what
fewer or more steps cost, what fewer or more tokens cost, and the rest (rows, attention, overlap).
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from engine.simulation.choice import Budget, Choice, Evict, First, Later, Settings, Victim
from engine.simulation.cost_runner import Cost, Work
from visualizer import read
from visualizer.comparing.accuracy import accuracy
from visualizer.comparing.run_totals import US_PER_MS, computed_twice
from visualizer.logs import settings_of
from visualizer.reading.busy_time import busy_us
from visualizer.reading.durations import duration
from visualizer.reading.messages import Words, count

_SHOWN_MS = 0.05  # a smaller part of the difference is left out of the sentence


class Part(NamedTuple):
    """A part of the difference in busy time: how many more of what, and the ms that they cost."""

    name: str
    more: int
    ms: float


class Moved(NamedTuple):
    """The request whose end the choice moved most, with both ends in ms of busy time."""

    request: int
    before_ms: float
    after_ms: float


class Consequence(msgspec.Struct, frozen=True):
    """What a choice changed.

    busy_ms   the busy time of what happened and of the choice
    parts     parts of their difference; their ms add up to it
    again     tokens that were computed again in both runs
    gap_ms    the longest gap between two tokens of one request in both runs
    moved     the request that it changed most, or None if every request ends as it did
    sooner    how many requests end sooner, and `later` how many end later
    words     all of it in one or two sentences
    """

    busy_ms: tuple[float, float]
    parts: list[Part]
    again: tuple[int, int]
    gap_ms: tuple[float, float]
    moved: Moved | None
    sooner: int
    later: int
    words: Words


def consequence(
    happened: EventLog, chosen: EventLog, choice: Choice, step: int, cost: Cost
) -> Consequence:
    """Compare what happened with a choice made in `step`; `cost` has the prices of both runs.

    The sentence says so if the difference is smaller than the error of fitted prices.
    """
    busy = busy_us(happened)[0] / US_PER_MS, busy_us(chosen)[0] / US_PER_MS
    parts = _parts(happened, chosen, cost, busy[1] - busy[0])
    again = computed_twice(happened), computed_twice(chosen)
    before, after = _ends(happened), _ends(chosen)
    moves = [
        Moved(request, before[request], after[request]) for request in before if request in after
    ]
    most = max(moves, key=lambda one: abs(one.after_ms - one.before_ms), default=None)
    if most is not None and most.after_ms == most.before_ms:
        most = None
    sooner = sum(one.after_ms < one.before_ms for one in moves)
    later = sum(one.after_ms > one.before_ms for one in moves)
    gaps = _longest_gap(happened), _longest_gap(chosen)
    sizes = [settings_of(log)["num_blocks"] for log in (happened, chosen)]
    lead = _lead(choice, step, is_from_start=sizes[0] != sizes[1])
    words = _words(lead, busy, parts, again, gaps, most, sooner, later)
    errors = accuracy(happened, chosen, step, ("", ""), {})
    if errors.share is None or (busy[0] != busy[1] and errors.is_noise("e2e", *busy)):
        words.append(" The difference is within the error of the predicted times.")
    return Consequence(busy, parts, again, gaps, most, sooner, later, words)


def _lead(choice: Choice, step: int, *, is_from_start: bool) -> Words:
    match choice:
        case Victim(request):
            return ["With ", request, " as the victim"]
        case First(request):
            return ["With ", request, " considered first"]
        case Later(request):
            return ["With ", request, " put off for a step"]
        case Evict():
            return ["With that prefix evicted"]
        case Budget(tokens):
            return [f"With {count(tokens, 'token')} in this step"]
        case Settings(seats, budget, blocks):
            changes = [count(seats, "seat")] if seats is not None else []
            changes += [f"{count(budget, 'token')} in a step"] if budget is not None else []
            if blocks:
                changes.append(f"{count(abs(blocks), 'block')} {'more' if blocks > 0 else 'fewer'}")
            since = f"from step {step} on"
            if blocks and is_from_start:
                since = "from the first step on"
            return [f"With {' and '.join(changes) or 'the same settings'} {since}"]


def _words(  # noqa: PLR0917 (a field of the consequence each)
    lead: Words,
    busy: tuple[float, float],
    parts: list[Part],
    again: tuple[int, int],
    gaps: tuple[float, float],
    moved: Moved | None,
    sooner: int,
    later: int,
) -> Words:
    difference = busy[1] - busy[0]
    words: Words = [*lead, f", the run takes {duration(busy[1])} of busy time"]
    if difference:
        shown = [_part_words(part) for part in parts if abs(part.ms) >= _SHOWN_MS or part.more]
        change = f"{duration(abs(difference))} {'less' if difference < 0 else 'more'}"
        words.append(f"{_instead(*busy)}, {change}")
        words.append(f": {', '.join(shown)}." if shown else ".")
    else:
        words.append(", as it did.")
    if again[0] != again[1]:
        computed = f"{count(again[1], 'token')} {'is' if again[1] == 1 else 'are'}"
        words.append(f" {computed} computed again instead of {again[0]}.")
    if duration(gaps[0]) != duration(gaps[1]):
        longest = f" The longest gap between two tokens is {duration(gaps[1])}{_instead(*gaps)}."
        words.append(longest)
    if moved is None:
        return [*words, " Every request ends when it did."]
    gap = moved.after_ms - moved.before_ms
    ends = f", which ends {duration(abs(gap))} {'sooner' if gap < 0 else 'later'}, "
    at = f"at {duration(moved.after_ms)}{_instead(moved.before_ms, moved.after_ms)}."
    both = f" {count(sooner, 'request')} {'ends' if sooner == 1 else 'end'} sooner, {later} later."
    return [*words, " It changes ", moved.request, " most", ends + at + both]


def _instead(before: float, after: float) -> str:
    """Return the duration that it was, unless the difference is too small to be seen in it."""
    was = duration(before)
    return "" if was == duration(after) else f" instead of {was}"


def _part_words(part: Part) -> str:
    sign = "+" if part.ms > 0 else "\N{MINUS SIGN}"
    cost = f"({sign}{duration(abs(part.ms))})"
    if not part.more:
        return f"{part.name} {cost}"
    how = "more" if part.more > 0 else "fewer"
    noun = part.name.removesuffix("s") if abs(part.more) == 1 else part.name
    return f"{abs(part.more)} {how} {noun} {cost}"


def _parts(a: EventLog, b: EventLog, cost: Cost, difference_ms: float) -> list[Part]:
    """Return parts of a difference in busy time, which add up to it."""
    one, two = _work(a), _work(b)
    more = {name: two[name] - one[name] for name in one}
    steps = (cost.base_ms + cost.cpu_ms) * more["steps"] + cost.batched_ms * more["batched"]
    tokens = cost.per_token_ms * more["tokens"] + cost.per_first_token_ms * more["first"]
    return [
        Part("steps", more["steps"], steps),
        Part("computed tokens", more["tokens"], tokens),
        Part("rows, attention and overlap", 0, difference_ms - steps - tokens),
    ]


def _longest_gap(log: EventLog) -> float:
    return max((row.gap_ms for row in read(log).token_rows if row.gap_ms is not None), default=0.0)


def _work(log: EventLog) -> dict[str, int]:
    """Return how many forward passes a run has, and how much of the work with a price of its own."""
    passes = [Work.of(event.rows) for event in log.of(v.StepScheduled) if event.rows]
    return {
        "steps": len(passes),
        "batched": sum(one.batched for one in passes),
        "tokens": sum(one.tokens for one in passes),
        "first": sum(one.first for one in passes),
    }


def _ends(log: EventLog) -> Mapping[int, float]:
    """Return when each request ended, in ms of busy time."""
    ends: dict[int, float] = {}
    busy = now = 0
    for event in log:
        match event:
            case v.StepFinished() if "start" in event.t:
                busy += max(0, event.t["end"] - max(event.t["start"], now))
                now = max(now, event.t["end"])
            case v.RequestFinished():
                ends[event.request] = busy / US_PER_MS
    return ends
