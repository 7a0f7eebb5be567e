"""The calculator behind ``<|python_start|>expression<|python_end|>``.

The model writes the expression, so the text is untrusted. Nothing here calls ``eval``: a pattern
checks the characters, ``ast`` parses the text, and a function evaluates the few kinds of node that
it allows. Limits on length, depth and size of the result limit the time as well, so the calculator
needs no timer and can run on any thread.

nanochat's engine has the same tool and evaluates with ``eval`` under a signal alarm
(``nanochat/engine.py``), which accepts more expressions than intended.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

MAX_LENGTH = 200
MAX_DEPTH = 20
# Below 2**53, a float can still tell neighbouring whole numbers apart.
MAX_MAGNITUDE = 10**15

Number = int | float

_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}

_STRING = r"\"[^\"]*\"|'[^']*'"
_STRING_OR_GROUPED_NUMBER = re.compile(rf"{_STRING}|(?<![\d.,])\d{{1,3}}(?:,\d{{3}})+(?![\d,])")
# The tokens of an expression. Names, brackets, `e`, `_`, `x` and `j` (1e9, 1_000, 0x10, 1j) are not
# allowed, nor is a backslash or a line break in a string.
_ALLOWED = re.compile(rf"(?:{_STRING}|\.count\(|[-+*/(). 0-9])*")


class _InvalidError(Exception):
    """The expression is not in the language."""


def evaluate(expression: str) -> str | None:
    """Return the value of ``expression`` as Python's ``str`` prints it, or None.

    The language: numbers with an optional decimal part and commas between thousands, ``+ - * /``,
    parentheses, unary minus, and ``"text".count("part")`` with any quotes. Returns None for
    everything else: other syntax, division by zero, results of 10**15 or more, text longer
    than 200 characters or nested deeper than 20. Never raises for a string.

    >>> evaluate("17+25"), evaluate("10/4"), evaluate('"hello".count("l")'), evaluate("2**9")
    ('42', '2.5', '2', None)
    """
    if len(expression) > MAX_LENGTH or "\\" in expression or not expression.isprintable():
        return None
    text = _STRING_OR_GROUPED_NUMBER.sub(_drop_commas, expression).strip()
    if not _ALLOWED.fullmatch(text):
        return None
    try:
        value = _walk(ast.parse(text, mode="eval").body, text, depth=0)
    except (SyntaxError, ValueError, MemoryError, RecursionError, ZeroDivisionError, _InvalidError):
        return None
    return str(value)


def _drop_commas(match: re.Match[str]) -> str:
    found = match[0]
    return found if found[0] in "\"'" else found.replace(",", "")


def _walk(node: ast.expr, text: str, depth: int) -> Number:
    """Return the value of ``node``. Raises ``_InvalidError`` for a node that is not allowed."""
    if depth > MAX_DEPTH:
        raise _InvalidError
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _bounded(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_walk(operand, text, depth + 1)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            apply = _OPERATORS[type(op)]
            return _bounded(apply(_walk(left, text, depth + 1), _walk(right, text, depth + 1)))
        case ast.Call(func=ast.Attribute(value=whole, attr="count"), args=[part], keywords=[]):
            return _string(whole, text).count(_string(part, text))
    raise _InvalidError


def _bounded(value: Number) -> Number:
    if not abs(value) < MAX_MAGNITUDE:
        raise _InvalidError
    return value


def _string(node: ast.expr, text: str) -> str:
    """Return the text of one string literal; adjacent and triple-quoted literals are invalid."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        source = ast.get_source_segment(text, node) or ""
        if len(source) == len(node.value) + 2:
            return node.value
    raise _InvalidError
