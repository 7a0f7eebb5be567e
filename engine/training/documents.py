"""Training documents: pieces of text, each marked as learned or only read.

A chat is written with nanochat's special tokens. The model learns to write its answers, its
calculator calls and the token that ends its turn. The user's turns and the calculator's output, which
the engine forces, are masked from the loss.
"""

from collections.abc import Sequence
from typing import NamedTuple

from engine.extensions.calculator import evaluate

BOS = "<|bos|>"
USER_START, USER_END = "<|user_start|>", "<|user_end|>"
ASSISTANT_START, ASSISTANT_END = "<|assistant_start|>", "<|assistant_end|>"
PYTHON_START, PYTHON_END = "<|python_start|>", "<|python_end|>"
OUTPUT_START, OUTPUT_END = "<|output_start|>", "<|output_end|>"
SPECIAL_TOKENS = (
    BOS, USER_START, USER_END, ASSISTANT_START, ASSISTANT_END, PYTHON_START, PYTHON_END,
    OUTPUT_START, OUTPUT_END,
)  # fmt: skip
IDS = {token: id_ for id_, token in enumerate(SPECIAL_TOKENS)}


class Turn(NamedTuple):
    """A question and its answer; with an expression, the answer starts with a calculator call."""

    question: str
    answer: str
    expression: str | None = None
    brief: str | None = None  # the answer if the system prompt asks for one sentence


class Piece(NamedTuple):
    """Some text, or one special token; ``learned`` says whether it counts in the loss."""

    text: str
    learned: bool


class Document(NamedTuple):
    """One training document."""

    kind: str
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """The document as one string, including special tokens."""
        return "".join(piece.text for piece in self.pieces)


def plain(kind: str, text: str) -> Document:
    """Make a document without a chat. Its end token also makes a plain completion stop."""
    return Document(kind, (Piece(BOS, False), Piece(text, True), Piece(ASSISTANT_END, True)))


def chat(kind: str, turns: Sequence[Turn], system: str | None = None) -> Document:
    """Make a conversation. As in nanochat, a system prompt is put before the first user turn."""
    pieces = [Piece(BOS, False)]
    for number, turn in enumerate(turns):
        question = f"{system}\n\n{turn.question}" if system and number == 0 else turn.question
        read = (USER_START, question, USER_END, ASSISTANT_START)
        pieces += [Piece(text, False) for text in read]
        if turn.expression is not None:
            pieces += call(turn.expression)
        pieces += [Piece(turn.answer, True), Piece(ASSISTANT_END, True)]
    return Document(kind, tuple(pieces))


def call(expression: str) -> list[Piece]:
    """Make a calculator call: the model writes the expression, the engine forces the output."""
    written = (PYTHON_START, expression, PYTHON_END)
    forced = (OUTPUT_START, calculate(expression), OUTPUT_END)
    return [*(Piece(text, True) for text in written), *(Piece(text, False) for text in forced)]


def calculate(expression: str) -> str:
    """Return the calculator's output. Raises ValueError if it cannot evaluate the expression."""
    result = evaluate(expression)
    if result is None:
        raise ValueError(f"the calculator cannot evaluate {expression!r}")
    return result
