"""Load a learner's `mine.py`: settings, and the parts that are written.

A part that is missing, or still the template's stub, is absent, and so is the ability that it gives
the engine (`parts.py`). The file is run again for each simulation, so a part can learn within a run
but remember nothing from an earlier one.
"""

import hashlib
import linecache
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from inspect import isclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from checks.broken import Broken, CommonPromise
from checks.guard import NotWrittenError, stubs, watched

# Part -> the lesson whose exercise it is. A class is a part as a whole.
PARTS = {
    "distribution": "01",
    "attend": "02",
    "count_work": "03",
    "admit": "04",
    "BlockPool": "05",
    "split": "06",
    "choose_leaf": "08",
    "victim": "09",
    "pick_budget": "10",
    "report": "12",
    "Outbox": "13",
    "accept": "14",
    "mask": "15",
    "fetch_or_compute": "16",
    "Ahead": "17",
    "route": "18",
    "fetch": "19",
    "order": "the project",
}
# These decide, and may decide better than in their lesson; the others have one right answer.
FREE = ("order", "admit", "choose_leaf", "victim", "pick_budget", "route")
EXACT = tuple(name for name in PARTS if name not in FREE)


class Waiting(NamedTuple):
    """A waiting request, as `order` sees it.

    id             its number at its replica
    cached_tokens  leading tokens that the prefix cache has now
    output_tokens  tokens of its answer that its client has already; 0 unless it was preempted
    age_ms         time since it arrived
    ttft_goal_ms   the goal for the time from arrival to first token
    """

    id: int
    label: str
    priority: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    max_tokens: int
    preemptions: int
    age_ms: float
    ttft_goal_ms: float


class MineError(Exception):
    """Something is wrong in a learner's file. The message names the part and the problem."""


@dataclass
class Mine:
    """A learner's file, run once.

    settings  the learner's SETTINGS
    parts     name -> function or class, of those that are written
    """

    settings: dict[str, Any]
    parts: dict[str, Any]

    def guarded(self, name: str) -> Callable[..., Any] | None:
        """Return a part that cannot hang; None if it is absent. See `guarded`."""
        return guarded(self.parts[name]) if name in self.parts else None

    def each(self, name: str) -> Callable[[list[Any]], list[Any]] | None:
        """Return a function that asks a part about each of some values; None if it is absent."""
        part = self.guarded(name)
        return None if part is None else lambda values: [part(one) for one in values]


@dataclass(frozen=True)
class Source:
    """The text of a learner's file."""

    path: str
    code: str

    @classmethod
    def read(cls, path: Path) -> "Source":
        """Read a file. Raises MineError if there is none, or if it is not text."""
        try:
            return cls(str(path), path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise MineError(f"{path} cannot be read: {error}") from None

    @property
    def sha(self) -> str:
        """SHA-256 of the text, whose lines end with a line feed on every system."""
        return hashlib.sha256(self.code.encode()).hexdigest()

    def load(self) -> Mine:
        """Run the file and return what it defines. Raises MineError if that fails."""
        # An error shows the line, even if the text came from a leaderboard.
        lines = self.code.splitlines(keepends=True)
        linecache.cache[self.path] = (len(self.code), None, lines, self.path)
        module = ModuleType("mine")
        sys.modules["mine"] = module  # a dataclass looks for its module there
        try:
            program = compile(self.code, self.path, "exec")
            with watched(type("mine.py", (), {"__module__": "mine"})):
                exec(program, vars(module))
        except (SyntaxError, ValueError) as error:  # ValueError: a null byte
            raise MineError(f"mine.py is not Python: {error}") from None
        except NotWrittenError:
            raise MineError("mine.py raised NotImplementedError outside of a part") from None
        except Broken as broken:
            raise MineError(said(broken)) from None
        return Mine(_settings(module), _parts(module))


def said(broken: Broken) -> str:
    """Return what went wrong as sentences."""
    return f"{broken.did} Promise broken: {broken.promise}. {broken.look}"


def guarded(part: Any) -> Callable[..., Any]:
    """Return a function that calls a part, or makes an instance whose methods are guarded as well.

    It raises Broken if the part raises, or does not end.
    """

    @wraps(part, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        result = _watched(part, part, *args, **kwargs)
        return _Guarded(result, part) if isclass(part) else result

    return call


class _Guarded:
    """An instance of a learner's class."""

    def __init__(self, instance: Any, part: type) -> None:
        self._instance, self._part = instance, part

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._instance, name)
        return partial(_watched, self._part, value) if callable(value) else value


def _watched(part: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        with watched(part):
            return function(*args, **kwargs)
    except NotWrittenError as error:
        did = f"{error} raised NotImplementedError."
        raise Broken(did, CommonPromise.ANSWERS, "Part of it is not written yet.") from None


def _settings(module: ModuleType) -> dict[str, Any]:
    settings = getattr(module, "SETTINGS", {})
    if not isinstance(settings, dict) or not all(isinstance(name, str) for name in settings):
        raise MineError(f"SETTINGS must be a dictionary of settings by name, got {settings!r}")
    return settings


def _parts(module: ModuleType) -> dict[str, Any]:
    """Return the parts that are written. Raises MineError for one that is written in part."""
    found = {}
    for name in PARTS:
        part = getattr(module, name, None)
        if part is None:
            continue
        if not callable(part) or not hasattr(part, "__name__"):
            raise MineError(f"{name} must be a function or a class, got {part!r}")
        methods = [one for one in vars(part).values() if callable(one)] if isclass(part) else [part]
        missing = stubs(part)
        if len(missing) < len(methods):
            if missing:
                raise MineError(f"{name} is not complete: {', '.join(missing)} is still empty")
            found[name] = part
    return found
