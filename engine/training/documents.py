"""Training documents: pieces of text, each marked as learned or only read.

A chat is written with nanochat's special tokens. The model learns to write its answers, its
calculator calls and the token that ends its turn. The user's turns and the calculator's output, which
the engine forces, are masked from the loss.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

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
    parts: tuple["Piece", ...] = ()  # an answer of which a grammar forces some parts


class Piece(NamedTuple):
    """Some text, or one special token; ``learned`` says whether it counts in the loss."""

    text: str
    learned: bool


class Tools(NamedTuple):
    """The functions that a client offers, as OpenAI's API sends them."""

    schemas: list[dict[str, Any]]


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


def raw(kind: str, question: str, turn: Turn, between: str) -> Document:
    """Make a question and its answer without a chat, as a plain completion gets them."""
    pieces = (Piece(BOS, False), Piece(question, False), Piece(between, True), *_answer(turn))
    return Document(kind, pieces)


def chat(
    kind: str, turns: Sequence[Turn], system: str | None = None, tools: Tools | None = None
) -> Document:
    """Make a conversation. As in nanochat, a system prompt is put before the first user turn.

    The tools follow the system prompt.
    """
    pieces = [Piece(BOS, False)]
    ahead = (f"{system}\n\n" if system else "") + (show_tools(tools) if tools else "")
    for turn in turns:
        read = (USER_START, ahead + turn.question, USER_END, ASSISTANT_START)
        pieces += [Piece(text, False) for text in read]
        pieces += _answer(turn)
        ahead = ""
    return Document(kind, tuple(pieces))


def _answer(turn: Turn) -> list[Piece]:
    called = call(turn.expression) if turn.expression is not None else []
    return [*called, *(turn.parts or [Piece(turn.answer, True)]), Piece(ASSISTANT_END, True)]


def show_tools(tools: Tools) -> str:
    """Return the text that shows the tools to the model, as the chat template does.

    A line each: ``get_weather(city: string, unit?: celsius|fahrenheit): Look the weather up.``
    """
    lines = []
    for tool in tools.schemas:
        function = tool["function"]
        required = function["parameters"]["required"]
        shown = ", ".join(
            f"{name}{'' if name in required else '?'}: {'|'.join(about.get('enum', [about['type']]))}"
            for name, about in function["parameters"]["properties"].items()
        )
        does = f": {function['description']}" if "description" in function else ""
        lines.append(f"{function['name']}({shown}){does}\n")
    return f"Tools:\n{''.join(lines)}\n"


def function_call(name: str, arguments: dict[str, Any]) -> str:
    """Return a call in the format of Hermes, as the model writes it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def function_result(text: str) -> str:
    """Return the result of a call, as the chat template shows it."""
    return f"<tool_response>{text}</tool_response>"


def joined(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Group neighbouring pieces of text; a special token is a group of its own."""
    groups: list[list[Piece]] = []
    for piece in pieces:
        if piece.text in IDS or not groups or groups[-1][-1].text in IDS:
            groups.append([])
        groups[-1].append(piece)
    return groups


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
