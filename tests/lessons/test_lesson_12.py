"""Lesson 12's exercise: true reports are accepted."""

from collections import Counter

import pytest

from checks import check
from checks.afternoon import MACHINE, afternoon
from checks.judging import Verdict, judge
from checks.lesson_12 import Promise, Trace, attempt, cases, waits
from engine import what_if
from engine.core.log.vocabulary import StepScheduled
from solutions.lesson_12 import report as solution
from tests.facts import assert_names
from visualizer import read

AFTERNOON = Trace("The afternoon", afternoon())

OWN = None


def size(one):
    return len(read(one.log).request_rows)


def verdict(report, traces=None) -> Verdict:
    return judge(report, traces or cases(), attempt)


def report_with_the_reason_of(step_of):
    """A true report, but for its cause: the reason of one step of the wait."""

    def report(log):
        found = solution(log)
        reasons = Trace("", log).reasons(found["request"])
        cause = reasons[step_of(reasons)]
        evidence = [step for step, reason in reasons.items() if reason == cause]
        return found | {"cause": cause, "evidence": evidence}

    return report


@pytest.mark.parametrize("step_of", [min, max], ids=["first", "last"])
def test_the_reason_of_the_first_or_last_waiting_step_is_not_the_cause(step_of) -> None:
    found = verdict(report_with_the_reason_of(step_of)).broken
    assert found is not None and found.promise is Promise.MOST_STEPS
    assert_names(found.did, "token_budget", 2, 15)


def test_a_report_that_changes_the_log_is_rejected_and_the_next_gets_a_fresh_log() -> None:
    def notes_something(log):
        log.append(log[0])
        return solution(log)

    found = verdict(notes_something).broken
    assert found is not None and found.promise is Promise.UNCHANGED
    assert verdict(solution, cases()[:2]).passed


def by_hand(log):
    """One pass over the events, and everything twice as large, whatever the cause is."""
    arrived, admitted, reasons = {}, {}, []
    rows = read(log).requests
    for request in rows.index:
        arrived[request], admitted[request] = (
            rows.arrived_step[request],
            rows.admitted_step[request],
        )
    request = max(arrived, key=lambda id_: admitted[id_] - arrived[id_])
    for step, event in enumerate(log.of(StepScheduled), 1):
        if arrived[request] <= step < admitted[request] and event.blocked:
            reasons.append((event.blocked.reason, step))
    cause = max(Counter(reason for reason, _ in reasons).items(), key=lambda pair: pair[1])[0]
    names = ("token_budget", "max_batch_size", "max_kv_tokens")
    change = {name: 3 * log[0].settings[name] for name in names}
    other = read(what_if(log, cost=MACHINE, **change)).requests
    later = {id_: other.first_token_step[id_] - rows.first_token_step[id_] for id_ in rows.index}
    worst = max(later, key=later.get)
    return {
        "request": request,
        "cause": cause,
        "evidence": {step for reason, step in reasons if reason == cause},
        "change": change,
        "gain": admitted[request]
        - arrived[request]
        - (other.admitted_step[request] - other.arrived_step[request]),
        "cost": [worst, later[worst]] if later[worst] > 0 else None,
    }


def the_last_of_those_who_tie(log):
    """On ties any request that waited longest will do."""
    found = solution(log)
    mine = [id_ for id_, wait in waits(log).items() if wait == max(waits(log).values())][-1]
    if mine == found["request"]:
        return found
    other = waits(what_if(log, cost=MACHINE, **found["change"]))
    trace = Trace("", log)
    steps = [step for step, why in trace.reasons(mine).items() if why == found["cause"]]
    return found | {"request": mine, "evidence": steps, "gain": waits(log)[mine] - other[mine]}


def one_limit_only(log):
    """Double the limit of the cause, even if another one is short as well."""
    found = solution(log)
    limits = {"batch_full": "max_batch_size", "token_budget": "token_budget"}
    name = limits.get(found["cause"], "max_kv_tokens")
    change = {name: 2 * log[0].settings[name]}
    other = what_if(log, cost=MACHINE, **change)
    later = (read(other).requests.first_token_step - read(log).requests.first_token_step).to_dict()
    cost = max(later.items(), key=lambda pair: pair[1])
    gain = waits(log)[found["request"]] - waits(other)[found["request"]]
    return found | {"change": change, "gain": gain, "cost": cost if cost[1] > 0 else None}


def the_last_first_token(log):
    """Take the wait for the first token for the wait for a seat."""
    rows = read(log).requests
    return solution(log) | {"request": (rows.first_token_step - rows.arrived_step).idxmax()}


@pytest.mark.parametrize(
    ("wrong", "promise"),
    [(one_limit_only, Promise.SHORTER), (the_last_first_token, Promise.LONGEST_WAIT)],
)
def test_one_small_workload_is_short_of_two_things_and_slow_to_compute(wrong, promise) -> None:
    found = verdict(
        wrong, [trace for trace in cases() if len(read(trace.log).requests) == 6]
    ).broken
    assert found is not None and found.promise is promise


@pytest.mark.parametrize("right", [solution, by_hand, the_last_of_those_who_tie])
def test_every_true_report_is_accepted_and_its_change_runs(right) -> None:
    report = check.lesson_12(right)
    assert report is right
    found = report(AFTERNOON.log)
    assert found["request"] in (17, 18)
    other = what_if(AFTERNOON.log, cost=MACHINE, **found["change"])
    assert waits(other)[found["request"]] == 47 - found["gain"]


def test_the_cases_are_short_of_different_things() -> None:
    traces = cases()
    causes = [solution(trace.log)["cause"] for trace in traces]
    assert set(causes) == {"batch_full", "token_budget", "whole_sequence"}


def test_the_report_that_the_lesson_puts_together_by_hand_is_true() -> None:
    """It is what runs below while a learner's own is not written yet."""
    made = {"request": 17, "cause": "batch_full", "evidence": [*range(29, 43)], "gain": 39}
    attempt(lambda log: made | {"change": {"policy": "sjf"}, "cost": (10, 77)}, AFTERNOON)
