"""The learner's copies: made once, kept, and never overwritten."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from authoring.lab import NOTEBOOKS
from authoring.parts import lessons
from underglass import workbook
from underglass.workbook import READING, root_of, update

LESSON = next(path for path in lessons() if path.name.startswith("04"))


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """One short lesson. Calling it changes the lesson's text."""
    texts = {"now": "first"}
    monkeypatch.setattr(workbook, "_notebooks", lambda: [LESSON])
    monkeypatch.setattr(workbook, "_for_folder", lambda lesson, folder: texts["now"])

    def change(text: str) -> None:
        texts["now"] = text

    return change


def test_an_untouched_copy_follows_its_lesson(tmp_path: Path, course) -> None:
    update(tmp_path)
    course("second")
    assert f"{LESSON.name}: brought up to date" in update(tmp_path)
    assert (tmp_path / LESSON.name).read_text() == "second"
    assert not list(tmp_path.glob("*.new.ipynb"))


def test_work_is_never_overwritten(tmp_path: Path, course) -> None:
    mine, new = tmp_path / LESSON.name, tmp_path / f"{LESSON.stem}.new.ipynb"
    update(tmp_path)
    mine.write_text("mine")
    assert update(tmp_path) == []  # the lesson has not changed
    course("second")
    assert new.name in update(tmp_path)[0]
    assert (mine.read_text(), new.read_text()) == ("mine", "second")
    assert update(tmp_path) == []  # said once
    new.write_text("mine as well")
    course("third")
    assert new.name in update(tmp_path)[0]
    assert (mine.read_text(), new.read_text()) == ("mine", "mine as well")


def test_fresh_puts_the_learners_file_aside(tmp_path: Path, course) -> None:
    mine = tmp_path / LESSON.name
    update(tmp_path)
    for text, kept in (("mine", ".old.ipynb"), ("mine again", ".old2.ipynb")):
        mine.write_text(text)
        update(tmp_path, fresh="04")
        assert mine.read_text() == "first"
        assert (tmp_path / f"{LESSON.stem}{kept}").read_text() == text


def test_fresh_for_a_lesson_that_does_not_exist_names_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"fresh must be .* 00, 01, .*; got '99'"):
        update(tmp_path, fresh="99")


def test_links_lead_to_files_in_a_clones_working_copy_and_in_any_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone's copy links to the clone; JupyterLab shows no file outside the folder it opens."""
    clone = tmp_path / "clone"
    (clone / "notebooks").mkdir(parents=True)
    shutil.copy(LESSON, clone / "notebooks")
    for name in set(links(LESSON)):
        (clone / "notebooks" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(NOTEBOOKS / name, clone / "notebooks" / name)
    monkeypatch.setattr(workbook, "LESSONS", clone / "notebooks")
    for folder, root in ((clone / "workbook", clone), (tmp_path / "mine", tmp_path / "mine")):
        update(folder)
        assert root_of(folder) == root
        found = links(folder / LESSON.name)
        assert len(found) == len(links(LESSON)) > 3
        for link in found:
            assert (folder / link).resolve().is_relative_to(root)
            assert (folder / link).is_file()
    assert not (clone / "workbook" / READING).exists()


def links(notebook: Path) -> list[str]:
    """The relative links in a notebook's prose."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    found = [link for text in prose for link in re.findall(r"\]\(([^)#\s]+)", text)]
    return [link for link in found if not link.startswith(("http", "attachment"))]
