"""Lesson 02: attention with a KV cache, for tokens that come in chunks.

The cases are in `attending.py`, which needs numpy and torch; questions and hints need neither.
"""

from collections.abc import Callable
from typing import Any

from checks.answer import Answer
from checks.broken import Promises

ANSWERS = {
    "watch": Answer(
        "less than 10 times",
        {
            "about 43 times": "That's how much work is saved, but is time made of work alone?",
            "about 20 times": "You halved it, to be careful. But something else takes most of "
            "the time, and the cache saves none of that.",
        },
        then="Look for what each pass costs, however few tokens are in it.",
        source="The stopwatch",
        fits=lambda times: times < 15,  # a busy machine slows the longer run more
    )
}
HINTS = (
    "Write first and attend then, because a new token sees itself, so its key must be in the cache "
    "before you compare. Read no slot behind the last new token.",
    "Row i of q is at position start + i, so it sees start + i + 1 slots. Compare a column "
    "of row numbers with a row of slot numbers to get the whole mask at once.",
)


class Promise(Promises):
    """The promises that the check tests."""

    ARRAY = "the answer is an array with one row per new token, each as long as a value"
    UNCHANGED = "the arguments stay as they were, except for the caches"
    KEPT = "every new token's key and value are kept"
    WRITTEN_ONCE = "each position is written once, by its own token"
    CAUSAL = "a token sees itself and the tokens before it, and nothing else"
    WEIGHTS = "a token reads an average: its weights add up to 1"
    AS_A_WHOLE = "the result is the same as for the whole text at once"


def adapt(attend: Callable[..., Any] | None) -> Any:
    """Return an attention for the engine's runner: the learner's, or ours."""
    from checks.attending import YourAttention
    from engine.core.compute.paged_attention import PagedAttention

    if attend is None:
        return PagedAttention
    return type("YourAttention", (YourAttention,), {"attend": staticmethod(attend)})


def cases() -> list[Any]:
    """Return the texts of `attending.cases`."""
    from checks import attending

    return attending.cases()


def attempt(attend: Callable[..., Any], text: Any) -> None:
    """Try the part on one text, as `attending.attempt` does."""
    from checks import attending

    attending.attempt(attend, text)
