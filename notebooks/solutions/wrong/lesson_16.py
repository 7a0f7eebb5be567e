"""Lesson 16: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_16 import Promise

LOOP = "range(1, len(fetch_us) + 1)"
TOTAL = "sum(fetch_us[:count]) + sum(compute_us[count:])"

WRONG = {
    Promise.NUMBER: {
        "returns_the_time": {"return best": "return least"},
        "returns_none_without_blocks": {"return best": "return best if fetch_us else None"},
    },
    Promise.LEAST: {
        "stops_at_the_first_dear_block": {
            "total <= least:": "fetch_us[count - 1] > compute_us[count - 1]:\n            break\n"
            "        if total <= least:"
        },
        "fetches_all_or_nothing": {LOOP: "{0, len(fetch_us)}"},
        "fetches_the_last_ones": {
            TOTAL: "sum(compute_us[:-count]) + sum(fetch_us[-count:])",
        },
        "forgets_what_is_computed": {TOTAL: "sum(fetch_us[:count])"},
        "computes_what_it_fetched": {"compute_us[count:]": "compute_us[:count]"},
        "never_fetches_all": {LOOP: "range(1, len(fetch_us))"},
        "forgets_what_none_costs": {
            "best, least = 0, sum(compute_us)": 'best, least = 0, float("inf")'
        },
    },
    Promise.EQUAL: {"takes_the_smaller_of_equals": {"total <= least": "total < least"}},
    CommonPromise.UNCHANGED: {
        "sorts_the_prices": {"    best, least = 0": "    fetch_us.sort()\n    best, least = 0"}
    },
}
