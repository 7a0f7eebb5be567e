"""predict(): the answers are those of the log, and the page does not have them before the reveal."""

import base64
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from tests.engine.workloads import random_log
from tests.facts import assert_names, raises_naming
from visualizer import predict
from visualizer.predicting.asking import KINDS
from visualizer.predicting.prediction import Prediction
from visualizer.predicting.questions import questions


def step_events(log: EventLog, index: int) -> Iterator[v.Event]:
    for event in log[index + 1 :]:
        if isinstance(event, v.StepStarted):
            return
        yield event


def expected(log: EventLog, index: int, kind: str, about: int | None) -> tuple[int, ...]:
    """The answer, counted from the raw events."""
    events = list(step_events(log, index))
    rows = [row for e in events if isinstance(e, v.StepScheduled) for row in e.rows]
    admitted = [e for e in events if isinstance(e, v.Admitted)]
    size = next(e.settings["block_size"] for e in log if isinstance(e, v.RunStarted))
    match kind:
        case "preempted":
            return tuple(sorted({e.request for e in events if isinstance(e, v.Preempted)}))
        case "admitted":
            return tuple(sorted({e.request for e in admitted}))
        case "blocked":
            return (int(any(e.request == about for e in admitted)),)
        case "hit":
            return (next(size * len(e.blocks) for e in admitted if e.request == about),)
        case "tokens":
            return (next(row.count for row in rows if row.request == about),)
        case "scheduled":
            return tuple(sorted(row.request for row in rows))
    gone = {e.node for e in events if isinstance(e, v.RadixEvicted) and e.reason == "room"}
    return tuple(sorted(gone))


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_is_what_the_log_says(kind):
    asked = 0
    for seed in range(25):
        log = random_log(seed)
        for question in questions(log, most=4, seed=seed, kinds=[kind]):
            assert question.kind == kind
            answer = expected(log, question.index, kind, question.about)
            assert question.answer == answer, (seed, question)
            assert question.explanation(log), (seed, question)
            if question.choices:
                assert set(answer) <= set(question.choices)
                assert len(set(question.choices)) == len(question.choices)
            asked += 1
    assert asked >= 10


def test_questions_are_spread_over_the_log_and_over_the_kinds(log):
    asked = questions(log, most=5)
    steps = [question.step for question in asked]
    assert len(asked) == 5
    assert steps == sorted(set(steps))
    assert steps[0] < 20 < 30 < steps[-1]
    assert len({question.kind for question in asked}) >= 4


def test_equal_seeds_ask_the_same_and_others_do_not(log):
    assert questions(log, seed=3) == questions(log, seed=3)
    assert any(questions(log, seed=seed) != questions(log, seed=0) for seed in range(1, 6))


def page_of(game: Prediction) -> tuple[bytes, str]:
    """Return what a page gets: the unpacked log, and the rest of the state as text."""
    state: dict[str, Any] = game.game.get_state()
    logs = gzip.decompress(base64.b64decode(state.pop("log")))
    own = game.get_state(["kind", "game"])  # the rest is module and layout
    return logs, json.dumps([state, own])


@pytest.mark.parametrize("seed", range(3))
def test_before_the_reveal_no_later_event_and_no_answer_is_in_the_state(log, seed):
    game = predict(log, questions=6, seed=seed)
    for number, question in enumerate(game.game.questions):
        so_far, rest = page_of(game)
        assert so_far == b"".join(log.to_bytes().splitlines(keepends=True)[: question.index])
        shown = json.loads(rest)[0]
        assert set(shown["question"]) == {
            "number", "of", "kind", "step", "words", "form", "choices", "texts", "unit", "about",
        }  # fmt: skip
        assert shown["verdict"] == {}
        assert shown["question"]["choices"] == sorted(shown["question"]["choices"])
        to_come = log.to_bytes().decode().splitlines()[question.index :]
        assert not any(line in rest for line in to_come)
        if question.form == "number":
            assert str(question.answer[0]) not in "".join(map(str, question.words[1:]))
        game.answer(question.answer)
        so_far, rest = page_of(game)
        assert f'"step":{question.step}}}' in so_far.decode()
        assert json.loads(rest)[0]["verdict"]["right"] is True
        game.next()
        assert game.game.turn == number + 1
    assert gzip.decompress(base64.b64decode(game.game.log)) == log.to_bytes()
    assert game.score == len(game.game.questions)


def test_anywidgets_own_model_never_changes(log):
    # On a busy page it hears nothing from the kernel, so changes belong in the game's model.
    game = predict(log, questions=1)
    before = game.get_state()
    game.answer(game.game.questions[0].answer)
    game.next()
    assert game.get_state() == before


def test_a_wrong_answer_gets_the_reason_from_the_log(log):
    game = predict(log, questions=1, kinds=["preempted"])
    assert_names(repr(game), "Prediction", 1, 0)
    why = game.answer([1])
    assert_names(why, "r8", "r6", "none", "Fcfs")
    assert game.score == 0
    [answered] = game.answers
    assert_names(answered.pop("question"), 30)
    assert answered == {"answer": ["r8"], "given": ["r1"], "right": False, "why": why}
    assert_names(repr(game), "Prediction", 1, 0)


def test_a_question_counts_once_whatever_a_page_sends(log):
    game = predict(log, questions=3)
    game.game.given = {"number": 1, "value": [0]}
    game.game.given = {"number": 0, "value": "nonsense"}
    game.game.given = {"nonsense": True}
    game.game.turn = 2
    assert (game.game.turn, game.score, game.answers) == (0, 0, [])
    right = list(game.game.questions[0].answer)
    game.game.given = {"number": 0, "value": [*right, 999]}
    game.game.given = {"number": 0, "value": right}
    assert (game.score, len(game.answers)) == (0, 1)
    with pytest.raises(ValueError):
        game.answer(right)


def test_a_log_without_decisions_says_so_and_unknown_kinds_are_rejected(log):
    header = log.to_bytes().splitlines(keepends=True)[0]
    game = predict(header)
    assert game.game.questions == []
    assert_names(repr(game), "Prediction")
    assert game.game.question == {"number": 0, "of": 0}
    with raises_naming(ValueError, "kinds", "guess", *KINDS):
        predict(log, kinds=["guess"])
    with raises_naming(ValueError, "questions", 1, 0):
        predict(log, questions=0)


def test_a_window_can_be_asked_about(log):
    start = next(
        i for i, event in enumerate(log) if isinstance(event, v.StepStarted) and event.step == 20
    )
    window = EventLog.from_events([log.state(start - 1).keyframe(), *log[start:]])
    asked = questions(window, most=3, kinds=["preempted"])
    assert [question.answer for question in asked] == [(8,)]
