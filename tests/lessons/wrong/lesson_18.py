"""Lesson 18: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_18 import Promise
from tests.lessons.wrong import Wrong

MOST = "min(there, (tokens - 1) // block_size) - here"
BEST = "min(range(max(most, 0) + 1), key=total_ms)"
WRONG = [
    Wrong("below_nothing", Promise.NUMBER, {BEST: f"most if most < 0 else {BEST}"}),
    Wrong(
        "returns_both",
        Promise.NUMBER,
        {BEST: "min((total_ms(n), n) for n in range(max(most, 0) + 1))"},
    ),
    Wrong("says_whether", Promise.NUMBER, {BEST: f"0 < {BEST}"}),
    Wrong(
        "moves_what_is_here",
        Promise.MISSING,
        {f"most = {MOST}": f"here, most = 0, {MOST.removesuffix(' - here')}"},
    ),
    Wrong("fetches_every_block", Promise.LAST, {"(tokens - 1) //": "tokens //"}),
    Wrong("never_moves", Promise.LEAST, {"key=total_ms": "key=abs"}),
    Wrong("moves_all_whatever_the_link", Promise.LEAST, {BEST: "max(most, 0)"}),
    Wrong("pays_for_a_move_of_nothing", Promise.LEAST, {" if blocks else 0": ""}),
    Wrong("all_or_nothing", Promise.LEAST, {"range(max(most, 0) + 1)": "(0, max(most, 0))"}),
    Wrong(
        "as_long_as_it_gets_better",
        Promise.LEAST,
        {BEST: "next((n for n in range(most) if total_ms(n + 1) >= total_ms(n)), max(most, 0))"},
    ),
    Wrong("range_of_nothing", CommonPromise.ANSWERS, {"max(most, 0) + 1": "most + 1"}),
]
