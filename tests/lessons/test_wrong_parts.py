"""Every check rejects plausible wrong parts: it names the broken promise, the case and where to look.

`wrong/lesson_NN.py` has the wrong parts of a lesson; tests/snapshots/hints.txt pins the messages.
"""

import re
from collections.abc import Callable

import pytest

from authoring.guide import GUIDE, guide
from solutions.wrong import ROWS, broken, verdict


@pytest.mark.parametrize(("lesson", "name"), ROWS, ids=map("-".join, ROWS))
def test_a_wrong_part_is_rejected_for_the_promise_that_it_breaks(lesson: str, name: str) -> None:
    found = broken(lesson, name)
    assert found.promise is ROWS[lesson, name].promise
    message = " ".join(str(verdict(lesson, name)).split())
    assert verdict(lesson, name).case
    assert all(words in message for words in (found.did, found.promise, found.look))


def test_the_messages_of_all_wrong_parts(snapshot: Callable[[str, str], None]) -> None:
    lines = []
    for lesson, name in ROWS:
        message = " ".join(str(verdict(lesson, name)).split())
        message = re.sub(r"in line \d+", "in line N", message)  # lines of the changed solutions
        lines.append(f"{lesson} {name}: {message}\n")
    snapshot("hints", "".join(lines))


def test_the_solutions_guide_is_that_of_today() -> None:
    assert GUIDE.read_text("utf-8") == guide(), "run `make solutions`"
