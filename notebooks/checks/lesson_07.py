"""Lesson 07: when a prefix can be found, in the tree and in the table."""

from checks.answer import Answer

ANSWERS = {
    "tree": Answer(
        "0 tokens",
        {
            "144 tokens": "Three requests with 48 each, but when does Ada's prefix get into the tree?",
            "96 tokens": "That would be right if the budget made two of them wait for a step.",
            "48 tokens": "No request is first here: all four look, and then all four are computed.",
        },
        fits=lambda tokens: tokens == 0,
    ),
    "table": Answer(
        "144 tokens",
        {
            "0 tokens": "Nothing is computed when they look, but must it be, at that moment?",
            "48 tokens": "If one of them finds Ada's blocks, what keeps the others from finding them?",
            "96 tokens": "Ada's request finds nothing, that's right, but how many come after it?",
        },
        fits=lambda tokens: tokens == 144,
    ),
}
