"""Lesson 00: plausible wrong parts and the promises that they break."""

from checks.lesson_00 import Promise
from tests.lessons.wrong import Wrong

TOLD = "first.setdefault(row.request, step)"
WAITS = "{r: step + 1 - read(log).request(r).arrived_step for r, step in first.items()}"
WRONG = [
    Wrong(
        "return_inside_the_loop",
        Promise.ALL_WITH_TOKENS,
        {"\n    return first": "\n            return first"},
    ),
    Wrong(
        "first_row_of_each_step",
        Promise.ALL_WITH_TOKENS,
        {"in event.tokens": "in event.tokens[:1]"},
    ),
    Wrong(
        "admission_of_those_who_spoke",
        Promise.FIRST_STEP,
        {TOLD: "first[row.request] = read(log).request(row.request).admitted_step"},
    ),
    Wrong("keeps_the_latest", Promise.FIRST_STEP, {TOLD: "first[row.request] = step"}),
    Wrong(
        "one_step_after_admission",
        Promise.FIRST_STEP,
        "admitted = {row.request: row.admitted_step for row in read(log).request_rows}\n"
        "return {r: min(admitted[r] + 1, step) for r, step in solution(log).items()}",
    ),
    Wrong(
        "counts_steps_from_zero", Promise.FIRST_STEP, {"step = event.step": "step = event.step - 1"}
    ),
    Wrong("waits", Promise.FIRST_STEP, {"return first": f"return {WAITS}"}),
    Wrong("a_list", Promise.IS_DICT, {"return first": "return list(first.items())"}),
    Wrong(
        "names_instead_of_numbers",
        Promise.ONLY_WITH_TOKENS,
        {"setdefault(row.request": "setdefault(read(log).request(row.request).label"},
    ),
    Wrong(
        "none_for_those_without_tokens",
        Promise.ONLY_WITH_TOKENS,
        "return {row.request: row.first_token_step for row in read(log).request_rows}",
    ),
    Wrong("steps_as_words", Promise.STEP_NUMBERS, {"request, step)": "request, str(step))"}),
]
