"""Regular expressions as trees of bytes.

`regex_mask` computes with them. The leaves are bytes, because a token is a string of bytes, and may
end within a character. The syntax is that of Rust's regex crate, which llguidance reads, without
anchors, flags, lazy counts and Unicode classes.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from math import inf

MAX_LENGTH = 1000  # characters
MAX_NESTING = 50  # groups; each takes a few Python frames


class RegexError(ValueError):
    """The expression has a mistake, an unsupported part or too many states. The message says where."""


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


_COUNT = re.compile(r"([*+?])|\{(\d{1,9})(?:(,)(\d{0,9}))?\}")
_COUNTS: dict[str, tuple[int, float]] = {"*": (0, inf), "+": (1, inf), "?": (0, 1)}
_ASCII = frozenset(range(128))
_DIGITS = frozenset(b"0123456789")
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_CLASSES = {"d": _DIGITS, "w": _DIGITS | _LETTERS | {ord("_")}, "s": frozenset(b" \t\n\v\f\r")}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
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
    return _Parser(pattern).parse()


class _Parser:
    """Reads an expression from left to right. `at` is the index of the next character."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def parse(self) -> Regex:
        regex = self._either(depth=0)
        if self._ahead:
            raise self._error(r"the group ends, but did not begin; \) is the character itself")
        return regex

    @property
    def _ahead(self) -> str:
        """The next character; "" at the end."""
        return self._pattern[self._at : self._at + 1]

    def _next(self, missing: str) -> str:
        if not self._ahead:
            raise self._error(f"{missing} is missing")
        self._at += 1
        return self._pattern[self._at - 1]

    def _error(self, words: str) -> RegexError:
        return RegexError(f"{words} (at character {self._at + 1} of the expression)")

    def _either(self, depth: int) -> Regex:
        if depth > MAX_NESTING:
            raise self._error(f"groups may be at most {MAX_NESTING} deep")
        options = [self._seq(depth)]
        while self._ahead == "|":
            self._at += 1
            options.append(self._seq(depth))
        return either(options)

    def _seq(self, depth: int) -> Regex:
        parts = []
        while self._ahead not in ("", "|", ")"):
            parts.append(self._repeated(depth))
        return seq(*parts)

    def _repeated(self, depth: int) -> Regex:
        body = self._one(depth)
        count = _COUNT.match(self._pattern, self._at)
        if not count:
            return body
        sign, low, comma, high = count.groups()
        most: float = int(high) if high else inf if comma else int(low or 0)
        least, most = _COUNTS[sign] if sign else (int(low), most)
        if most < least:
            raise self._error(f"{count[0]} has its larger number first")
        self._at = count.end()
        if _COUNT.match(self._pattern, self._at):
            raise self._error("a count may not follow another; put the first one into ( )")
        return Repeat(body, least, most) if most else EMPTY

    def _one(self, depth: int) -> Regex:
        if self._ahead in tuple("*+?{^$"):
            raise self._error(rf"{self._ahead} cannot stand here; \{self._ahead} is the character")
        match character := self._next("a character"):
            case "(":
                if self._ahead == "?":
                    raise self._error("groups that begin with (? are not supported")
                group = self._either(depth + 1)
                self._next(")")
                return group
            case "[":
                return self._class()
            case ".":
                return _except(frozenset(b"\n"))
            case "\\":
                return Byte(self._escaped())
        return seq(*(Byte(frozenset({byte})) for byte in character.encode()))

    def _class(self) -> Regex:
        """Read a class after its [."""
        negated = self._ahead == "^"
        self._at += negated
        values = frozenset[int]()
        while not values or self._ahead != "]":
            first = self._member()
            if self._ahead == "-" and self._pattern[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                last = self._member()
                if len(first) > 1 or len(last) > 1 or min(last) < min(first):
                    raise self._error("a range needs two characters, the smaller one first")
                first = frozenset(range(min(first), min(last) + 1))
            values |= first
        self._at += 1
        return _except(values) if negated else Byte(values)

    def _member(self) -> frozenset[int]:
        """Read a character of a class, or an escape."""
        character = self._next("] of the class")
        if character == "\\":
            return self._escaped()
        if not character.isascii():
            raise self._error(f"{character} is not ASCII, so it cannot stand in a class; use ( | )")
        if character in "[]":
            raise self._error(rf"{character} cannot stand here; \{character} is the character")
        return frozenset({ord(character)})

    def _escaped(self) -> frozenset[int]:
        """Read what stands after a backslash."""
        character = self._next("the character after the backslash")
        if character in _CLASSES:
            return _CLASSES[character]
        if (character.isalnum() and character not in _CONTROLS) or not character.isascii():
            raise self._error(f"\\{character} is not supported")
        return frozenset({ord(_CONTROLS.get(character, character))})


def _except(values: frozenset[int]) -> Regex:
    """Match any character but these ASCII characters."""
    sequences = []
    for ranges in _NON_ASCII:
        ends = [one.split("-") for one in ranges.split()]
        sets = [frozenset(range(int(low, 16), int(high, 16) + 1)) for low, high in ends]
        sequences.append(seq(*map(Byte, sets)))
    return either([Byte(_ASCII - values), *sequences])
