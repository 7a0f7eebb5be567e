"""Mistakes in a part that a learner wrote and passed in: a policy, a drafter, a tool, a pool, ...

A part is wrapped in a `CheckedPart` where it enters the engine; the engine's own parts are called
directly. Each error message begins with the class and the method, whether the part raised an exception
or returned the wrong kind of result. After an error in `RECOVERABLE`, the engine can run another step,
because nothing has changed when it calls these parts. A pool that hands out a block twice has corrupted
memory, so the engine stops.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


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


@dataclass(frozen=True, slots=True)
class Role:
    """What a part of one kind has to do.

    method  the method that it must have; "" for a part that is itself callable
    kind    the class or protocol of such parts, which has the defaults
    error   the error for its mistakes
    checks  by method, what a result is checked with: `check(method, *args)` returns the result
    """

    method: str
    kind: type = object
    error: type[PartError] = PartError
    checks: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartMethod:
    """A method of a learner's part, whose mistakes become errors that name class and method."""

    part: object
    role: Role
    name: str
    facts: Mapping[str, Any]

    def __call__(self, *args: Any) -> Any:
        """Call the method and check its result, if its role has a check for it."""
        check = self.role.checks.get(self.name)
        return self.ask(*args) if check is None else check(self, *args, **self.facts)

    def ask(self, *args: Any) -> Any:
        """Call the method. Its exception becomes the cause of the role's error."""
        try:
            return getattr(self.part, self.name)(*args)
        except Exception as cause:
            raise self.wrong(f"raised {type(cause).__name__}: {cause}") from cause

    def wrong(self, problem: str) -> PartError:
        """Return the error that says what the method did wrong."""
        return self.role.error(f"{type(self.part).__name__}.{self.name} {problem}")


class CheckedPart:
    """A part that a learner wrote, in a role: methods are called and checked by `PartMethod`.

    What the part does not override is the role's default, and runs on this wrapper. Everything else is
    an attribute of the part. `facts` are passed on to the checks.
    """

    def __init__(self, part: object, role: Role, **facts: Any) -> None:
        self._part, self._role, self._facts = part, role, facts

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # this object is being copied and has no part yet
        default = getattr(self._role.kind, name, None)
        value = getattr(self._part, name, default)
        if callable(default) and default in (value, getattr(value, "__func__", None)):
            return default.__get__(self)
        if callable(value):
            return PartMethod(self._part, self._role, name, self._facts)
        return value


def is_own(part: object) -> bool:
    """Return whether a part, or a class of parts, is the engine's own and needs no checks."""
    kind = part if isinstance(part, type) else type(part)
    return kind.__module__.partition(".")[0] == "engine"
