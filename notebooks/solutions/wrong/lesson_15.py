"""Lesson 15: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_15 import Promise

START = "after: int | None = state if token else None"
FITS = "after is not None)"
END = "    allowed[eos] = state in accepting\n"

WRONG = {
    Promise.LIST: {
        "returns_the_states": {FITS: "after)"},
    },
    Promise.ALL: {
        "looks_at_the_first_character": {"in token:": "in token[:1]:"},
        "starts_at_the_beginning": {"= state if": "= 0 if"},
    },
    Promise.WALKED: {
        "looks_at_the_last_character": {"in token:": "in token[-1:]:"},
        "wants_the_token_to_finish_the_text": {FITS: "after in accepting)"},
        "takes_state_0_for_no_state": {FITS: "bool(after))"},
    },
    Promise.EACH: {
        "goes_on_where_the_last_token_ended": {
            "    for token in": "    after = state\n    for token in",
            START: "after = after if token else None",
        }
    },
    Promise.EMPTY: {"allows_empty_tokens": {"= state if token else None": "= state"}},
    Promise.END: {
        "never_allows_the_end": {"state in accepting": "False"},
    },
    Promise.NOT_THE_END: {"allows_the_end_always": {"state in accepting": "True"}},
    Promise.NO_TOKEN: {
        "returns_all_false_in_a_dead_state": {"if not any(allowed)": "if not allowed"}
    },
    CommonPromise.UNCHANGED: {
        "adds_moves": {"    return": '    moves[state, "?"] = state\n    return'}
    },
}
