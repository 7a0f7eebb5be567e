"""Mistakes in a part that a learner wrote and passed in: a policy, a drafter, a tool, a pool, ...

Each error message begins with the class and the method, whether the part raised an exception or
returned the wrong kind of result. After an error in `RECOVERABLE`, the engine can run another
step, because nothing has changed when it calls these parts. A pool that hands out a block twice has
corrupted memory, so the engine stops.
"""

import math
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


class PartError(RuntimeError):
    """A part made a mistake. The message begins with the class and the method."""


class PolicyError(PartError):
    """A policy raised an exception, or its choice was invalid."""


class DrafterError(PartError):
    """A drafter raised an exception, or did not propose a list of token ids."""


class EvictionError(PartError):
    """An eviction order raised an exception, or returned a key that cannot be compared."""


class ToolError(PartError):
    """A tool raised an exception, or did not return a list of token ids."""


class PoolError(PartError):
    """A pool raised an exception, or handed out blocks that were not free."""


RECOVERABLE = (PolicyError, DrafterError, EvictionError)


def named(part: object, method: str) -> str:
    """Return the names of a part's class and method, such as "MyPolicy.key"."""
    return f"{type(part).__name__}.{method}"


def ask(error: type[PartError], method: Callable[..., _Result], *args: object) -> _Result:
    """Call a part's bound method. Re-raise an exception as `error`, with class and method names."""
    try:
        return method(*args)
    except Exception as cause:
        name = named(method.__self__, method.__name__)  # type: ignore[attr-defined] # it is bound
        raise error(f"{name} raised {type(cause).__name__}: {cause}") from cause


def checked_key(error: type[PartError], part: object, key: object) -> tuple[float, ...]:
    """Return `key` if it is a tuple of comparable numbers; raise `error` otherwise."""
    if not isinstance(key, tuple) or not all(
        isinstance(number, int | float) and not math.isnan(number) for number in key
    ):
        raise error(f"{named(part, 'key')} must return a tuple of numbers, got {key!r}")
    return key


def checked_ids(
    error: type[PartError], part: object, method: str, ids: object, vocab_size: int
) -> list[int]:
    """Return a copy of `ids` if it is a list of token ids; raise `error` otherwise."""
    name = named(part, method)
    if not isinstance(ids, list):
        raise error(f"{name} must return a list of token ids, got {ids!r}")
    for token in ids:
        whole = isinstance(token, int) and not isinstance(token, bool)
        if not whole or not 0 <= token < vocab_size:
            raise error(
                f"{name} must return token ids of the vocabulary (0 to {vocab_size - 1}), got {token!r}"
            )
    return list(ids)
