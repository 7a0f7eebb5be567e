"""Regular expressions as trees of bytes.

`regex_mask` computes with them. The leaves are bytes, because a token is a string of bytes, and may
end within a character. Python's own parser reads the expression, and its tree is translated. The part
of the syntax that is supported means the same in Rust's regex crate, which llguidance uses.
"""

import importlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any

MAX_LENGTH = 1000  # characters
MAX_NESTING = 50  # groups; each takes a few Python frames
_python: Any = importlib.import_module("re._parser")  # the parser has no public name


class RegexError(ValueError):
    """The expression has a mistake, an unsupported part or too many states. The message says which."""


@dataclass(frozen=True, slots=True)
class Byte:
    """Matches one byte, any of `values`."""

    values: frozenset[int]


@dataclass(frozen=True, slots=True)
class Seq:
    """Matches all `parts`, one after the other; without parts, the empty text."""

    parts: tuple["Regex", ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Matches what any of `options` matches; without options, nothing."""

    options: frozenset["Regex"]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Matches `body` `least` to `most` times; `most` may be infinite."""

    body: "Regex"
    least: int
    most: float


Regex = Byte | Seq | Either | Repeat
EMPTY = Seq(())
NOTHING = Either(frozenset())


def either(options: Collection[Regex]) -> Regex:
    """Return an alternative, flat and without duplicates, so that equal choices compare equal."""
    flat = frozenset[Regex]().union(*map(options_of, options))
    return next(iter(flat)) if len(flat) == 1 else Either(flat)


def options_of(regex: Regex) -> Collection[Regex]:
    """Return the options of an alternative; any other expression is its own only option."""
    return regex.options if isinstance(regex, Either) else (regex,)


def seq(*parts: Regex) -> Regex:
    """Return a sequence, flat."""
    flat = [one for part in parts for one in (part.parts if isinstance(part, Seq) else (part,))]
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


_DIGITS = frozenset(b"0123456789")
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_CATEGORIES = {
    "CATEGORY_DIGIT": _DIGITS,
    "CATEGORY_WORD": _DIGITS | _LETTERS | {ord("_")},
    "CATEGORY_SPACE": frozenset(b" \t\n\v\f\r"),
}
_ASCII = frozenset(range(128))
# A character outside ASCII: the ranges of its bytes (RFC 3629, section 4).
_NON_ASCII = (
    "c2-df 80-bf",
    "e0-e0 a0-bf 80-bf",
    "e1-ec 80-bf 80-bf",
    "ed-ed 80-9f 80-bf",
    "ee-ef 80-bf 80-bf",
    "f0-f0 90-bf 80-bf 80-bf",
    "f1-f3 80-bf 80-bf 80-bf",
    "f4-f4 80-8f 80-bf 80-bf",
)


def parse(pattern: str) -> Regex:
    r"""Read an expression.

    It may contain characters, `.` (no line break), classes such as `[a-z_]` and `[^"]`, `\d \w \s`
    (ASCII only), `( )`, `|`, and the counts `* + ? {m} {m,} {m,n}`. Raises RegexError for other
    syntax, for more than 1,000 characters, and for groups more than 50 deep.
    """
    if len(pattern) > MAX_LENGTH:
        raise RegexError(
            f"the expression is too large: {len(pattern):,} characters of {MAX_LENGTH:,}"
        )
    try:
        tree = _python.parse(pattern, re.ASCII)
    except (re.error, OverflowError) as error:
        raise RegexError(f"the expression is not valid: {error}") from error
    except RecursionError:
        raise RegexError(_TOO_DEEP) from None
    if tree.state.flags != re.ASCII:
        raise RegexError("flags such as (?i) are not supported")
    return _sequence(tree, depth=0)


_TOO_DEEP = f"groups and counts may be nested at most {MAX_NESTING} deep"


def _sequence(tree: Any, depth: int) -> Regex:
    if depth > MAX_NESTING:
        raise RegexError(_TOO_DEEP)
    return seq(*(_node(str(name), argument, depth) for name, argument in tree))


def _node(name: str, argument: Any, depth: int) -> Regex:
    """Translate one node of Python's tree, such as ("MAX_REPEAT", (0, 1, body))."""
    match name, argument:
        case "LITERAL" | "NOT_LITERAL", code:
            return _class([("NEGATE", None)] * (name == "NOT_LITERAL") + [("LITERAL", code)])
        case "ANY", _:
            return _except(frozenset(b"\n"))
        case "IN", members:
            return _class(members)
        case "BRANCH", (_, options):
            return either([_sequence(option, depth) for option in options])
        case "SUBPATTERN", (_, 0, 0, body):
            return _sequence(body, depth + 1)
        case "MAX_REPEAT", (least, most, body):
            most = inf if most == _python.MAXREPEAT else most
            return Repeat(_sequence(body, depth + 1), least, most) if most else EMPTY
    raise RegexError(f"{name} {argument} is not supported: see `parse` for what is")


def _class(members: Iterable[tuple[Any, Any]]) -> Regex:
    values, others, negated = set[int](), list[Regex](), False
    for name, argument in members:
        match str(name), argument:
            case "NEGATE", _:
                negated = True
            case "CATEGORY", category if str(category) in _CATEGORIES:
                values |= _CATEGORIES[str(category)]
            case "RANGE", (low, high) if high < 128:
                values.update(range(low, high + 1))
            case "LITERAL", code if code < 128:
                values.add(code)
            case "LITERAL", code if not negated:
                others.append(seq(*(Byte(frozenset({byte})) for byte in chr(code).encode())))
            case _:
                raise RegexError(
                    r"a class may have ASCII characters, \d, \w and \s, got "
                    f"{name} {argument}; use ( | ) for others"
                )
    if negated:
        return _except(frozenset(values))
    return either([*([Byte(frozenset(values))] if values else []), *others])


def _except(values: frozenset[int]) -> Regex:
    """Match any character but these ASCII characters."""
    sequences = []
    for ranges in _NON_ASCII:
        ends = [one.split("-") for one in ranges.split()]
        sets = [frozenset(range(int(low, 16), int(high, 16) + 1)) for low, high in ends]
        sequences.append(seq(*map(Byte, sets)))
    return either([Byte(_ASCII - values), *sequences])
