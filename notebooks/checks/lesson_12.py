"""Lesson 12: a report on the request that waited longest, from the log alone."""

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from checks.afternoon import MACHINE, afternoon
from checks.answer import Answer
from checks.broken import Promises
from checks.guard import watched
from checks.judging import counted, listed, whole
from engine import EngineConfig, simulate, what_if
from engine.core.log import EventLog
from engine.core.log.vocabulary import RunStarted, StepScheduled
from engine.core.part_errors import PartError
from engine.simulation.speakers import NAMES, Speaker, workload_of
from visualizer import read

Report = Callable[[EventLog], Mapping[str, Any]]

KEYS = ("request", "cause", "evidence", "change", "gain", "cost")
ANSWERS = {
    "memory": Answer(
        "exactly as long",
        {
            "half as long": "Memory is short at step 50, but in only a few of the steps of her wait.",
            "a few steps less": "She no longer waits for memory, but then she waits for another limit.",
            "longer": "More memory lets more requests run at once, but only if they have seats, too.",
        },
        fits=lambda more_steps: more_steps == 0,
    ),
    "best": Answer(
        "short prompts first",
        {
            "twice the seats": "She waited for a seat, but with more of them, memory runs out.",
            "twice the budget": "The budget was the reason in only 1 step of 47.",
        },
    ),
}
HINTS = (
    "Count the reasons over the whole wait: max() over waited() names the request, and "
    "Counter(one.reason for one in blocked_while_waiting(log, request).values()) has the causes.",
    "most_common() has the causes in the right order. For each of them, change |= doubled(log, cause) "
    "and then tried(log, request, change), until its gain is above 0. Then return all of it.",
)
SEVERAL = 3  # steps of evidence, if there are so many


class Promise(Promises):
    """The promises that the check tests."""

    KEYS = f"a report has {', '.join(KEYS)}"
    UNCHANGED = "the log stays as it was"
    IN_THE_LOG = "the report is about a request of the log"
    LONGEST_WAIT = "the report is about the request that waited longest"
    CAUSE_IN_THE_LOG = "the cause is a reason that the log has while the request waits"
    MOST_STEPS = "the cause is the most frequent reason of those steps"
    EVIDENCE_STEPS = "evidence is a list of steps"
    EVIDENCE_IN_WAIT = "evidence lies within the wait"
    EVIDENCE_HAS_CAUSE = "every step of the evidence has the cause"
    ENOUGH_EVIDENCE = f"there are at least {SEVERAL} steps of evidence, if so many have the cause"
    CHANGE = "the change has settings and their new values, as what_if() takes them"
    REPLAYABLE = "the change can be replayed"
    GAIN = "the gain is the number of steps by which the replay shortens the wait"
    SHORTER = "the change shortens the wait"
    COST = "the cost is None, or a request and the delay of its first token in steps"
    COST_IN_REPLAY = "the cost is that of the replay"
    HIGHEST_COST = "the cost names the request that pays the most, or is None if none pays"


@dataclass(frozen=True)
class Trace:
    """A log, with the waits of its requests and their reasons."""

    name: str
    log: EventLog

    def __str__(self) -> str:
        settings, reading = self.log.of(RunStarted)[0].settings, read(self.log)
        return (
            f"{self.name}: {len(reading.request_rows)} requests, {len(reading.step_rows)} steps, "
            f"{counted(settings['max_batch_size'], 'seat')}, a budget of "
            f"{settings['token_budget']} and {settings['num_blocks']} blocks."
        )

    @property
    def waits(self) -> dict[int, int]:
        """Return request -> steps from its arrival to its first admission."""
        return waits(self.log)

    def reasons(self, request: int) -> dict[int, str]:
        """Return step -> reason that blocked the queue, for every step in which the request waited."""
        row, steps = read(self.log).request(request), self.log.of(StepScheduled)
        assert row.arrived_step is not None and row.admitted_step is not None
        span = range(row.arrived_step, row.admitted_step)
        blocked = {step: steps[step - 1].blocked for step in span}
        return {step: one.reason for step, one in blocked.items() if one is not None}


def adapt(report: Report | None) -> Report | None:
    """Return the learner's function, or None until it passes."""
    return report


def waits(log: EventLog) -> dict[int, int]:
    """Return request -> steps from its arrival to its first admission."""
    found = {}
    for row in read(log).request_rows:
        assert row.arrived_step is not None and row.admitted_step is not None
        found[row.request] = row.admitted_step - row.arrived_step
    return found


@cache
def cases() -> list[Trace]:
    """Return small workloads, each short of another resource; then the afternoon.

    In one of them the most frequent reason is neither the first nor the last. In the one before the
    afternoon, two limits have to be doubled, and the first token of a request that waited less is just
    as late.
    """
    chance = random.Random(13)
    tight = [({"max_batch_size": 2}, 4), ({"token_budget": 8}, 5), ({"max_kv_tokens": 72}, 6)]
    workloads = [(change, _people(people, chance)) for change, people in tight]
    prompts, answers = (21, 16, 23, 17, 19), (4, 12, 8, 8, 12)
    at_once = [
        Speaker(name, 1, own=own, output=output)
        for name, own, output in zip(NAMES, prompts, answers, strict=False)
    ]
    workloads.append(({"token_budget": 16, "max_batch_size": 2}, at_once))
    sizes = ((1, 8, 7), (1, 31, 10), (3, 56, 12), (3, 19, 13), (4, 58, 14), (5, 13, 10))
    two_locks = [
        Speaker(name, step, own=own, output=output)
        for name, (step, own, output) in zip(NAMES, sizes, strict=False)
    ]
    tight_twice = {"token_budget": 16, "max_batch_size": 3, "max_kv_tokens": 128}
    workloads.append((tight_twice, two_locks))
    traces = [Trace("A small workload", _served(people, change)) for change, people in workloads]
    small = sorted(traces, key=lambda one: len(read(one.log).request_rows))
    return [*small, Trace("The afternoon", afternoon())]


def _served(people: list[Speaker], change: dict[str, int]) -> EventLog:
    settings = {"token_budget": 64, "max_batch_size": 8, "max_kv_tokens": 512} | change
    config = EngineConfig(**settings, block_size=8)  # type: ignore[arg-type]
    return simulate(workload_of(people), config, cost=MACHINE)


def _people(count: int, chance: random.Random) -> list[Speaker]:
    step, people = 1, []
    for name in NAMES[:count]:
        step += chance.choice((0, 1, 2))
        people.append(Speaker(name, step, own=chance.randint(8, 24), output=chance.randint(6, 16)))
    return people


def attempt(report: Report, trace: Trace) -> None:
    """Compare a report with the log and with the replay of its change."""
    events = len(trace.log)
    with watched(report):
        found = report(trace.log)
    if len(trace.log) != events:
        cases.cache_clear()  # the next attempt gets fresh logs
        raise Promise.UNCHANGED.broken(
            f"You changed the log: it had {events:,} events, and has {len(trace.log):,} now.",
            "Make a table or a list of your own.",
        )
    if not isinstance(found, Mapping) or not set(KEYS) <= set(found):
        missing = [key for key in KEYS if not isinstance(found, Mapping) or key not in found]
        raise Promise.KEYS.broken(
            f"You returned {found!r}."[:200], f"Missing: {', '.join(missing)}."
        )
    request = _request(found["request"], trace)
    _check_cause(found, request, trace)
    other = _replayed(found["change"], trace)
    _check_gain(found, request, trace, other)
    _check_cost(found["cost"], trace, other)


def _request(named: Any, trace: Trace) -> int:
    rows, longest = trace.waits, max(trace.waits.values())
    request = whole(named)
    if request not in rows:
        raise Promise.IN_THE_LOG.broken(
            f"You named {named!r}.",
            f"This log has the requests {min(rows)} to {max(rows)}; every log has others.",
        )
    if rows[request] == longest:
        return request
    row = read(trace.log).request(request)
    assert row.finished_step is not None and row.admitted_step is not None
    ran = row.finished_step - row.admitted_step
    waited = f"it waited {counted(rows[request], 'step')}" if rows[request] else "it never waited"
    raise Promise.LONGEST_WAIT.broken(
        f"You named r{request}, which ran for {counted(ran, 'step')}; {waited}.",
        f"Another request waited {longest} steps. A wait lasts from the arrival to the step of the "
        "first admission.",
    )


def _check_cause(found: Mapping[str, Any], request: int, trace: Trace) -> None:
    cause, reasons = found["cause"], trace.reasons(request)
    count = Counter(reasons.values())
    if not isinstance(cause, str) or cause not in count:
        first, last = min(reasons), max(reasons)
        raise Promise.CAUSE_IN_THE_LOG.broken(
            f"Your cause is {cause}; r{request} waited in steps {first} to {last}, where the log has "
            f"{', '.join(sorted(count))}.",
            "StepScheduled.blocked has it, step by step.",
        )
    if count[cause] < max(count.values()):
        raise Promise.MOST_STEPS.broken(
            f"Your cause is {cause}, the reason in {count[cause]} of the {len(reasons)} steps in which "
            f"r{request} waited.",
            "Another reason is more frequent. Count them all.",
        )
    steps = found["evidence"]
    if not isinstance(steps, Collection) or any(whole(step) is None for step in steps):
        raise Promise.EVIDENCE_STEPS.broken(
            f"Your evidence is {steps!r}.",
            "For example [3, 4, 5], if the log has the cause in all of them.",
        )
    for step in map(whole, steps):
        if step not in reasons:
            raise Promise.EVIDENCE_IN_WAIT.broken(
                f"Your evidence names step {step}. r{request} did not wait then.",
                f"It arrived before step {min(reasons)} and waited through step {max(reasons)}.",
            )
        if reasons[step] != cause:
            raise Promise.EVIDENCE_HAS_CAUSE.broken(
                f"Your evidence names step {step}, which has {reasons[step]}, not {cause}.",
                "Readers of your report will look there first.",
            )
    if len(set(steps)) < min(SEVERAL, count[cause]):
        raise Promise.ENOUGH_EVIDENCE.broken(
            f"Your evidence is {counted(len(set(steps)), 'step')}.", "One step may be chance."
        )


def _replayed(change: Any, trace: Trace) -> EventLog:
    if not isinstance(change, Mapping) or not change:
        raise Promise.CHANGE.broken(
            f"Your change is {change!r}.", 'For example {"token_budget": 64}.'
        )
    if "change" in change:
        raise Promise.CHANGE.broken(
            f"Your change has the keys {listed(change)}.",
            "tried() returned all of that. Only its entry for the change has settings.",
        )
    try:
        return what_if(trace.log, cost=MACHINE, **{str(key): change[key] for key in change})
    except (ValueError, TypeError, PartError) as error:
        raise Promise.REPLAYABLE.broken(
            f"Your change is {dict(change)}, and what_if() raises: {error}",
            "EngineConfig lists the settings.",
        ) from None


def _check_gain(found: Mapping[str, Any], request: int, trace: Trace, other: EventLog) -> None:
    before, after = trace.waits[request], waits(other)[request]
    gain = whole(found["gain"])
    if gain != before - after:
        raise Promise.GAIN.broken(
            f"Your gain is {found['gain']}. With {dict(found['change'])}, r{request} waits "
            f"{counted(after, 'step')} instead of {before}.",
            "The number is right, but it is no int."
            if found["gain"] == before - after
            else "Readers of your report will run it.",
        )
    if gain < 1:
        raise Promise.SHORTER.broken(
            f"With {dict(found['change'])}, r{request} waits {counted(after, 'step')}, and without it "
            f"{before}.",
            "A resource can be short without being what the request waits for, and two can be "
            "short at once. Try another change.",
        )


def _first_token_steps(log: EventLog) -> dict[int, int]:
    return {row.request: row.first_token_step or 0 for row in read(log).request_rows}


def _check_cost(stated: Any, trace: Trace, other: EventLog) -> None:
    before = _first_token_steps(trace.log)
    later = {id_: step - before[id_] for id_, step in _first_token_steps(other).items()}
    worst = max(later, key=lambda id_: later[id_])
    most = later[worst]
    if stated is None:
        if most > 0:
            raise Promise.HIGHEST_COST.broken(
                f"Your cost is None, but r{worst}'s first token comes "
                f"{counted(most, 'step')} later.",
                "Compare first_token_step in both logs, for all requests.",
            )
        return
    pair = [whole(one) for one in stated] if isinstance(stated, list | tuple) else []
    if len(pair) != 2 or pair[0] not in later:
        raise Promise.COST.broken(f"Your cost is {stated!r}.", "For example (4, 12).")
    if pair[1] != later[pair[0]]:
        raise Promise.COST_IN_REPLAY.broken(
            f"Your cost is {pair[1]} steps for r{pair[0]}'s first token. In the replay it "
            f"is {later[pair[0]]}.",
            "Which log's steps minus which?",
        )
    if most < 1 or pair[1] < most:
        raise Promise.HIGHEST_COST.broken(
            f"You named r{pair[0]}, which pays {pair[1]} steps.",
            f"r{worst} pays {most}." if most > 0 else "No first token is later.",
        )
