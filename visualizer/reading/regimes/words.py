"""The words for a run: one sentence, and for each regime its cause and its cost."""

from itertools import islice
from typing import TYPE_CHECKING

from visualizer.reading.knowledge import LogKnowledge, half_dot
from visualizer.reading.messages import count
from visualizer.reading.waterfall.causes import FOR_BLOCKS
from visualizer.reading.waterfall.words import cause_name, in_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from visualizer.reading.regimes.regimes import Regime, Regimes

# What requests wait for, by limit: the causes, and the words for them.
_FOR: dict[str, tuple[tuple[str, ...], str]] = {
    "memory": (FOR_BLOCKS, "for blocks"),
    "seats": (("batch_full", "static_batch"), "for a seat"),
    "budget": (("token_budget",), "for the token budget"),
}
_REASONED = ("seat-bound", "memory-bound", "prefill-bound")  # known from the reasons for waiting
_NAMED = 4  # requests that are named; more are counted


def sentence(regimes: "Regimes") -> str:
    """Say what limited the run, from when to when, and what that cost."""
    columns = regimes.columns
    knows, numbers = LogKnowledge(columns.source), columns.steps.number
    if not numbers:
        return "The log has no finished step, so it does not say what limited the run."
    if not regimes.regimes:
        return f"What limited the run is unknown. {knows.missing('queue')}"
    said = _limit(regimes) if regimes.limit else _calm(regimes)
    if columns.begins_after:
        part = f"Of steps {numbers[0]:,} to {numbers[-1]:,}, which are all that this log has"
        return f"{part}: {lowered(said)}"
    return said


def _limit(regimes: "Regimes") -> str:
    group, columns = regimes.limit, regimes.columns
    when, kind = _when(regimes, group), group[0].kind
    queue = _queue(group)
    if kind == "queue":
        return f"{when}, requests wait, and the log does not say why: {queue}."
    is_static = max(group, key=lambda one: one.waited_in_all).cause == "static_batch"
    limit = {
        "seat-bound": "the static batch is the limit" if is_static else "seats are the limit",
        "prefill-bound": "the token budget is the limit",
        "burst": "a burst of requests is the limit",
    }.get(kind, "memory is the limit")
    shares = {"seat-bound": "seats", "prefill-bound": "budget", "burst": ""}
    parts = _shares(regimes, shares.get(kind, "memory"), group)
    if kind == "burst":
        [burst] = [one.burst for one in group if one.burst]
        parts.insert(0, f"{count(burst[2], 'request')} arrive {_steps(burst[0], burst[1])}")
    if kind == "prefill-bound":
        stalled, prompt = sum(one.stalled for one in group), _prompt_share(group)
        parts += [f"{prompt} of the computed tokens are those of prompts"] * bool(prompt)
        parts += [f"running requests got no tokens {stalled:,} times"] * bool(stalled)
    again, twice = sum(one.again or 0 for one in group), {r for one in group for r in one.twice}
    if twice:
        was = "was" if len(twice) == 1 else "were"
        tokens = count_of(again, "token")
        parts.append(f"{count_of(len(twice), 'request')} {was} partly computed twice ({tokens})")
    parts.append(queue)
    mark = half_dot(columns.source, "waiting_reasons")
    return f"{when}, {mark}{limit}: {_listed(filter(None, parts))}."


def _when(regimes: "Regimes", group: "list[Regime]") -> str:
    first, last = group[0], group[-1]
    is_first, is_last = first is regimes[0], last is regimes[-1]
    if is_first and is_last:
        return "From the first step to the last"
    if is_last:
        return f"From step {first.first:,} on"
    if is_first:
        return f"Up to step {last.last:,}"
    return f"From step {first.first:,} to step {last.last:,}"


def _shares(regimes: "Regimes", limit: str, group: "list[Regime]") -> list[str]:
    """Say which part of all waiting is for what the limit is; "" stands for the group's own time."""
    whole = sum(regimes.waited.values())
    if not whole:
        return []
    if not limit:
        part = sum(one.waited_in_all for one in group)
        return [f"{share_of_all(part, whole)} waiting is in these steps"]
    causes, words = _FOR[limit]
    part = sum(regimes.waited.get(cause, 0) for cause in causes)
    if limit == "seats" and not regimes.waited.get("batch_full"):
        words = "for the batch to end"
    return [f"{share_of_all(part, whole)} waiting is {words}"] * bool(part)


def _queue(group: "list[Regime]") -> str:
    """Say how many requests wait on average, and how many seats are empty meanwhile."""
    weights = [(one, one.queued) for one in group if one.queued]
    queued = sum(number for _, number in weights)
    if not queued:
        return ""
    waiting = sum(one.waiting * number for one, number in weights) / queued
    wait = "request waits" if _number(waiting) == "1" else "requests wait"
    known = [(one.empty, number) for one, number in weights if one.empty is not None]
    if len(known) < len(weights):
        return f"on average {_number(waiting)} {wait}"
    empty, seats = sum(part * number for part, number in known) / queued, group[0].seats
    if _number(empty) == "0" or _number(seats - empty) == f"{seats}":
        taken = (
            f"{'nearly ' * bool(empty)}all {seats} seats are" if seats > 1 else "the only seat is"
        )
        return f"on average {_number(waiting)} {wait} while {taken} taken"
    if group[0].kind in ("seat-bound", "burst") and group[0].cause == "batch_full":
        taken = f"{_number(seats - empty)} of {count(seats, 'seat')}"
        return f"on average {_number(waiting)} {wait} while {taken} are taken"
    stay = "stays" if _number(empty) == "1" else "stay"
    return (
        f"on average {_number(empty)} of {count(seats, 'seat')} {stay} empty "
        f"while {_number(waiting)} {wait}"
    )


def _calm(regimes: "Regimes") -> str:
    whole, idle = (sum(getattr(one, name) for one in regimes) for name in ("busy", "idle"))
    waited = sum(regimes.waited.values())
    wait = f"its requests wait {_time(waited, regimes)} in all{_most(regimes)}" if waited else ""
    if idle > whole:
        share = _percent(idle, idle + whole)
        rest = wait or "no request waits"
        time = _time(idle, regimes)
        return f"Most of the time the engine is idle: {share} of it, {time}, and {rest}."
    steps = count_of(len(regimes.columns.steps.number), "step")
    if wait:
        return f"Nothing limits this run for long: in {steps} {wait}."
    return f"Nothing limits this run: in {steps} no request waits."


def _most(regimes: "Regimes") -> str:
    """Say what requests wait for most, in a run without a limit, and how often one is preempted."""
    sums = {
        words: sum(regimes.waited.get(cause, 0) for cause in causes)
        for causes, words in _FOR.values()
    }
    words = max(sums, key=lambda one: sums[one])
    share = share_of_all(sums[words], sum(regimes.waited.values())).removesuffix(" of all")
    share = f", {share} of it {words}" * bool(sums[words])
    victims = sum(len(one.preemptions) for one in regimes)
    return share + f", with {count_of(victims, 'preemption')}" * bool(victims)


def cause_words(regime: "Regime", regimes: "Regimes") -> str:
    """Say in one or two sentences what happens in a regime."""
    queue = _queue([regime])
    inferred = half_dot(regimes.columns.source, "waiting_reasons")
    words = f"{inferred if regime.kind in _REASONED else ''}{_cause(regime, regimes)}"
    if regime.kind in ("calm", "idle"):
        return f"{words}{queue and f': {queue}'}."
    return f"{words}.{queue and f' {queue[0].upper()}{queue[1:]}.'}"


def _cause(regime: "Regime", regimes: "Regimes") -> str:
    words = "Too few seats are free"
    match regime.kind:
        case "calm":
            words = "No request waits"
            if regime.queued:
                steps = count_of(regime.last - regime.first + 1, "step")
                words = f"Requests wait in {regime.queued:,} of {steps}"
        case "idle":
            words = f"The engine has no request for {_time(regime.idle, regimes)}"
        case "queue":
            words = "The log does not say why requests wait"
        case "burst":
            assert regime.burst is not None
            begin, end, number = regime.burst
            words = f"{count_of(number, 'request')} arrive {_steps(begin, end)}"
        case "prefill-bound":
            share = _prompt_share([regime])
            said = f": {share} of the tokens are those of prompts" if share else ""
            words = f"The token budget of the steps is spent{said}"
        case "thrash":
            lost = f"{count_of(regime.again or 0, 'token')} of {count_of(len(regime.twice), 'request')}"
            victims = count_of(len(regime.preemptions), "preemption")
            words = f"{victims}: {lost} have to be computed again"
        case "memory-bound":
            words = "Too few KV blocks are free"
        case "seat-bound" if regime.cause == "static_batch":
            words = "A static batch admits none until it ends"
    return words


def cost_words(regime: "Regime", regimes: "Regimes") -> str:
    """Say what a regime cost: waiting time, and tokens that were computed again."""
    waited = _time(regime.waited_in_all, regimes)
    parts = [f"{_time(regime.idle, regimes)} idle"] * (regime.kind == "idle")
    parts += [f"{waited} waited"] * bool(regime.waited_in_all)
    parts += [f"{count_of(regime.again or 0, 'token')} again"] * bool(regime.again)
    return ", ".join(parts) or "nothing waited"


def table(regimes: "Regimes") -> str:
    """Return the sentence, and for each regime a line and its evidence."""
    lines = [regimes.sentence]
    for one in regimes:
        lines += [
            "",
            f"{_steps(one.first, one.last, '')}: {one.kind}, {one.cost}",
            f"  {one.words}",
        ]
        lines += [f"  {line}" for line in _evidence(one, regimes)]
    return "\n".join(lines)


def _evidence(regime: "Regime", regimes: "Regimes") -> "Iterable[str]":
    waits = sorted(regime.waited.items(), key=lambda item: -item[1])
    if waits:
        causes = [f"{cause_name(cause)} {_time(amount, regimes)}" for cause, amount in waits]
        yield f"waiting: {', '.join(causes)}"
        yield f"worst: step {regime.worst:,}"
    if regime.preemptions:
        said = (
            f"{regimes.names[request]} in step {step:,}" for step, request in regime.preemptions
        )
        yield f"preempted: {_some(said, len(regime.preemptions))}"
    if regime.twice:
        said = (regimes.names[request] for request in regime.twice)
        yield f"computed again: {_some(said, len(regime.twice))}"


def _some(words: "Iterable[str]", number: int) -> str:
    """Return the first of so many words."""
    more = f" and {number - _NAMED:,} more" if number > _NAMED else ""
    return f"{', '.join(islice(words, _NAMED))}{more}"


def lowered(sentence: str) -> str:
    """Return a sentence with a small first letter, for the middle of another one."""
    return f"{sentence[0].lower()}{sentence[1:]}"


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun and thousands separators: "1 step", "1,200 steps"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _steps(first: int, last: int, before: str = "in ") -> str:
    return f"{before}step {first:,}" if first == last else f"{before}steps {first:,} to {last:,}"


def _time(amount: int, regimes: "Regimes") -> str:
    return in_words(amount, regimes.unit)


def _prompt_share(group: "list[Regime]") -> str:
    prompts, tokens = [one.prompt for one in group], sum(one.tokens for one in group)
    if None in prompts or not tokens:
        return ""
    return _percent(sum(filter(None, prompts)), tokens)


def share_of_all(part: int, whole: int) -> str:
    """Return "all" or, for example, "72 % of all"."""
    return "all" if part == whole else f"{_percent(part, whole)} of all"


def _percent(part: int, whole: int) -> str:
    """Return a share in whole percent; only all is 100 %."""
    share = round(100 * part / whole)
    if share == 0 and part:
        return "under 1 %"
    return f"{share if part == whole else min(99, share)} %"


def _number(mean: float) -> str:
    """Return a mean: whole from 10 up, else with one digit after the point unless it is 0."""
    return f"{mean:,.0f}" if mean >= 9.95 else f"{mean:.1f}".removesuffix(".0")


def _listed(parts: "Iterable[str]") -> str:
    words = list(parts)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, and {words[-1]}"
