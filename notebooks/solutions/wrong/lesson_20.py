"""Lesson 20: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_20 import Promise

P99 = "waits[ceil(0.99 * len(waits)) - 1]"
WAIT = "inf if first is None else first - due for due, _, first"

WRONG = {
    Promise.MEETS: {
        "averages": {P99: "sum(waits) / len(waits)"},
        "returns_the_rate_that_is_too_high": {"return low": "return high"},
        "never_goes_below_its_first_rate": {"while not meets(low)": "while False"},
    },
    Promise.HIGHEST: {
        "only_doubles": {"while high > 1.05 * low": "while high > 2 * low"},
    },
    Promise.FEW: {"never_close_enough": {"while high > 1.05 * low": "while high > low"}},
    Promise.SCHEDULED: {
        "counts_from_the_sending": {
            WAIT: "inf if first is None else first - sent for _, sent, first"
        }
    },
    Promise.NO_TOKEN: {
        "leaves_failures_out": {"inf if first is None else ": "", "in rows)": "in rows if first)"}
    },
    Promise.SOME: {"allows_no_stray": {P99: "waits[-1]"}},
    Promise.NUMBER: {"returns_both": {"return low": "return low, high"}},
    CommonPromise.ANSWERS: {"forgets_that_some_fail": {"inf if first is None else ": ""}},
}
