"""Lesson 21: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_21 import Promise

UNITS = "(columns if by_columns else rows) // unit"
OWN = "range(units * part // parts * unit, units * (part + 1) // parts * unit)"
RETURN = "return (range(rows), own) if by_columns else (own, range(columns))"
SECOND = 'name in ("o", "down")'
EACH = "units // parts * unit"

WRONG = {
    Promise.RANGES: {
        "returns_one_range": {RETURN: "return own"},
        "past_the_end": {OWN: f"range(({EACH} + unit) * part, ({EACH} + unit) * (part + 1))"},
    },
    Promise.ONCE: {
        "a_copy_on_each_device": {RETURN: "return range(rows), range(columns)"},
        "forgets_the_rest": {OWN: f"range({EACH} * part, {EACH} * (part + 1))"},
        "both_dimensions": {RETURN: "return range(rows * part // parts, rows), own"},
    },
    Promise.SUM: {
        "all_by_rows": {SECOND: "False"},
        "all_by_columns": {SECOND: "True"},
        "the_wrong_way_round": {SECOND: f"not {SECOND}"},
        "forgets_o": {SECOND: 'name == "down"'},
        "tears_heads": {
            OWN: "range(units * unit * part // parts, units * unit * (part + 1) // parts)"
        },
        "mirrors_the_second": {
            UNITS: f"{UNITS}\n    part = parts - 1 - part if by_columns else part"
        },
    },
    Promise.EVEN: {
        "all_on_the_first": {OWN: "range(0, units * unit) if part == 0 else range(0)"},
        "the_rest_on_the_last": {
            OWN: f"range({EACH} * part, {EACH} * (part + 1) if part < parts - 1 else units * unit)"
        },
    },
    CommonPromise.ANSWERS: {"divides_by_the_part": {OWN: "range(units // part, units)"}},
}
