"""Every check rejects plausible wrong parts: it names the broken promise, the case and where to look.

`wrong/lesson_NN.py` has the wrong parts of a lesson; tests/snapshots/hints.txt pins their hints.
"""

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from checks.broken import Broken
from checks.judging import Verdict, judge
from tests.facts import assert_names

LESSONS = sorted(path.stem for path in (Path(__file__).parent / "wrong").glob("lesson_*.py"))
# Rows of (lesson, number of the part, part, promise, facts).
ROWS = [
    (lesson, number, *row)
    for lesson in LESSONS
    for number, row in enumerate(import_module(f"tests.lessons.wrong.{lesson}").WRONG)
]


@cache
def verdict(lesson: str, number: int) -> Verdict:
    """The check's verdict on a wrong part."""
    wrong, checks = (
        import_module(f"tests.lessons.wrong.{lesson}"),
        import_module(f"checks.{lesson}"),
    )
    cases = getattr(wrong, "CASES", None) or checks.cases()
    return judge(wrong.WRONG[number][0], cases, checks.attempt)


def broken(lesson: str, number: int) -> Broken:
    found = verdict(lesson, number).broken
    assert found is not None, "the check accepts it"
    return found


@pytest.mark.parametrize(
    ("lesson", "number", "part", "promise", "facts"),
    ROWS,
    ids=[f"{lesson}-{part.__name__}" for lesson, _, part, *_ in ROWS],
)
def test_a_wrong_part_is_rejected_for_the_promise_that_it_breaks(
    lesson: str, number: int, part: Any, promise: str, facts: list[object]
) -> None:
    found = broken(lesson, number)
    assert found.promise is promise
    message = " ".join(str(verdict(lesson, number)).split())
    assert_names(message, *facts)
    assert verdict(lesson, number).case
    assert all(words in message for words in (found.did, found.promise, found.look))


def test_the_hints_of_all_wrong_parts(snapshot: Callable[[str, str], None]) -> None:
    lines = []
    for lesson, number, part, *_ in ROWS:
        found = broken(lesson, number)
        look = re.sub(r"in line \d+", "in line N", found.look)  # lines of the files in wrong/
        lines.append(f"{lesson} {part.__name__}: {found.promise.name}. {look}\n")
    snapshot("hints", "".join(lines))
