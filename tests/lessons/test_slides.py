"""The slides of a session: every question before its answer, and every picture beside the deck."""

import re
from pathlib import Path

import pytest

from authoring import slides
from authoring.parts import lessons
from authoring.slides import Lesson
from checks.answer import answer_to

DECKS = [number for _, numbers in slides.SESSIONS.values() for number in numbers]


def test_the_decks_have_all_lessons_once() -> None:
    assert sorted(DECKS) == [path.name[:2] for path in lessons()]


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
def test_a_lesson_makes_slides(path: Path, tmp_path: Path) -> None:
    lesson = Lesson(path)
    made = list(lesson.slides(tmp_path))
    assert [one for one in made if "_class: question" in one]
    drawn = [name for one in made for name in re.findall(r"!\[w:\d+\]\((.+?)\)", one)]
    assert sorted(drawn) == sorted(file.name for file in tmp_path.iterdir())
    assert not any("](../" in one or ".ipynb)" in one for one in made)
    asked = [index for index, one in enumerate(made) if "## Predict" in one]
    assert len(asked) == len(lesson.predictions)
    for index, one in zip(asked, lesson.predictions, strict=True):
        answer = answer_to(one.key)
        for reason in answer.reasons.values():
            assert reason not in made[index]
            assert reason in made[index + 1]
