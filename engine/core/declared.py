"""Declared fields: what a struct's annotations say about its fields, read and checked in one place.

A field is declared once, with its type and its bounds, as in `EngineConfig` and `SamplingParams`. From
the declaration follow the check of its value, the words of the error, and what options, forms and
tables show of a setting.
"""

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import Meta


def setting(help: str, *, ge: float | None = None, le: float | None = None, **extra: Any) -> Meta:
    """Return the declaration of a setting: its meaning, its bounds, and more by name."""
    return Meta(description=help, ge=ge, le=le, extra=extra)


class Setting(NamedTuple):
    """A setting, as its field is declared: `choices` are its values if it has a list of them."""

    name: str
    kind: Any
    default: Any
    choices: tuple[str, ...]
    help: str
    ge: float | None
    le: float | None
    extra: dict[str, Any]


def settings_of(struct: type[msgspec.Struct]) -> Iterator[Setting]:
    """Yield the fields that are declared with `setting`, in order."""
    for field in _fields(struct):
        if get_origin(field.type) is Annotated:
            kind, meta = get_args(field.type)
            literals = [one for one in (kind, *get_args(kind)) if get_origin(one) is Literal]
            yield Setting(
                name=field.name,
                kind=kind,
                default=field.default,
                choices=get_args(literals[0]) if literals else (),
                help=meta.description,
                ge=meta.ge,
                le=meta.le,
                extra=meta.extra,
            )


def wrong_field(struct: msgspec.Struct) -> tuple[str, str] | None:
    """Return the first field whose value its declared type excludes, and "must be ..., got ...".

    Lists become tuples where the type is one.
    """
    kind = type(struct)
    try:
        msgspec.convert(struct, schema_of(kind), from_attributes=True)
    except INVALID:
        for field in _fields(kind):
            if not _fits(value := getattr(struct, field.name), field.type):
                return field.name, _must_be(field.type, value)
    for name in _tuples(kind):
        if (value := getattr(struct, name)) is not None:
            msgspec.structs.force_setattr(struct, name, tuple(value))
    return None


_fields = cache(msgspec.structs.fields)
# msgspec asks even a sequence for `keys` where it needs a dict, and encodes a string for a number.
INVALID = (msgspec.ValidationError, AttributeError, UnicodeEncodeError)


@cache
def schema_of(struct: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return a struct with the same fields, whose constructor checks nothing."""
    return msgspec.defstruct(
        struct.__name__, [(field.name, field.type) for field in _fields(struct)]
    )


@cache
def _tuples(struct: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in _fields(struct) if "tuple[" in str(field.type)]


def _fits(value: Any, kind: Any) -> bool:
    """Return whether a type allows a value. Unlike msgspec, accept subclasses of float, as NumPy's."""
    try:
        msgspec.convert(_plain(value), kind)
    except INVALID:
        return False
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return float(value) if isinstance(value, float) else value


def _must_be(kind: Any, value: Any) -> str:
    """Return "must be ..., got ...". Of a list or a dict, show only the first invalid entry."""
    entries: list[Any] = []
    if isinstance(value, list | tuple):
        entries = [([one], repr(one)) for one in value]
    elif isinstance(value, dict):
        entries = [({key: one}, f"{key!r}: {one!r}") for key, one in value.items()]
    wrong = (f"{text} among them" for entry, text in entries if not _fits(entry, kind))
    return f"must be {_in_words(kind)}, got {next(wrong, repr(value))}"


def _in_words(kind: Any, *, many: bool = False) -> str:
    """Return a type in words: "a whole number of at least 1", or "whole numbers of at least 1"."""
    kind, meta = get_args(kind) if get_origin(kind) is Annotated else (kind, Meta())
    parts = get_args(kind)
    match get_origin(kind) or kind:
        case origin if origin in (Union, UnionType):
            return _or(word for one in parts for word in _alternatives(one, many))
        case origin if origin is Literal:
            return any_of(parts)
        case origin if origin is dict:
            keys, values = (_in_words(one, many=True) for one in parts)
            return f"a dict from {keys} to {values}"
        case origin if origin is tuple:
            noun = "list of " + _in_words(parts[0], many=True)
        case other:
            noun = _NOUNS.get(other, other.__name__)
    if meta.min_length:
        noun = f"non-empty {noun}"
    if kind in (bool, NoneType):
        return noun
    return f"{noun}s{_bounds(meta)}" if many else f"a {noun}{_bounds(meta)}"


_NOUNS = {
    bool: "True or False",
    NoneType: "None",
    int: "whole number",
    float: "number",
    str: "string",
}


def _bounds(meta: Meta) -> str:
    """Return the bounds of a number in words. The largest float is a bound that excludes only inf."""
    most = None if meta.le in (None, sys.float_info.max) else f"{meta.le:g}"
    if meta.ge == sys.float_info.min:
        return " above 0" + (f" and at most {most}" if most else "")
    if most:
        return f" from {meta.ge:g} to {most}"
    return "" if meta.ge is None else f" of at least {meta.ge:g}"


def _alternatives(kind: Any, many: bool) -> Iterable[str]:
    """Return what a part of a union allows, so that all of it is one list of words."""
    if get_origin(kind) is Literal:
        return (f'"{name}"' for name in get_args(kind))
    return ("True", "False") if kind is bool else (_in_words(kind, many=many),)


def any_of(names: Iterable[str]) -> str:
    """Return '"a", "b" or "c"'."""
    return _or(f'"{name}"' for name in names)


def _or(words: Iterable[str]) -> str:
    """Return "one, two or three"."""
    *others, last = words
    return f"{', '.join(others)} or {last}"
