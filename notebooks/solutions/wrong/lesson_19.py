"""Lesson 19: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_19 import Promise

MOST = "min(there, (tokens - 1) // block_size) - here"
BEST = "min(range(max(most, 0) + 1), key=total_ms)"

WRONG = {
    Promise.NUMBER: {
        "below_nothing": {BEST: f"most if most < 0 else {BEST}"},
        "returns_both": {BEST: "min((total_ms(n), n) for n in range(max(most, 0) + 1))"},
    },
    Promise.MISSING: {
        "moves_what_is_here": {f"most = {MOST}": f"here, most = 0, {MOST.removesuffix(' - here')}"}
    },
    Promise.LAST: {"fetches_every_block": {"(tokens - 1) //": "tokens //"}},
    Promise.LEAST: {
        "pays_for_a_move_of_nothing": {" if blocks else 0": ""},
        "all_or_nothing": {"range(max(most, 0) + 1)": "(0, max(most, 0))"},
        "as_long_as_it_gets_better": {
            BEST: "next((n for n in range(most) if total_ms(n + 1) >= total_ms(n)), max(most, 0))"
        },
    },
    CommonPromise.ANSWERS: {"range_of_nothing": {"max(most, 0) + 1": "most + 1"}},
}
