"""Lesson 00: plausible wrong parts and the promises that they break."""

from checks.lesson_00 import Promise

TOLD = "first.setdefault(row.request, step)"
WAITS = "{r: step + 1 - read(log).request(r).arrived_step for r, step in first.items()}"
ADMITTED = "{row.request: row.admitted_step for row in read(log).request_rows}"

WRONG = {
    Promise.ALL_WITH_TOKENS: {
        "first_row_of_each_step": {"in event.tokens": "in event.tokens[:1]"},
    },
    Promise.FIRST_STEP: {
        "admission_of_those_who_spoke": {
            TOLD: "first[row.request] = read(log).request(row.request).admitted_step"
        },
        "keeps_the_latest": {TOLD: "first[row.request] = step"},
        "waits": {"return first": f"return {WAITS}"},
    },
    Promise.IS_DICT: {"a_list": {"return first": "return list(first.items())"}},
    Promise.ONLY_WITH_TOKENS: {
        "names_instead_of_numbers": {
            "setdefault(row.request": "setdefault(read(log).request(row.request).label"
        },
        "none_for_those_without_tokens": f"return {ADMITTED.replace('admitted', 'first_token')}",
    },
    Promise.STEP_NUMBERS: {"steps_as_words": {"request, step)": "request, str(step))"}},
}
