"""Lesson 13: plausible wrong parts, the promises that they break, and facts of the messages."""

from checks.afternoon import MACHINE
from checks.lesson_13 import Promise, cases, waits
from engine import what_if
from solutions.lesson_13 import report as solution


def with_(**changes):
    """Return the solution with other entries: functions of log and report."""

    def report(log):
        found = solution(log)
        return found | {key: make(log, found) for key, make in changes.items()}

    report.__name__ = "with_" + "_".join(changes)
    return report


def longest_run(log, found):
    rows = log.requests
    return (rows.finished_step - rows.admitted_step).idxmax()


def no_cost(log, found):
    return None


def shortest_first(log, found):
    return {"policy": "sjf"}


def its_gain(log, found):
    return (
        waits(log)[found["request"]]
        - waits(what_if(log, cost=MACHINE, policy="sjf"))[found["request"]]
    )


def all_of_the_trial(log, found):
    return {key: found[key] for key in ("change", "gain", "cost")}


def returns_an_id(log):
    return int((log.requests.admitted_step - log.requests.arrived_step).idxmax())


CASES = cases()[-1:]  # the afternoon
WRONG = [
    (with_(request=longest_run), Promise.LONGEST_WAIT, ["r11", 64, 9]),
    (
        with_(cause=lambda log, found: "no_place"),
        Promise.CAUSE_IN_THE_LOG,
        ["no_place", 29, 75, "r17", "after_preemption"],
    ),
    (
        with_(cause=lambda log, found: "whole_sequence"),
        Promise.MOST_STEPS,
        ["whole_sequence", 7, 47],
    ),
    (
        with_(evidence=lambda log, found: [40, 45, 41]),
        Promise.EVIDENCE_HAS_CAUSE,
        [45, "whole_sequence", "batch_full"],
    ),
    (with_(evidence=lambda log, found: [76]), Promise.EVIDENCE_IN_WAIT, [76, "r17"]),
    (with_(evidence=lambda log, found: [40]), Promise.ENOUGH_EVIDENCE, []),
    (
        with_(change=lambda log, found: {"max_kv_tokens": 960}, gain=lambda log, found: 0),
        Promise.SHORTER,
        ["r17", 47],
    ),
    (with_(gain=lambda log, found: 30), Promise.GAIN, [30, "r17", 32, 47]),
    (with_(change=shortest_first, gain=its_gain, cost=no_cost), Promise.HIGHEST_COST, []),
    (
        with_(change=shortest_first, gain=its_gain, cost=lambda log, found: (20, 1)),
        Promise.COST_IN_REPLAY,
        [],
    ),
    (with_(change=lambda log, found: {"memory": 9}), Promise.REPLAYABLE, []),
    (returns_an_id, Promise.KEYS, []),
    (with_(change=all_of_the_trial), Promise.CHANGE, ["change", "gain", "cost"]),
]
