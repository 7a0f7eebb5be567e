"""Bounds of numbers that the grammar library keeps exactly.

The library (llguidance) reads every number of a schema as a 64-bit float, and takes an integer's bound
as a 64-bit integer after that. So `minimum: 9007199254740993` became 9007199254740992, which is one too
low; `maximum: 0.9999999999999999` became 1, because its parser does not round to the nearest float;
and a `const` of -2**63 ended the process. Here each bound is replaced by the nearest one inside it that
survives all this: an integer that is a float, or a number of 15 digits. A mask may then forbid a few of
the outermost values, but it never allows a wrong one.
"""

import math
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, TypeGuard

from engine.extensions.grammars.grammar_error import GrammarError

_LARGEST = (1 << 63) - 1024  # the largest 64-bit integer that is a float, too
_LARGEST_NUMBER = (
    9.2e18  # the library takes the whole part of other numbers as such an integer, too
)
_CLOSED = 10**17  # beyond it the library needs both bounds
_PLACES = 22  # decimal places that the library's parser reads exactly
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_DIGITS = 15  # of a number that is no integer
_STEPS = 10  # decimal places: the largest number for which the library takes a `multipleOf`


def make_bounds_exact(schema: dict[str, Any], *, may_round: bool = False) -> None:
    """Replace the bounds of one schema by bounds that the library keeps exactly.

    Digits without end come as close to an exclusive bound as they like, and are read as the bound
    itself. So such a bound moves inside, or, if `may_round`, the number of decimal places is limited by
    `multipleOf`; the library cannot combine that with another `multipleOf`.

    Raises GrammarError if no number inside the bounds can be told from one outside them.
    """
    if not any(name in schema for name in _BOUNDS):
        return
    for name in _BOUNDS:
        _check(name, schema.get(name, 0))
    types = schema.get("type")
    types = types if isinstance(types, list) else [types]
    is_integer = "integer" in types and "number" not in types
    largest = _LARGEST if is_integer else _LARGEST_NUMBER
    given = ", ".join(f"{name} {str(schema[name])[:40]}" for name in _BOUNDS if name in schema)
    low = _inner(schema, "minimum", "exclusiveMinimum", up=True, is_integer=is_integer)
    high = _inner(schema, "maximum", "exclusiveMaximum", up=False, is_integer=is_integer)
    if high is None and low is not None and low > _CLOSED:
        high = largest
    if low is None and high is not None and high < -_CLOSED:
        low = -largest
    if low is not None and high is not None and low > high:
        raise GrammarError(
            f"no number is certain to lie inside {given}: bounds are kept as 64-bit floats, up to "
            f"{largest:,}"
        )
    places = _STEPS
    kept: dict[str, int | float] = {}
    for name, bound in (("minimum", low), ("maximum", high)):
        exclusive = "exclusive" + name.capitalize()
        limit = schema.get(name) if schema.get(exclusive) is True else schema.get(exclusive)
        is_only = name not in schema or schema.get(exclusive) is True
        count = _places_below(limit) if _is_number(limit) and is_only else None
        if may_round and not is_integer and _is_number(limit) and count is not None:
            kept[exclusive], places = limit, min(places, count)
        elif bound is not None:
            kept[name] = bound
    for name in _BOUNDS:
        schema.pop(name, None)
    schema |= kept
    if any(name.startswith("exclusive") for name in kept):
        schema["multipleOf"] = float(Decimal(10) ** -places)


def _places_below(limit: int | float) -> int | None:
    """Return how many decimal places tell a number from `limit` as floats; None if it has more."""
    exact = _exact(limit)
    places = _DIGITS - max(1, exact.adjusted() + 1)
    exponent = exact.as_tuple().exponent
    return places if isinstance(exponent, int) and -exponent <= places and places >= 0 else None


def check_constants(schema: dict[str, Any]) -> None:
    """Raise GrammarError for a number in `const` or `enum` that the library would change."""
    for key in ("const", "enum"):
        for number in _numbers(schema.get(key)):
            if isinstance(number, float):
                _, digits, exponent = _shortest(number).as_tuple()
                is_exact = isinstance(exponent, int) and (
                    len(digits) <= _DIGITS and abs(exponent) <= _PLACES
                )
            else:
                is_exact = abs(number) < 1 << 63 and int(float(number)) == number
            if not is_exact:
                raise GrammarError(
                    f"{key} has {str(number)[:40]}, which a 64-bit float does not keep: "
                    "write it as a string"
                )


def _numbers(value: Any) -> Iterator[int | float]:
    pending = [value]
    while pending:
        match pending.pop():
            case bool():
                pass
            case int() | float() as number:
                yield number
            case list() as items:
                pending += items
            case dict() as items:
                pending += items.values()


def _check(name: str, bound: Any) -> None:
    is_draft_4 = isinstance(bound, bool) and name.startswith("exclusive")
    if not (is_draft_4 or (_is_number(bound) and abs(bound) < math.inf)):
        raise GrammarError(f"{name} must be a finite number, got {str(bound)[:30]}")


def _inner(
    schema: dict[str, Any], plain: str, exclusive: str, *, up: bool, is_integer: bool
) -> int | float | None:
    """Return the bound to set on one side, inside all that are given; None if there is none.

    `up` is true for a lower bound. An `exclusive` bound of draft 4 is a boolean.
    """
    bounds = []
    bound, excluded = schema.get(plain), schema.get(exclusive)
    if _is_number(bound):
        bounds.append(_inside(bound, up, excluded is True, is_integer))
    if _is_number(excluded):
        bounds.append(_inside(excluded, up, True, is_integer))
    if not bounds:
        return None
    return max(bounds) if up else min(bounds)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _inside(bound: int | float, up: bool, exclusive: bool, is_integer: bool) -> int | float:
    """Return the nearest number on the inner side of `bound` that the library keeps exactly."""
    largest = _LARGEST if is_integer else _LARGEST_NUMBER
    outwards = -largest if up else largest
    if (bound < outwards) if up else (bound > outwards):
        return outwards
    if abs(bound) > largest:
        return bound  # nothing is inside
    if is_integer:
        whole = math.ceil(bound) if up else math.floor(bound)
        if exclusive and whole == bound:
            whole += 1 if up else -1
        return _inner_integer(whole, up)
    exact = _exact(bound)
    rounding = ROUND_CEILING if up else ROUND_FLOOR
    if exclusive:  # the next float: a text between the two could be read as the bound itself
        inner = _shortest(math.nextafter(float(bound), math.inf if up else -math.inf))
        exact = max(exact, inner) if up else min(exact, inner)
    exact = Context(_DIGITS, rounding).plus(exact)
    exact = exact.quantize(Decimal(10) ** -_PLACES, rounding, Context(_DIGITS + 50))
    return float(exact) + 0.0  # never -0.0


def _inner_integer(whole: int, up: bool) -> int:
    nearest = float(whole)
    if (nearest < whole) if up else (nearest > whole):
        nearest = math.nextafter(nearest, math.inf if up else -math.inf)
    return int(nearest)


def _exact(number: int | float) -> Decimal:
    return Decimal(number) if isinstance(number, int) else _shortest(number)


def _shortest(number: float) -> Decimal:
    """Return the decimal number that stands for a float in JSON and in the library's expressions."""
    return Decimal(repr(number))
