"""Every lesson has its parts, in order, and keeps to the course's rules."""

import copy
from pathlib import Path

import nbformat
import pytest

from authoring.contents import CONTENTS, contents
from authoring.parts import ORDER, lessons, part_of
from authoring.rules import problems

MODEL = next(path for path in lessons() if path.name.startswith("04"))


@pytest.mark.parametrize("lesson", lessons(), ids=lambda path: path.stem)
def test_a_lesson_is_as_it_should_be(lesson: Path) -> None:
    assert problems(lesson) == []


def test_the_contents_list_every_lesson_with_its_question_and_file() -> None:
    stored = nbformat.read(CONTENTS, as_version=4)
    assert stored == nbformat.from_dict(contents()), "run `make contents`"


def model():
    return copy.deepcopy(nbformat.read(MODEL, as_version=4))


def said(notebook, folder: Path) -> str:
    nbformat.write(notebook, folder / MODEL.name)
    return "\n".join(problems(folder / MODEL.name))


@pytest.mark.parametrize("part", [part for part in ORDER if part != "hook"])
def test_a_missing_part_is_named(part: str, tmp_path: Path) -> None:
    notebook = model()
    notebook.cells = [cell for cell in notebook.cells if part_of(cell) != part]
    assert f"no {part}" in said(notebook, tmp_path)


def test_parts_in_another_order_are_listed(tmp_path: Path) -> None:
    notebook = model()
    change = next(i for i, cell in enumerate(notebook.cells) if part_of(cell) == "change")
    notebook.cells.insert(0, notebook.cells.pop(change))
    assert "first appear in another order" in said(notebook, tmp_path)


def test_everything_that_is_wrong_is_named(tmp_path: Path) -> None:
    notebook = model()
    parts = {(part_of(cell), cell.cell_type): cell for cell in reversed(notebook.cells)}
    look, run, hook = parts["look", "markdown"], parts["run", "code"], parts["hook", "code"]
    look.source += " It is simply so. There were 977 of them. " + "Word " * 90
    look.source += " See [there](../nowhere.md) and [these](solutions/)."
    for word in ("wibble", "batch", "seat", "seat"):
        look.source += f" [**{word}**](../docs/glossary.md)"
    hook.source += "\nx = 1"
    run.source += "\nassert read(log).requests.ttft_ms[1] < 20" + "\nx = 1" * 16
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("image/png", None)
    hook.outputs[0].data["application/vnd.jupyter.widget-view+json"] = {"model_id": "1"}
    parts["change", "code"].execution_count = None
    notebook.cells[3].metadata = {}
    notebook.cells[1].source = "What now?"
    notebook.metadata.kernelspec.name = "my-env"
    found = said(notebook, tmp_path)
    for words in (
        *("give it exactly one of", "at most 90", 'it says "simply"', "977 is in no output"),
        *("../nowhere.md leads to no file", "solutions/ leads to no file", "here: ["),
        *('"wibble" is not in docs/glossary.md', '"batch" is introduced twice'),
        *("it asserts a time", "at most 15", "no stored output has a picture"),
        *("a widget's reference is stored", "it has not been run", "metadata are not"),
        *("cell 1 is not the question", "cell 2 is not the first picture"),
    ):
        assert words in found
