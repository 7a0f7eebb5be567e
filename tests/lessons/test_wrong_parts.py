"""Every check rejects plausible wrong parts: it names the broken promise, the case and where to look.

`wrong/lesson_NN.py` has the wrong parts of a lesson; tests/snapshots/hints.txt pins their hints.
"""

import re
from collections.abc import Callable

import pytest

from authoring.solutions import GUIDE, guide
from tests.facts import assert_names
from tests.lessons.wrong import ROWS, broken, verdict


@pytest.mark.parametrize(("lesson", "name"), ROWS, ids=map("-".join, ROWS))
def test_a_wrong_part_is_rejected_for_the_promise_that_it_breaks(lesson: str, name: str) -> None:
    found, wrong = broken(lesson, name), ROWS[lesson, name]
    assert found.promise is wrong.promise
    message = " ".join(str(verdict(lesson, name)).split())
    assert_names(message, *wrong.facts)
    assert verdict(lesson, name).case
    assert all(words in message for words in (found.did, found.promise, found.look))


def test_the_hints_of_all_wrong_parts(snapshot: Callable[[str, str], None]) -> None:
    lines = []
    for lesson, name in ROWS:
        found = broken(lesson, name)
        look = re.sub(r"in line \d+", "in line N", found.look)  # lines of the changed solutions
        lines.append(f"{lesson} {name}: {found.promise.name}. {look}\n")
    snapshot("hints", "".join(lines))


def test_the_solutions_guide_is_that_of_today() -> None:
    assert GUIDE.read_text("utf-8") == guide(), "run `make solutions`"
