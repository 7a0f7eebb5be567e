"""No prediction's answer is visible before its question is answered."""

import copy
from pathlib import Path

import nbformat
import pytest

from authoring.parts import lessons
from authoring.spoilers import hidden, predictions, spoilers
from checks.answer import answer_to
from underglass.workbook import without_answers

MODEL = next(path for path in lessons() if path.name.startswith("04"))


@pytest.mark.parametrize("lesson", lessons(), ids=lambda path: path.stem)
def test_every_question_has_one_answer_and_nothing_gives_it_away(lesson: Path) -> None:
    cells = nbformat.read(lesson, as_version=4).cells
    assert predictions(cells)
    assert list(spoilers(cells)) == []


@pytest.mark.parametrize("lesson", lessons(), ids=lambda path: path.stem)
def test_a_working_copy_has_no_output_from_its_first_question_on(lesson: Path) -> None:
    copied = nbformat.reads(without_answers(lesson), as_version=4).cells
    first = predictions(copied)[0].asked
    assert not any(cell.get("outputs") for cell in copied[first:])
    assert any(cell.get("outputs") for cell in copied[:first])
    stored = nbformat.read(lesson, as_version=4).cells
    assert [cell.source for cell in copied] == [cell.source for cell in stored]


def model():
    """The model lesson's cells, its first question, and that question's answer."""
    cells = copy.deepcopy(nbformat.read(MODEL, as_version=4).cells)
    first = predictions(cells)[0]
    return cells, first, answer_to(first.key).truth


def found(cells) -> str:
    return "\n".join(words for _, words in spoilers(cells))


def test_an_answer_in_the_prose_above_is_found() -> None:
    cells, first, truth = model()
    prose = next(i for i in range(first.asked) if cells[i].cell_type == "markdown")
    cells[prose].source += f"\n\nIt is step {truth}."
    assert f"its prose has {truth}" in found(cells)
    cells[prose].metadata.tags.append(f"says-{first.key}")
    assert found(cells) == ""


def test_an_answer_in_an_output_above_is_found() -> None:
    cells, first, truth = model()
    code = next(i for i in range(first.asked) if cells[i].cell_type == "code")
    cells[code].outputs.append(nbformat.v4.new_output("stream", text=f"step {truth}\n"))
    assert f"its output has {truth}" in found(cells)


def test_an_answer_in_code_below_the_question_is_found() -> None:
    cells, first, truth = model()
    run = next(i for i in range(first.asked + 1, first.answered) if cells[i].cell_type == "code")
    cells[run].source += f"\nassert step == {truth}"
    assert f"its code has {truth}" in found(cells)


def test_an_output_between_a_question_and_its_answer_is_found() -> None:
    cells, first, _ = model()
    run = next(i for i in range(first.asked + 1, first.answered) if cells[i].cell_type == "code")
    cells[run].outputs.append(nbformat.v4.new_output("stream", text="anything\n"))
    assert "an output is stored" in found(cells)
    assert run in hidden(cells)


def test_a_picture_of_the_whole_run_before_the_question_is_found() -> None:
    cells, first, _ = model()
    code = next(i for i in range(first.asked) if cells[i].cell_type == "code")
    cells[code].source += "\nshow(static, step=20)"
    assert "it draws all of `static`" in found(cells)


def test_a_question_without_an_answer_is_found() -> None:
    cells, first, _ = model()
    del cells[first.answered]
    assert "predictions have" in found(cells)
