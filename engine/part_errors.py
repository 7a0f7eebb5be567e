"""Mistakes in a part that somebody wrote and passed in: a policy, a drafter, a tool, a pool, ...

A mistake is named with class and method, whatever it is: an exception inside, an answer of the wrong
kind. After those that `RECOVERABLE` lists the engine goes on with the next step: the decision was
asked before anything was changed. A pool that hands out a block twice has corrupted memory, and the
engine says so and stops.
"""

import math
from collections.abc import Callable
from typing import TypeVar

_Answer = TypeVar("_Answer")


class PartError(RuntimeError):
    """A part did what it must not. The message begins with class and method."""


class PolicyError(PartError):
    """A policy raised, or answered with something that is not a choice it was given."""


class DrafterError(PartError):
    """A drafter raised, or proposed what is not a list of token ids."""


class EvictionError(PartError):
    """An eviction order raised, or gave a key that does not compare."""


class ToolError(PartError):
    """A tool's state raised, or forced what is not a list of token ids."""


class PoolError(PartError):
    """A pool handed out blocks it must not hand out."""


RECOVERABLE = (PolicyError, DrafterError, EvictionError)


def named(part: object, method: str) -> str:
    """ "MyPolicy.key" """
    return f"{type(part).__name__}.{method}"


def ask(error: type[PartError], method: Callable[..., _Answer], *args: object) -> _Answer:
    """Call a part's bound method; what it raises is named and raised as `error`."""
    try:
        return method(*args)
    except Exception as cause:
        name = named(method.__self__, method.__name__)  # type: ignore[attr-defined] # it is bound
        raise error(f"{name} raised {type(cause).__name__}: {cause}") from cause


def checked_key(error: type[PartError], part: object, key: object) -> tuple[float, ...]:
    """`key` if it is a tuple of numbers, which always compare; raises `error` otherwise."""
    if not isinstance(key, tuple) or not all(_compares(number) for number in key):
        raise error(f"{named(part, 'key')} must return a tuple of numbers, got {key!r}")
    return key


def checked_ids(
    error: type[PartError], part: object, method: str, ids: object, vocab_size: int
) -> list[int]:
    """`ids`, copied, if it is a list of token ids; raises `error` otherwise."""
    name = named(part, method)
    if not isinstance(ids, list):
        raise error(f"{name} must return a list of token ids, got {ids!r}")
    for token in ids:
        whole = isinstance(token, int) and not isinstance(token, bool)
        if not whole or not 0 <= token < vocab_size:
            what = f"no token of the vocabulary (0 to {vocab_size - 1})"
            raise error(f"{name} returned {token!r}, {what}")
    return list(ids)


def _compares(number: object) -> bool:
    return isinstance(number, int | float) and not math.isnan(number)
