"""What holds of every exercise: a stub is not yet written, and the smallest cases come first."""

import inspect
from importlib import import_module
from typing import Any

import pytest

from checks import check
from checks.broken import CommonPromise
from checks.judging import judge, listed
from solutions.wrong import LESSONS, made, solution_of


def own_tests(lesson: str) -> Any:
    """The lesson's own tests, with `OWN`, its part or the part's class, and the `size` of a case."""
    return import_module(f"tests.lessons.test_{lesson}")


def unwritten(lesson: str, body: str) -> tuple[Any, list[str]]:
    """A part whose functions have this body, and their names."""
    solution = solution_of(lesson)
    if not inspect.isclass(solution):
        return made(lesson, "stub", body), ["stub"]
    code, names = "", []
    for name, method in vars(solution).items():
        if inspect.isfunction(method) and name != "__init__":
            kind = "async def" if inspect.iscoroutinefunction(method) else "def"
            given = ", ".join(inspect.signature(method).parameters)
            code += f"{kind} {name}({given}):\n    {body}\n"
            names.append(name)
    return made(lesson, "Stub", code), names


@pytest.mark.parametrize("body", ['"""What to write."""', "raise NotImplementedError"])
@pytest.mark.parametrize("lesson", LESSONS)
def test_a_stub_counts_as_unwritten_and_the_lesson_uses_its_own(lesson, body, capsys) -> None:
    part, names = unwritten(lesson, body)
    own = getattr(check, lesson)(part)
    assert own_tests(lesson).OWN in (own, type(own))
    said = " ".join(capsys.readouterr().out.split())
    assert "not written yet" in said
    assert "raise" in body or f"{listed(names)}: not written yet." in said


@pytest.mark.parametrize(
    ("body", "promise"),
    [("raise LookupError", CommonPromise.ANSWERS), ("while True: pass", CommonPromise.ENDS)],
)
@pytest.mark.parametrize("lesson", LESSONS)
def test_every_exercise_survives_a_part_that_raises_or_never_ends(lesson, body, promise) -> None:
    part, _ = unwritten(lesson, body)
    exercise = import_module(f"checks.{lesson}")
    found = judge(part, exercise.cases(), exercise.attempt).broken
    assert found is not None and found.promise is promise
    assert "in line" in found.look and body in found.look


@pytest.mark.parametrize("lesson", [one for one in LESSONS if hasattr(own_tests(one), "size")])
def test_the_smallest_cases_come_first(lesson: str) -> None:
    sizes = [own_tests(lesson).size(case) for case in import_module(f"checks.{lesson}").cases()]
    assert sizes == sorted(sizes) and len(set(sizes)) > 1
