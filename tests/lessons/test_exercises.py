"""What holds of every exercise: a stub is not yet written, and the smallest cases come first."""

import inspect
from dataclasses import astuple
from importlib import import_module
from typing import Any

import pytest

from checks import check, lesson_00, lesson_03, lesson_08, lesson_09, lesson_11, lesson_14
from checks.broken import CommonPromise
from checks.judging import judge, listed
from engine import Engine
from engine.cluster.prefix_events import PrefixEvents
from engine.cluster.transfer import blocks_to_move
from engine.core.cache.block_pool import BlockPool
from engine.core.cache.radix_tree import RadixTree
from engine.core.compute import truncation
from engine.core.compute.paged_attention import PagedAttention
from engine.core.output.tool_use import ToolUse
from engine.core.scheduling.policies import Fcfs, Priority
from solutions.lesson_08 import pick_budget
from tests.lessons.wrong import LESSONS, made, solution_of
from visualizer import read


def every_goal(pick) -> list[int | None]:
    return [pick(*astuple(goal)) for goal in lesson_08.cases()]


# What a lesson works with until the learner's part passes.
OWN = {
    "lesson_00": lambda own: own is lesson_00.truth,
    "lesson_01": lambda own: own is truncation.truncated_probs,
    "lesson_02": lambda own: own is PagedAttention,
    "lesson_03": lambda own: own is lesson_03.truth,
    "lesson_04": lambda own: type(own) is Fcfs,
    "lesson_05": lambda own: own is BlockPool,
    "lesson_06": lambda own: own is RadixTree,
    "lesson_07": lambda own: own is RadixTree,
    "lesson_08": lambda own: every_goal(own) == every_goal(pick_budget),
    "lesson_09": lambda own: type(own) is Priority,
    "lesson_10": lambda own: own is None,
    "lesson_11": lambda own: own is lesson_11.PlainOutbox,
    "lesson_12": lambda own: own is ToolUse,
    "lesson_13": lambda own: own is None,
    "lesson_14": lambda own: all(own(one.step) == one.logged for one in lesson_14.cases()),
    "lesson_15": lambda own: own is Engine,
    "lesson_16": lambda own: own is Engine,
    "lesson_17": lambda own: own is PrefixEvents,
    "lesson_18": lambda own: own is blocks_to_move,
}


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


@pytest.mark.parametrize("lesson", LESSONS)
def test_an_untouched_stub_counts_as_unwritten_and_the_lesson_uses_its_own(lesson, capsys) -> None:
    part, names = unwritten(lesson, '"""What to write."""')
    assert OWN[lesson](getattr(check, lesson)(part))
    assert f"{listed(names)}: not written yet." in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_part_that_is_not_implemented_counts_as_unwritten(lesson, capsys) -> None:
    part, _ = unwritten(lesson, "raise NotImplementedError")
    assert OWN[lesson](getattr(check, lesson)(part))
    assert "not written yet" in capsys.readouterr().out


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


# What makes a case large, above all.
SIZES = {
    "lesson_00": lambda one: len(one.people),
    "lesson_02": lambda one: sum(one.chunks),
    "lesson_03": lambda one: (one.shape.layers > 2, len(one.rows)),
    "lesson_04": lambda one: len(one.waiting),
    "lesson_05": lambda one: len(one.acts),
    "lesson_06": lambda one: one.blocks * one.size,
    "lesson_07": lambda one: len(one.parents),
    "lesson_08": lambda one: one.decodes,
    "lesson_09": lambda one: len(one.running) if isinstance(one, lesson_09.Shortage) else 9,
    "lesson_10": lambda one: len(one.p) if hasattr(one, "after") else 9 + len(one.drafts),
    "lesson_11": lambda one: len(one.acts),
    "lesson_12": lambda one: len(one.words),
    "lesson_13": lambda one: len(read(one.log).request_rows),
    "lesson_14": lambda one: one.step.head is not None,
    "lesson_15": lambda one: len(one.vocab),
    "lesson_17": lambda one: len(one.sent) if hasattr(one, "sent") else 9,
    "lesson_18": lambda one: (hasattr(one.compute, "step_ms"), one.tokens),
}


@pytest.mark.parametrize("lesson", SIZES)
def test_the_smallest_cases_come_first(lesson: str) -> None:
    sizes = [SIZES[lesson](case) for case in import_module(f"checks.{lesson}").cases()]
    assert sizes == sorted(sizes) and len(set(sizes)) > 1
