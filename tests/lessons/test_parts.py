"""Every lesson has its parts, in order, and keeps to the course's rules."""

import copy
from pathlib import Path

import nbformat
import pytest

from authoring.contents import CONTENTS, contents
from authoring.parts import ORDER, lessons, part_of
from tests.lessons.rules import problems

MODEL = next(path for path in lessons() if path.name.startswith("04"))


@pytest.mark.parametrize("lesson", lessons(), ids=lambda path: path.stem)
def test_a_lesson_is_as_it_should_be(lesson: Path) -> None:
    assert problems(lesson) == []


def test_the_contents_list_every_lesson_with_its_question_and_file() -> None:
    stored = nbformat.read(CONTENTS, as_version=4)
    assert stored == nbformat.from_dict(contents()), "run `make contents`"


def of_part(notebook, part: str, kind: str = "markdown"):
    return next(c for c in notebook.cells if part_of(c) == part and c.cell_type == kind)


def drop(part: str):
    def change(notebook) -> None:
        notebook.cells = [cell for cell in notebook.cells if part_of(cell) != part]

    return change


def swap(notebook) -> None:
    change = next(i for i, c in enumerate(notebook.cells) if part_of(c) == "change")
    notebook.cells.insert(0, notebook.cells.pop(change))


def add(part: str, words: str, kind: str = "markdown"):
    def change(notebook) -> None:
        of_part(notebook, part, kind).source += f"\n\n{words}"

    return change


def untag(notebook) -> None:
    notebook.cells[3].metadata = {}


def lose_pictures(notebook) -> None:
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("image/png", None)


def keep_widgets(notebook) -> None:
    data = of_part(notebook, "hook", "code").outputs[0].data
    data["application/vnd.jupyter.widget-view+json"] = {"model_id": "1"}


def forget_the_output(notebook) -> None:
    of_part(notebook, "change", "code").execution_count = None


def another_kernel(notebook) -> None:
    notebook.metadata.kernelspec.name = "my-env"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *[(drop(part), f"no {part}") for part in ORDER if part != "hook"],
        (swap, "first appear in another order"),
        (untag, "give it exactly one of"),
        (add("look", "It is simply so."), 'it says "simply"'),
        (add("look", "Word " * 90), "at most 90"),
        (add("look", "There were 977 of them."), "977 is in no output"),
        (add("look", "See [there](../nowhere.md)."), "../nowhere.md leads to no file"),
        (add("look", "See [these](solutions/)."), "solutions/ leads to no file"),
        (add("look", "[**wibble**](../docs/glossary.md)"), '"wibble" is not in docs/glossary.md'),
        (add("look", "[**batch**](../docs/glossary.md)"), '"batch" is introduced twice'),
        (add("look", "[**seat**](../docs/glossary.md) " * 2), "here: ["),
        (add("run", "assert read(log).requests.ttft_ms[1] < 20", "code"), "it asserts a time"),
        (add("run", "x = 1\n" * 16, "code"), "at most 15"),
        (lose_pictures, "no stored output has a picture"),
        (keep_widgets, "a widget's reference is stored"),
        (forget_the_output, "it has not been run"),
        (another_kernel, "metadata are not"),
    ],
)
def test_what_is_missing_or_wrong_is_said(change, said: str, tmp_path: Path) -> None:
    notebook = copy.deepcopy(nbformat.read(MODEL, as_version=4))
    change(notebook)
    path = tmp_path / MODEL.name
    nbformat.write(notebook, path)
    assert said in "\n".join(problems(path))
