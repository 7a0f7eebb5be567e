"""Lesson 15: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_15 import Promise
from tests.lessons.wrong import Wrong

START = "after: int | None = state if token else None"
FITS = "after is not None)"
END = "    allowed[eos] = state in accepting\n"
WRONG = [
    Wrong(
        "returns_the_tokens",
        Promise.LIST,
        {"return allowed": "return [one for one, fits in zip(vocab, allowed) if fits]"},
    ),
    Wrong("returns_the_states", Promise.LIST, {FITS: "after)"}),
    Wrong("looks_at_the_first_character", Promise.ALL, {"in token:": "in token[:1]:"}),
    Wrong("starts_at_the_beginning", Promise.ALL, {"= state if": "= 0 if"}),
    Wrong("looks_at_the_last_character", Promise.WALKED, {"in token:": "in token[-1:]:"}),
    Wrong("wants_the_token_to_finish_the_text", Promise.WALKED, {FITS: "after in accepting)"}),
    Wrong("takes_state_0_for_no_state", Promise.WALKED, {FITS: "bool(after))"}),
    Wrong(
        "goes_on_where_the_last_token_ended",
        Promise.EACH,
        {
            "    for token in": "    after = state\n    for token in",
            START: "after = after if token else None",
        },
    ),
    Wrong("allows_empty_tokens", Promise.EMPTY, {"= state if token else None": "= state"}),
    Wrong("never_allows_the_end", Promise.END, {"state in accepting": "False"}),
    Wrong(
        "raises_where_the_text_may_only_end",
        Promise.END,
        {END: "", "    return allowed": f"{END}    return allowed"},
    ),
    Wrong("allows_the_end_always", Promise.NOT_THE_END, {"state in accepting": "True"}),
    Wrong(
        "returns_all_false_in_a_dead_state",
        Promise.NO_TOKEN,
        {"if not any(allowed)": "if not allowed"},
    ),
    Wrong(
        "adds_moves",
        CommonPromise.UNCHANGED,
        {"    return": '    moves[state, "?"] = state\n    return'},
    ),
]
