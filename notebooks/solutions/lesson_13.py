"""Lesson 13: a report on the request that waited longest."""

from collections import Counter
from typing import Any

from checks.afternoon import MACHINE
from engine import what_if
from engine.events import EventLog
from engine.events.vocabulary import RunStarted, StepScheduled


def report(log: EventLog) -> dict[str, Any]:
    """Return the request, the cause, the evidence, a change, its gain and its cost."""
    rows = log.requests
    wait = rows.admitted_step - rows.arrived_step
    request = int(wait.idxmax())
    span = range(rows.arrived_step[request], rows.admitted_step[request])
    steps = log.of(StepScheduled)
    blocked = {step: steps[step - 1].blocked for step in span}
    reasons = {step: one.reason for step, one in blocked.items() if one is not None}
    cause = Counter(reasons.values()).most_common(1)[0][0]

    settings = log.of(RunStarted)[0].settings
    double = {
        name: 2 * settings[name] for name in ("token_budget", "max_batch_size", "max_kv_tokens")
    }
    changes: list[dict[str, Any]] = [{name: value} for name, value in double.items()]
    changes += [{"policy": "sjf"}, double]
    best: dict[str, Any] = {"gain": 0}
    for change in changes:
        other = what_if(log, cost=MACHINE, **change).requests
        gain = int(wait[request] - (other.admitted_step - other.arrived_step)[request])
        later = other.first_token_step - rows.first_token_step
        cost = (int(later.idxmax()), int(later.max())) if later.max() > 0 else None
        if gain > best["gain"]:
            best = {"change": change, "gain": gain, "cost": cost}
    evidence = [step for step, reason in reasons.items() if reason == cause]
    return {"request": request, "cause": cause, "evidence": evidence, **best}
