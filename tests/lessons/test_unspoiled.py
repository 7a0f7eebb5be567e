"""No prediction's answer is visible before its question is answered."""

import copy
from pathlib import Path

import nbformat
import pytest

from authoring.parts import hidden, lessons, predictions
from authoring.rules import spoilers
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
    """The model lesson's cells and its first question."""
    cells = copy.deepcopy(nbformat.read(MODEL, as_version=4).cells)
    return cells, predictions(cells)[0]


def found(cells) -> str:
    return "\n".join(words for _, words in spoilers(cells))


def say(cells, place: int, words: str) -> None:
    cells[place].source += f"\n\n{words}"


def put_out(cells, place: int, words: str) -> None:
    cells[place].outputs.append(nbformat.v4.new_output("stream", text=f"{words}\n"))


@pytest.mark.parametrize(
    ("kind", "below", "change", "words", "said"),
    [
        ("markdown", False, say, "It is step {}.", "its prose has {}"),
        ("code", False, put_out, "step {}", "its output has {}"),
        ("code", False, say, "show(static, step=20)", "it draws all of `static`"),
        ("code", True, say, "assert step == {}", "its code has {}"),
        ("code", True, put_out, "anything", "an output is stored"),
    ],
)
def test_an_answer_before_the_reveal_is_found(kind, below, change, words, said) -> None:
    cells, first = model()
    span = range(first.asked + 1, first.answered) if below else range(first.asked)
    place = next(i for i in span if cells[i].cell_type == kind)
    truth = answer_to(first.key).truth
    change(cells, place, words.format(truth))
    assert said.format(truth) in found(cells)
    assert (place in hidden(cells)) is below
    cells[place].metadata.tags.append(f"says-{first.key}")
    assert kind == "code" or found(cells) == ""


def test_a_question_without_an_answer_is_found() -> None:
    cells, first = model()
    del cells[first.answered]
    assert "predictions have" in found(cells)
