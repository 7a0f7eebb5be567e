"""What all checks share: kept predictions, and a message for every failure of a learner's code."""

import re
import textwrap

import pytest

from authoring.lab import NOTEBOOKS
from checks import check, predict, until
from checks.answer import Answer
from checks.broken import Broken, CommonPromise
from checks.guard import call, is_stub
from checks.judging import judge
from engine.simulation.choice import ChoiceError
from engine.simulation.scenarios import scenario
from visualizer import read
from visualizer.seat.seat import Seat


@pytest.fixture
def when(monkeypatch: pytest.MonkeyPatch) -> str:
    """The key of a question whose answer is 3."""
    reasons = {2: "Two is where it looks as if.", 1: "It is near."}
    answers = {"when": Answer(3, reasons, then="It was late.")}
    monkeypatch.setattr("checks.lesson_04.ANSWERS", answers)
    monkeypatch.delenv("UNDERGLASS_REVEAL", raising=False)
    monkeypatch.setattr("checks.prediction._GUESSES", {})
    return "04.when"


def test_a_guess_is_kept_and_shown_next_to_the_truth_with_its_reason(when: str, capsys) -> None:
    guess = predict(when, "When?", [1, 2, 3])
    guess.answer = 2
    guess.reveal(3)
    said = "Your guess: 2. The log says: 3.\nTwo is where it looks as if.\nIt was late.\n"
    assert capsys.readouterr().out == said
    # Run All runs the cell again: the guess stays.
    again = predict(when, "When?", [1, 2, 3])
    assert again.answer == 2
    again.answer = 3
    again.reveal(3)
    assert capsys.readouterr().out == "Your guess: 3. The log says the same.\nIt was late.\n"


def test_without_a_guess_the_reveal_asks_first_and_answers_the_second_time(
    when: str, capsys
) -> None:
    guess = predict(when, "When?", [1, 2, 3])
    guess.reveal(3)
    asked = capsys.readouterr().out
    assert asked.startswith("No guess recorded.") and "3" not in asked
    guess.reveal(3)
    assert capsys.readouterr().out.splitlines()[:2] == [
        "No guess recorded. The log says: 3.",
        "Many say 2. Two is where it looks as if.",
    ]


def test_a_run_without_a_reader_reveals_at_once(when: str, capsys, monkeypatch) -> None:
    monkeypatch.setenv("UNDERGLASS_REVEAL", "1")
    predict(when, "When?", [1, 2, 3]).reveal(3)
    assert "says: 3" in capsys.readouterr().out


def test_another_value_another_option_or_an_unknown_question_is_an_error(when: str) -> None:
    with pytest.raises(ValueError, match="says 7, and the lesson's answer is 3"):
        predict(when, "When?", [1, 2, 3]).reveal(7)
    with pytest.raises(ValueError, match="choose one of 1, 2, 3"):
        predict(when, "When?", [1, 2, 3]).answer = 4
    for key, options, error, words in (
        (when, [2, 3, 4], ValueError, "not those that its answer explains"),
        (when, [2, 3], ValueError, "three to five"),
        ("04.who", [1, 2, 3], KeyError, r"04\.who.*it has 04\.when"),
        ("99.who", [1, 2, 3], KeyError, "names no lesson"),
    ):
        with pytest.raises(error, match=words):
            predict(key, "Who?", options)


def test_hints_open_one_after_the_other(capsys) -> None:
    def admit(waiting, seats, budget_left, free_blocks, block_size): ...

    check.lesson_04(admit, hint=1)
    first = capsys.readouterr().out
    assert "Hint 1 of 2" in first and "Hint 2" not in first and "not written yet" in first
    check.lesson_04(admit, hint=2)
    assert "Hint 2 of 2" in capsys.readouterr().out
    with pytest.raises(ValueError, match="hint must be from 1 to 2, got 3"):
        check.lesson_04(admit, hint=3)


def part(body: str, head: str = "def part(a)"):
    """A learner's function with this body."""
    space = {"__name__": "a_notebook"}
    exec(f"{head}:\n{textwrap.indent(body, '    ')}", space)
    return space["part"]


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("...", True),
        ('"""What to do."""', True),
        ('"""What to do."""\n...', True),
        ("pass", True),
        ("return None", True),
        ("return []", False),
        ("return 1", False),
        ("b = 1\ndef inner():\n    return b\nreturn inner()", False),
    ],
)
@pytest.mark.parametrize("head", ["def part(a)", "async def part(a)"])
def test_a_stub_is_distinguished_from_written_code(body: str, head: str, answer: bool) -> None:
    assert is_stub(part(body, head)) is answer


class Half:
    def __init__(self) -> None:
        self.free = []

    def allocate(self, n): ...

    def share(self, block):
        self.free.append(block)


FOREVER = "part() was still running after 100,000 lines."
CATCHES = "while True:\n    try:\n        a = a + 1\n    except Exception:\n        a = 0"


@pytest.mark.parametrize(
    ("body", "argument", "said"),
    [
        (CATCHES, 1, FOREVER),
        ("while True:\n    pass", 1, FOREVER),
        ("while True: pass", 1, FOREVER),
        ("return part(a)", 1, "part() called itself until Python gave up."),
        ("raise LookupError", 1, "part() raised LookupError."),
        ("raise SystemExit", 1, "part() raised SystemExit."),
        ("a.append(1)", [], "You changed a: it is [1] now."),
    ],
)
def test_every_failure_of_a_function_becomes_a_message(body: str, argument, said: str) -> None:
    with pytest.raises(Broken) as caught:
        call(part(body), argument)
    assert caught.value.did.startswith(said)
    assert caught.value.look


@pytest.mark.parametrize("given", [5, None, [1, 2], Half()])
def test_a_check_that_gets_an_answer_or_an_object_asks_for_the_function(given) -> None:
    found = judge(given, [1], lambda part, case: None).broken
    assert found is not None and found.promise is CommonPromise.IS_A_PART
    assert repr(given) in found.did


def test_no_lesson_imports_the_solutions_so_that_a_teacher_can_remove_them() -> None:
    files = [*NOTEBOOKS.glob("*.ipynb"), *(NOTEBOOKS / "checks").glob("*.py")]
    assert len(files) > 2 * 14
    assert not any(re.search("(import|from) solutions", one.read_text("utf-8")) for one in files)


def test_the_beginning_of_a_log_ends_with_its_step() -> None:
    log = scenario("continuous_batching").run()
    beginning = until(log, 20)
    assert len(read(beginning).steps) == 20
    assert beginning.state().core() == log.state(len(beginning) - 1).core()
    with pytest.raises(ChoiceError, match="after step 20 is for you to predict"):
        Seat(beginning).decisions(20)
