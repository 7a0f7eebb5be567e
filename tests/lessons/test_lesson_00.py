"""Lesson 00's exercise: right readings of a log are accepted."""

import pytest

from checks import check, lesson_00
from engine.simulation.scenarios import scenario
from solutions.lesson_00 import first_token_steps as solution
from visualizer import read

OWN = lesson_00.truth


def size(one):
    return len(one.people)


def with_pandas(log):
    return read(log).tokens.groupby("request").step.min().to_dict()


def from_request_rows(log):
    steps = {row.request: row.first_token_step for row in read(log).request_rows}
    return {request: step for request, step in steps.items() if step is not None}


@pytest.mark.parametrize("right", [solution, with_pandas, from_request_rows])
def test_every_right_reading_is_accepted_and_reads_the_lessons_log(right, capsys) -> None:
    assert check.lesson_00(right) is right
    assert f"{right.__name__}() keeps its promises in all 48 cases" in capsys.readouterr().out
    assert right(scenario("first_look").run()) == {1: 1, 2: 2, 3: 3, 4: 7, 5: 10}
