"""What one request's grammar may cost, and how an error says which limit it has reached.

llguidance counts its work, so a limit is reached at the same place on every machine. A mask is computed
between two steps of the engine, and every other request waits for it: the limits of a step keep the
mask of a hostile grammar below about 10 ms (measured with 150,000 tokens), while a schema with 200
properties or an enum with 1,000 values stays far below them.
"""

import re
from typing import Any

MAX_TEXT = 1 << 16  # characters
MAX_REGEX = 1 << 12  # characters of one expression: `a?a?a?...aaa` takes quadratic time
MAX_MULTIPLE = 10_000  # digits of `multipleOf` as a number: it takes an automaton of that size
LIBRARY_LIMITS: dict[str, Any] = {  # LLParserLimits
    "initial_lexer_fuel": 100_000,  # a tenth of the library's default
    "step_lexer_fuel": 20_000,  # a tenth
    "step_max_items": 5_000,  # a tenth
    "max_items_in_row": 2_000,  # the default
    "max_lexer_states": 50_000,  # a fifth: one takes 1 to 2 kB
    "max_grammar_size": 500_000,  # the default
    "verbose_errors": False,
}
NO_TOKEN = "no token can come next"
# An error of llguidance -> the limit that it is about, and what to do.
_LIMITS = {
    r"lexer precomputation failed|initial lexer configuration|schema too large": (
        "needs more than {initial_lexer_fuel:,} operations to compile (initial_lexer_fuel): use fewer "
        "repetitions, alternatives or references"
    ),
    r"grammar size \(number of symbols\) too big": (
        "has more than {max_grammar_size:,} symbols (max_grammar_size): use fewer rules or references"
    ),
    r"too many expressions constructed|relevance": (
        "needs more than {step_lexer_fuel:,} operations for one token (step_lexer_fuel): shorten "
        "repetitions such as {{100}} or (a?){{200}}"
    ),
    r"too many states": (
        "needs more than {max_lexer_states:,} states (max_lexer_states): shorten repetitions such as "
        "{{100}}"
    ),
    r"Current row has (?P<count>\d+) items": (
        "has {count} possible continuations at one place, and the limit is {max_items_in_row:,} "
        "(max_items_in_row): use fewer optional properties or alternatives"
    ),
    r"Too many items": (
        "needs more than {step_max_items:,} parser items for one token (step_max_items): make it "
        "smaller, and let no required property refer to its own schema, because such an output never "
        "ends"
    ),
}


def is_of_lexer(error: str) -> bool:
    """Return whether an error leaves the lexer, which all copies of a matcher share, unusable."""
    return bool(re.search("too many expressions constructed|relevance|too many states", error))


def reason_of(error: str) -> str:
    """Return an error of llguidance in one line; one about a limit names it and what to do."""
    for pattern, message in _LIMITS.items():
        if found := re.search(pattern, error):
            return message.format(**LIBRARY_LIMITS | found.groupdict())
    first = error.partition("\n")[0]
    return NO_TOKEN if first == "NoExtensionBias" else first
