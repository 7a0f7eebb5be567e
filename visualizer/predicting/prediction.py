"""Predict, then look: the page shows a log up to a decision and asks what comes next.

    from visualizer import predict
    game = predict(log)
    game.score, game.answers

The browser cannot reveal the answer early, because it only has the log up to the question. The kernel
has the whole log: it checks the reader's answer and then sends the step. For the same reason a
prediction cannot be exported to a file. Without a kernel, nothing could check the answer.
"""

import base64
from collections.abc import Sequence
from typing import Any

import anywidget
import ipywidgets
import traitlets

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from visualizer.html import MODULE
from visualizer.logs import LogLike, part_of, read_log
from visualizer.packed import pack
from visualizer.predicting.asking import KINDS, Question
from visualizer.predicting.questions import questions
from visualizer.reading.messages import Words, count
from visualizer.reading.story import names_of, plain

MAX_EVENTS = 20_000  # sent to the page; a keyframe replaces older events


class Game(ipywidgets.Widget):  # type: ignore[misc]
    """State shared by the kernel and the page: questions, answers and the visible part of the log.

    This is an ipywidgets.Widget because an anywidget gets no messages from the kernel if the page is
    too busy to start it within two seconds.
    """

    log = traitlets.Unicode().tag(sync=True)  # packed, base64; JupyterLab cannot save bytes
    question = traitlets.Dict().tag(sync=True)
    verdict = traitlets.Dict().tag(sync=True)
    score = traitlets.Int(0).tag(sync=True)
    # Set by the browser: {"number": question number, "value": [...]}, and the next question's number.
    given = traitlets.Dict().tag(sync=True)
    turn = traitlets.Int(0).tag(sync=True)

    def __init__(self, log: LogLike, count: int, seed: int, kinds: Sequence[str]) -> None:
        self._events = read_log(log)
        self._names = names_of(self._events)
        self.questions = questions(self._events, count, seed, kinds)
        self.answers: list[dict[str, Any]] = []
        super().__init__(**self._state_before(0))

    @traitlets.observe("given")
    def _check_answer(self, change: Any) -> None:
        """Check the reader's answer and show the step."""
        number, value = change.new.get("number"), change.new.get("value")
        # Accept only one answer per question, whatever the page sends.
        if number != self.turn or number != len(self.answers) or number >= len(self.questions):
            return
        if not isinstance(value, list) or not all(isinstance(one, int) for one in value):
            return
        question = self.questions[number]
        right = tuple(sorted(set(value))) == question.answer
        why = question.explanation(self._events)
        self.answers.append(
            {
                "question": plain(question.words, self._names),
                "answer": self._python_value(question, question.answer),
                "given": self._python_value(question, tuple(value)),
                "right": right,
                "why": " ".join(plain(line, self._names) for line in why),
            }
        )
        with self.hold_sync():
            self.score += right
            self.log = self._packed_until(_next_step(self._events, question.index + 1))
            self.verdict = {
                "number": number,
                "right": right,
                "answer": list(question.answer),
                "words": _answer_words(question),
                "why": why,
            }

    @traitlets.observe("turn")
    def _on_turn(self, change: Any) -> None:
        """Ask the next question if the current one has been answered."""
        if change.new != len(self.answers):
            self.turn = change.old
            return
        with self.hold_sync():
            for name, value in self._state_before(change.new).items():
                setattr(self, name, value)

    def _state_before(self, number: int) -> dict[str, Any]:
        """Return what the page may know before a question; after the last one, the whole log."""
        total = len(self.questions)
        shown: dict[str, Any] = {"number": number, "of": total}
        end = len(self._events)
        if number < total:
            question = self.questions[number]
            end = question.index
            fields = ("kind", "step", "words", "form", "choices", "texts", "unit", "about")
            values = {name: getattr(question, name) for name in fields}
            shown |= values | {"choices": [*question.choices], "texts": [*question.texts]}
        return {"log": self._packed_until(end), "question": shown, "verdict": {}}

    def _packed_until(self, end: int) -> str:
        """Return the events before index `end`, packed, in base64. A long log is cut at its start."""
        begin = _next_step(self._events, end - MAX_EVENTS) if end > MAX_EVENTS else 0
        return base64.b64encode(pack(part_of(self._events, begin, end))).decode()

    def _python_value(self, question: Question, value: tuple[int, ...]) -> Any:
        """Return an answer in the form used by `Prediction.answers`."""
        if question.form == "requests":
            return [self._names.get(id_, f"r{id_}") for id_ in sorted(value)]
        if question.form == "prefixes":
            return sorted(value)
        if question.form == "yes":
            return bool(value and value[0])
        return value[0] if value else None


class Prediction(anywidget.AnyWidget):
    """A widget that asks questions about a log, one after another."""

    _esm = MODULE
    kind = traitlets.Unicode("predict").tag(sync=True)
    game = traitlets.Instance(Game).tag(sync=True, **ipywidgets.widget_serialization)

    def __init__(
        self, log: LogLike, count: int = 5, seed: int = 0, kinds: Sequence[str] = KINDS
    ) -> None:
        super().__init__(game=Game(log, count, seed, kinds))

    @property
    def score(self) -> int:
        """The number of correct answers so far."""
        return int(self.game.score)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The answered questions, each with the keys question, answer, given, right and why."""
        return list(self.game.answers)

    def answer(self, value: int | bool | Sequence[int]) -> str:
        """Answer the question from Python with request ids, a number, or True or False.

        Returns the explanation. Raises ValueError if there is no open question.
        """
        game = self.game
        if len(game.answers) > game.turn or game.turn >= len(game.questions):
            raise ValueError("there is no open question: call next() or start over with predict()")
        chosen = [int(value)] if isinstance(value, int) else [int(one) for one in value]
        game.given = {"number": game.turn, "value": chosen}
        return str(game.answers[-1]["why"])

    def next(self) -> None:
        """Move on to the next question."""
        self.game.turn += 1

    def __repr__(self) -> str:
        if not self.game.questions:
            return "Prediction(no questions: this log has no decision to predict)"
        asked = count(len(self.game.questions), "question")
        return f"Prediction({asked}, {len(self.answers)} answered, {self.score} right)"


def predict(
    log: LogLike, questions: int = 5, seed: int = 0, kinds: Sequence[str] = KINDS
) -> Prediction:
    """Ask up to `questions` questions about a log, each before the log reveals the answer.

    kinds  some of "preempted", "admitted", "blocked", "hit", "tokens", "scheduled", "evicted"
    seed   random seed for choosing the questions

    Raises ValueError for an unknown kind.
    """
    return Prediction(log, questions, seed, kinds)


def _answer_words(question: Question) -> Words:
    """Return the correct answer in words."""
    if question.form == "requests":
        words: Words = []
        for request in question.answer:
            words += [", ", request] if words else [request]
        return words or ["none"]
    if question.form == "prefixes":
        choices = zip(question.choices, question.texts, strict=True)
        return [", ".join(text for id_, text in choices if id_ in question.answer)]
    if question.form == "yes":
        return ["yes" if question.answer[0] else "no"]
    return [f"{question.answer[0]} {question.unit}"]


def _next_step(log: EventLog, index: int) -> int:
    """Return the index of the first step_started from `index` on, or else the end of the log."""
    later = range(index, len(log))
    return next((at for at in later if isinstance(log[at], v.StepStarted)), len(log))
