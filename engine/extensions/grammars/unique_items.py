"""Keep the items of an array apart: `uniqueItems`, which no grammar can express.

A context-free grammar cannot compare a new item with the earlier ones, so this matcher does, on top of
the grammar's. It reads the output along with the grammar, and knows where in the schema the output is.
Inside an array with `uniqueItems` it removes tokens from the mask:

    output   ["red", "re            used: "red"
    removed  d"   d",   d"]         they complete a second "red"
    removed  d                      only if nothing but the closing quote could follow; here it stays,
                                    because "redwood" is possible

So a comma is removed, too, when every value of an enum has been used. Items are compared by value: 1
and 1.0 are the same number.

Differs from vLLM, whose backends reject `uniqueItems` or ignore it. Items that are arrays or objects,
and numbers with bounds, are rejected: two different texts may be the same value there.
"""

import copy
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

from engine.core.tokenizer import Tokenizer
from engine.extensions.grammars.constraint import Matcher
from engine.extensions.grammars.grammar_error import GrammarError
from engine.extensions.grammars.json_schema import Schema, resolve

MARK = "x-uniqueItems"  # in a schema for the library, which ignores unknown keywords
_MAX_ALTERNATIVES = 100
_SCALARS = {"string", "integer", "boolean", "null"}
_NUMBER_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
# Bounded numbers have no exponent. With one, "0e" would go on for ever: it is 0, whatever follows.
_FINITE = {"minimum": -9.2e18, "maximum": 9.2e18}


def mark_unique_items(schema: Schema, root: Schema) -> None:
    """Replace `uniqueItems` by a mark, after a check that it can be kept. Raises GrammarError."""
    schema.pop(MARK, None)
    is_unique = schema.pop("uniqueItems", False)
    if is_unique is True and schema.get("maxItems", 2) > 1:
        for item in expand(_items_of(schema), root):
            _check_scalar(item)
        schema[MARK] = True


def check_alternatives(schema: Schema, root: Schema) -> None:
    """Reject a choice between an array with unique items and one without: both begin alike."""
    if not schema.keys() & {"anyOf", "oneOf"}:
        return
    arrays = [one for one in expand([schema], root) if one.get("type") == "array"]
    if len({MARK in one for one in arrays}) > 1:
        raise GrammarError("uniqueItems cannot be guaranteed beside an array without it")


def expand(schemas: Iterable[Any], root: Schema) -> list[Schema]:
    """Return all schemas that may describe the value that these describe. Raises GrammarError."""
    found: dict[int, Schema] = {}
    pending = list(schemas)
    while pending:
        schema = pending.pop()
        if isinstance(schema, dict) and id(schema) not in found:
            found[id(schema)] = schema
            if len(found) > _MAX_ALTERNATIVES:
                raise GrammarError(
                    f"uniqueItems needs at most {_MAX_ALTERNATIVES} alternatives in one place"
                )
            for key in ("anyOf", "oneOf", "allOf"):
                pending += options if isinstance(options := schema.get(key), list) else []
            if isinstance(pointer := schema.get("$ref"), str):
                pending.append(resolve(pointer, root))
    return list(found.values())


def keep_items_unique(matcher: Matcher, grammar: str, tokenizer: Tokenizer) -> Matcher:
    """Return a matcher that also keeps `uniqueItems`, if the grammar's schema asks for it."""
    if f'"{MARK}"' not in grammar:
        return matcher
    root = json.loads(grammar)["grammars"][0]["json_schema"]
    return _UniqueItems(matcher, _Reader(root), _tokens_of(tokenizer))


def _items_of(schema: Schema) -> list[Any]:
    items = schema.get("items", True)
    return [*schema.get("prefixItems", []), *(items if isinstance(items, list) else [items])]


def _check_scalar(item: Schema) -> None:
    values = [item["const"]] if "const" in item else item.get("enum")
    if isinstance(values, list) and not any(isinstance(one, dict | list) for one in values):
        return
    types = item.get("type")
    types = {*types} if isinstance(types, list) else {types}
    is_choice = item.keys() & {"anyOf", "oneOf", "allOf", "$ref"}
    if types == {None} and is_choice:
        return
    if types <= _SCALARS:
        return
    given = {name: item[name] for name in _NUMBER_BOUNDS if name in item}
    if types <= {*_SCALARS, "number"} and given in ({}, _FINITE):
        item |= _FINITE
        return
    raise GrammarError(
        "uniqueItems can be guaranteed only for strings, integers, numbers without bounds, booleans "
        "and enums: describe the items with a type, or leave uniqueItems out"
    )


@dataclass(slots=True)
class _Tokens:
    """The tokens of a vocabulary by their bytes, and those that may begin, end or separate items."""

    texts: list[bytes]
    ids: dict[bytes, int]
    ends: list[int]  # tokens with a quote, a comma or a bracket
    end_bits: int


@lru_cache(maxsize=8)
def _read_tokens(tokenizer: Tokenizer) -> _Tokens:
    hidden = tokenizer.special_ids | tokenizer.eos_ids
    texts = [b"" if i in hidden else tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
    ends = [i for i, text in enumerate(texts) if any(one in text for one in b'",[]')]
    return _Tokens(
        texts, {text: i for i, text in enumerate(texts) if text}, ends, sum(1 << i for i in ends)
    )


def _tokens_of(tokenizer: Tokenizer) -> _Tokens:
    return _read_tokens(tokenizer)  # type: ignore[arg-type] # hashed by identity


@dataclass(slots=True)
class _Level:
    """An object or array that is open, and what the schema says about it."""

    schemas: list[Schema]
    is_array: bool
    is_unique: bool = False
    key: str = ""
    index: int = 0
    used: dict[tuple[str, Any], bytes] = field(default_factory=dict)  # items: value -> text

    def copy(self) -> "_Level":
        return replace(self, used=dict(self.used))


class _Reader:
    """Reads JSON byte by byte, and knows the schemas of the value that it is in."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self.levels: list[_Level] = []
        self.scalar = b""  # the text of the string or number so far
        self.text = b""  # the same, with the space before it
        self._is_string = self._is_escaped = self._is_key = False

    def copy(self) -> "_Reader":
        other = copy.copy(self)
        other.levels = [*self.levels[:-1], *(one.copy() for one in self.levels[-1:])]
        return other

    @property
    def is_unique(self) -> bool:
        """Whether the innermost open array or object keeps its items unique."""
        return bool(self.levels) and self.levels[-1].is_unique

    def read(self, text: bytes) -> bool:
        """Read more; return whether all items are still unique."""
        for i in range(len(text)):
            byte = text[i : i + 1]
            fits = self._read(byte)
            self.text = self.text + byte if self.scalar or byte == b" " else byte
            if not fits:
                return False
        return True

    def rests(self) -> Iterator[bytes]:
        """Yield what would complete the item to one of the used ones."""
        for text in self.levels[-1].used.values():
            for spelling in (text, b"-0") if text == b"0" else (text,):
                if not self.scalar:
                    yield b" " + spelling  # after a comma
                if spelling.startswith(self.scalar):
                    yield spelling[len(self.scalar) :]

    def _read(self, byte: bytes) -> bool:
        if self._is_string:
            self.scalar += byte
            if self._is_escaped:
                self._is_escaped = False
            elif byte == b"\\":
                self._is_escaped = True
            elif byte == b'"':
                self._is_string = False
                return (
                    self._is_key or not self.is_unique or self._value() not in self.levels[-1].used
                )
        elif byte == b'"':
            self._is_string, self.scalar = True, byte
        elif byte in b"{[":
            self._open(byte == b"[")
        elif byte in b"}]":
            return self._close()
        elif byte == b",":
            if not self._complete():
                return False
            self._is_key = not self.levels[-1].is_array
        elif byte == b":":
            self.levels[-1].key, self.scalar, self._is_key = json.loads(self.scalar), b"", False
        elif byte != b" ":
            self.scalar += byte
        return True

    def _open(self, is_array: bool) -> None:
        schemas = expand(self._inside(), self.root)
        is_unique = is_array and any(MARK in one for one in schemas)
        self.levels.append(_Level(schemas, is_array, is_unique))
        self._is_key = not is_array

    def _close(self) -> bool:
        fits = self._complete()
        self.levels.pop()
        self._is_key = False
        if self.levels:
            self.levels[-1] = self.levels[-1].copy()  # it may be shared with another reader
        return fits

    def _complete(self) -> bool:
        """End an item or a property; return whether it is unique."""
        level = self.levels[-1]
        fits = True
        if level.is_unique and self.scalar:
            value = self._value()
            fits = value not in level.used
            level.used[value] = self.scalar
        level.index += 1
        self.scalar = b""
        return fits

    def _value(self) -> tuple[str, Any]:
        value = json.loads(self.scalar, parse_int=Decimal)  # without a limit of digits
        return "number" if isinstance(value, Decimal | float) else type(value).__name__, value

    def _inside(self) -> Iterator[Any]:
        """Yield the schemas of the value that begins now."""
        if not self.levels:
            yield self.root
            return
        level = self.levels[-1]
        for schema in level.schemas:
            if level.is_array:
                before = schema.get("prefixItems", [])
                items = schema.get("items")
                if isinstance(items, list):
                    before, items = items, schema.get("additionalItems")
                yield before[level.index] if level.index < len(before) else items
            elif level.key in schema.get("properties", {}):
                yield schema["properties"][level.key]
            else:
                yield from schema.get("patternProperties", {}).values()
                yield schema.get("additionalProperties")


class _UniqueItems:
    """A matcher that reads along, and forbids items that the grammar alone would repeat."""

    def __init__(self, matcher: Matcher, reader: _Reader, tokens: _Tokens) -> None:
        self._matcher = matcher
        self._reader = reader
        self._tokens = tokens
        self._read: list[int] = []

    def deep_copy(self) -> Matcher:
        other = _UniqueItems(self._matcher.deep_copy(), self._reader.copy(), self._tokens)
        other._read = list(self._read)
        return other

    def try_consume_tokens(self, tokens: list[int]) -> int:
        for count, token in enumerate(tokens):
            reader = self._reader.copy()
            fits = reader.read(self._tokens.texts[token])
            if not fits or not self._matcher.try_consume_tokens([token]):
                return count
            self._reader = reader
            self._read.append(token)
        return len(tokens)

    def validate_tokens(self, tokens: list[int]) -> int:
        other = self.deep_copy()
        for count, token in enumerate(tokens[: self._matcher.validate_tokens(tokens)]):
            if not int.from_bytes(other.compute_bitmask(), "little") >> token & 1:
                return count
            if not other.try_consume_tokens([token]):
                return count
        return min(len(tokens), self._matcher.validate_tokens(tokens))

    def rollback(self, num_tokens: int) -> bool:
        if num_tokens:
            del self._read[-num_tokens:]
            self._reader = _Reader(self._reader.root)
            self._reader.read(b"".join(self._tokens.texts[token] for token in self._read))
        return self._matcher.rollback(num_tokens)

    def compute_bitmask(self) -> bytes:
        plain = self._matcher.compute_bitmask()
        mask = int.from_bytes(plain, "little")
        return (mask & ~self._repeating(mask)).to_bytes(len(plain), "little")

    def compute_ff_tokens(self) -> list[int]:
        """Return the forced tokens up to an array with unique items."""
        forced = []
        reader = self._reader.copy()
        for token in self._matcher.compute_ff_tokens():
            if reader.is_unique or not reader.read(self._tokens.texts[token]):
                break
            forced.append(token)
        return forced

    def get_error(self) -> str:
        return self._matcher.get_error()

    def _repeating(self, mask: int) -> int:
        """Return the allowed tokens after which an item is repeated, or must be."""
        repeating = 0
        known: dict[object, bool] = {}
        for token in self._critical(mask):
            reader = self._reader.copy()
            fits = reader.read(self._tokens.texts[token])
            if not fits or not self._can_go_on(token, reader, known):
                repeating |= 1 << token
        return repeating

    def _critical(self, mask: int) -> set[int]:
        """Return the allowed tokens that may repeat an item, or lead to nothing else."""
        texts, ids = self._tokens.texts, self._tokens.ids
        ends = [token for token in _bits(mask & self._tokens.end_bits)]
        if not self._reader.is_unique:
            return {token for token in ends if b"[" in texts[token]}
        critical = {*ends}
        for rest in self._reader.rests():
            starts = (rest[:size] for size in range(1, len(rest) + 1))
            critical |= {ids[start] for start in starts if start in ids}
        return {token for token in critical if mask >> token & 1}

    def _can_go_on(self, token: int, reader: _Reader, known: dict[object, bool]) -> bool:
        """Return whether an item that is not used can follow this token.

        `known` keeps the answers: many sequences of tokens spell the same text.
        """
        if not reader.is_unique or not any(True for _ in reader.rests()):
            return True
        level = reader.levels[-1]
        state = (reader.text, *level.used.values())
        if state not in known:
            inner = self._matcher.deep_copy()
            inner.try_consume_tokens([token])
            after = _UniqueItems(inner, reader, self._tokens)
            mask = int.from_bytes(inner.compute_bitmask(), "little")
            critical = after._critical(mask)
            known[state] = bool(mask & ~sum(1 << one for one in critical))
            for one in sorted(critical):
                further = reader.copy()
                fits = further.read(self._tokens.texts[one])
                if known[state] or (fits and after._can_go_on(one, further, known)):
                    known[state] = True
                    break
        return known[state]


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
