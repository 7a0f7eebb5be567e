"""The recorded wrong answers: plausible parts, and the check's verdict on each.

`lesson_NN.py` has `WRONG`, a list of (part, promise that it breaks, facts of the message).
"""

from functools import cache
from importlib import import_module
from pathlib import Path

from checks.broken import Broken
from checks.judging import Verdict, judge

LESSONS = sorted(path.stem for path in Path(__file__).parent.glob("lesson_*.py"))
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
    assert found is not None, f"the check of {lesson} accepts wrong part {number}"
    return found
