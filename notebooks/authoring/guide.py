"""The teacher's guide to the exercises, `docs/solutions.md`: `make solutions` writes it.

It says of each exercise what the idea is, which wrong answers are common and what the check says of
each, and of each prediction why the wrong options are tempting. All of it comes from the solutions, the
checks and the recorded wrong answers, so it cannot differ from them.
"""

import importlib
import inspect
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from authoring.lab import REPOSITORY
from authoring.parts import lessons
from authoring.slides import Lesson
from checks.answer import answer_to
from checks.broken import Broken
from solutions.wrong import ROWS, broken

GUIDE = REPOSITORY / "docs" / "solutions.md"
_HEAD = """\
# The exercises and their solutions

For teachers. An exercise has many right answers, because a check tests what a part does, not how. The
files in `notebooks/solutions` have one of them.

The wrong answers are those in `notebooks/solutions/wrong`. They stand behind the promise that they
break. The message is what the check says of the first one.

`make solutions` writes this file. Do not edit it.
"""


def main() -> None:
    """Write the guide."""
    GUIDE.write_text(guide(), "utf-8")
    print(f"{GUIDE.relative_to(REPOSITORY)}: {len(ROWS)} wrong answers")


def guide() -> str:
    """Return the guide as it should be."""
    return "\n".join([_HEAD, *("\n".join(_section(path)) for path in lessons())])


def _section(path: Path) -> Iterator[str]:
    name = f"lesson_{path.name[:2]}"
    lesson, checks = Lesson(path), importlib.import_module(f"checks.{name}")
    yield f"## {lesson.title}\n"
    if hasattr(checks, "HINTS"):
        yield from _exercise(name, checks)
    if lesson.predictions:
        yield "Predictions:\n"
        yield from _predictions(lesson)
    yield ""


def _exercise(name: str, checks: ModuleType) -> Iterator[str]:
    solution = importlib.import_module(f"solutions.{name}")
    yield _filled(_ideas(solution))
    files = (f"[{one}](../notebooks/{one}/{name}.py)" for one in ("solutions", "checks"))
    yield f"\n{' · '.join(files)}\n"
    for number, hint in enumerate(checks.HINTS, 1):
        yield _filled(f"**Hint {number}.** {hint}") + "\n"
    yield "Wrong answers:\n"
    yield from _wrong_answers(name)
    yield ""


def _ideas(solution: ModuleType) -> str:
    """Return the first paragraphs of the docstrings of a solution's module and public functions."""
    own = [
        one
        for name, one in vars(solution).items()
        if not name.startswith("_") and getattr(one, "__module__", "") == solution.__name__
    ]
    words = [str(inspect.getdoc(one)).split("\n\n")[0] for one in (solution, *own)]
    words[0] = words[0].split(": ", 1)[-1]
    return " ".join(f"{one[0].upper()}{one[1:]}" for one in words)


def _wrong_answers(lesson: str) -> Iterator[str]:
    parts: dict[str, list[tuple[str, Broken]]] = defaultdict(list)
    for (of, name), wrong in ROWS.items():
        if of == lesson:
            parts[wrong.promise].append((name, broken(lesson, name)))
    for promise, found in parts.items():
        names = ", ".join(f"`{name}`" for name, _ in found)
        first = found[0][1]
        look = re.sub(r"in line \d+, ", "in ", first.look)  # of the tests' files
        yield _filled(
            f"- **{_escaped(promise)}**: {names}. *{_escaped(first.did)}* {_escaped(look)}"
        )


def _predictions(lesson: Lesson) -> Iterator[str]:
    for one in lesson.predictions:
        question = lesson.question(one)
        answer = answer_to(one.key)
        reasons = " ".join(f"*{option}*: {why}" for option, why in answer.reasons.items())
        yield _filled(f"- {question} **{answer.truth}**. {reasons}")


def _escaped(text: str) -> str:
    """Return text that Markdown shows as it is, code in backticks included."""
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"[*<\[]|(?<!\w)_|_(?!\w)", r"\\\g<0>", one) for one in pieces[::2]]
    return "`".join(pieces)


def _filled(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(
        text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    main()
