"""A gate: parts that must keep their lesson's promises, and a test of the engine that they make."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from checks.broken import Broken
from checks.judging import judge
from project.learner import PARTS, MineError, Source, said

Try = Callable[[Source], None]


@dataclass(frozen=True)
class Gate:
    """One gate.

    promise  what it tests, for the table
    exact    parts that must pass the check of their lesson
    free     parts that may decide otherwise than in their lesson
    attempt  raises Broken or MineError if the engine with these parts fails
    """

    name: str
    promise: str
    exact: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    attempt: Try | None = None

    def parts_in(self, source: Source) -> list[str]:
        """Return the learner's parts that this gate tests. Raises MineError for a broken file."""
        written = source.load().parts
        return [name for name in self.exact + self.free if name in written]

    def failure(self, source: Source) -> str | None:
        """Return what a learner's parts do wrong, or None if they pass."""
        parts = source.load().parts
        try:
            for name in self.exact:
                if name in parts:
                    lesson = import_module(f"checks.lesson_{PARTS[name]}")
                    verdict = judge(parts[name], lesson.cases(), lesson.attempt)
                    if verdict.broken is not None:
                        return (
                            f"{name} (lesson {PARTS[name]}): {verdict.case} {said(verdict.broken)}"
                        )
            if self.attempt is not None and self.parts_in(source):
                self.attempt(source)
        except Broken as broken:
            return said(broken)
        except MineError as error:
            return str(error)
        return None
