"""Lesson 12: a report on the request that waited longest. The four helpers are the lesson's."""

from collections import Counter
from typing import Any

from checks.afternoon import MACHINE
from engine import what_if
from engine.core.log import EventLog
from engine.core.log.vocabulary import Blocked, RunStarted, StepScheduled
from visualizer import read

LIMITS = {"batch_full": "max_batch_size", "token_budget": "token_budget"}


def report(log: EventLog) -> dict[str, Any]:
    """Count the causes of the longest wait, and lift their limits until the wait gets shorter."""
    admitted = [one.request for one in read(log).request_rows if one.admitted_step is not None]
    request = max(admitted, key=lambda id_: waited(log, id_))
    blocked = blocked_while_waiting(log, request)
    causes = [cause for cause, _ in Counter(one.reason for one in blocked.values()).most_common()]
    change: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for cause in causes:
        change = change | doubled(log, cause)
        found = tried(log, request, change)
        if found["gain"] > 0:
            break
    evidence = [step for step, one in blocked.items() if one.reason == causes[0]]
    return {"request": request, "cause": causes[0], "evidence": evidence, **found}


def waited(log: EventLog, request: int) -> int:
    """Return the steps from the arrival to the first admission."""
    one = read(log).request(request)
    assert one.arrived_step is not None and one.admitted_step is not None
    return one.admitted_step - one.arrived_step


def blocked_while_waiting(log: EventLog, request: int) -> dict[int, Blocked]:
    """Return step -> what blocked the queue, for each step in which the request waited."""
    one, steps = read(log).request(request), log.of(StepScheduled)
    assert one.arrived_step is not None and one.admitted_step is not None
    blocked = {step: steps[step - 1].blocked for step in range(one.arrived_step, one.admitted_step)}
    return {step: why for step, why in blocked.items() if why is not None}


def doubled(log: EventLog, cause: str) -> dict[str, int]:
    """Return twice the limit that a cause names, as settings for `what_if`."""
    limit = LIMITS.get(cause, "max_kv_tokens")
    return {limit: 2 * log.of(RunStarted)[0].settings[limit]}


def tried(log: EventLog, request: int, change: dict[str, Any]) -> dict[str, Any]:
    """Return change, gain and cost of a replay."""
    run = what_if(log, cost=MACHINE, **change)
    gain = waited(log, request) - waited(run, request)
    before = {row.request: row.first_token_step or 0 for row in read(log).request_rows}
    after = {row.request: row.first_token_step or 0 for row in read(run).request_rows}
    later = {one: after[one] - before[one] for one in before}
    payer = max(later, key=lambda one: later[one])
    steps = later[payer]
    return {"change": change, "gain": gain, "cost": (payer, steps) if steps > 0 else None}
