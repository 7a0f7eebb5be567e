"""The learner's copies: made once, kept, and never overwritten."""

from collections.abc import Callable
from pathlib import Path

import pytest

from authoring import workbook
from authoring.parts import lessons
from authoring.workbook import update

LESSON = next(path for path in lessons() if path.name.startswith("04"))


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """One short lesson. Calling it changes the lesson's text."""
    texts = {"now": "first"}
    monkeypatch.setattr(workbook, "lessons", lambda: [LESSON])
    monkeypatch.setattr(workbook, "CONTENTS", LESSON.with_name("contents.ipynb"))
    monkeypatch.setattr(workbook, "without_answers", lambda lesson: texts["now"])

    def change(text: str) -> None:
        texts["now"] = text

    return change


def test_a_second_update_changes_nothing(tmp_path: Path) -> None:
    update(tmp_path / "workbook")
    before = {path.name: path.read_bytes() for path in (tmp_path / "workbook").iterdir()}
    assert update(tmp_path / "workbook") == []
    assert {path.name: path.read_bytes() for path in (tmp_path / "workbook").iterdir()} == before
    assert {path.name for path in lessons()} < set(before)


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
    with pytest.raises(SystemExit, match="FRESH=99 names no lesson; choose one of 00, 01"):
        update(tmp_path, fresh="99")
