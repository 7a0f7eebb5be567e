"""Predict, then see: the log is shown up to a decision, and somebody says what will come.

    from visualizer import predict
    game = predict(log)
    game.score, game.answers

Before an answer is given, it is nowhere in the page: the browser has the log up to the question and no
more, and the kernel, which has all of it, checks what is answered and then sends the step. Hence there
is no exported file of it: without a kernel nobody could know.
"""

import base64
import gzip
from collections.abc import Sequence
from typing import Any

import anywidget
import ipywidgets
import traitlets

from engine.events import EventLog, State
from engine.events import vocabulary as v
from engine.events.messages import Words, count
from visualizer.asking import KINDS, Question
from visualizer.html import MODULE
from visualizer.logs import LogLike, read_log
from visualizer.moments import names_of, plain
from visualizer.questions import questions

MOST_EVENTS = 20_000  # that the page is given; older ones are folded into a keyframe


class Game(ipywidgets.Widget):  # type: ignore[misc]
    """What kernel and page tell each other: questions, answers, and as much of the log as may be seen.

    It is a widget without a picture, of Jupyter's own kind: one of anywidget's hears nothing more from
    the kernel if the page was too busy to begin within two seconds.
    """

    log = traitlets.Unicode().tag(sync=True)  # packed, in base64: JupyterLab saves no bytes
    question = traitlets.Dict().tag(sync=True)
    verdict = traitlets.Dict().tag(sync=True)
    score = traitlets.Int(0).tag(sync=True)
    # From the browser: {"number": of the question, "value": [...]}, and the question to go on to.
    given = traitlets.Dict().tag(sync=True)
    turn = traitlets.Int(0).tag(sync=True)

    def __init__(self, log: LogLike, count: int, seed: int, kinds: Sequence[str]) -> None:
        self._events = read_log(log)
        self._names = names_of(self._events)
        self.questions = questions(self._events, count, seed, kinds)
        self.answers: list[dict[str, Any]] = []
        super().__init__(**self._asked(0))

    def answer(self, value: int | bool | Sequence[int]) -> str:
        """See `Prediction.answer`."""
        if len(self.answers) > self.turn or self.turn >= len(self.questions):
            raise ValueError("nothing is being asked now: go on, or begin again")
        chosen = [int(value)] if isinstance(value, int) else [int(one) for one in value]
        self.given = {"number": self.turn, "value": chosen}
        return str(self.answers[-1]["why"])

    @traitlets.observe("given")
    def _check(self, change: Any) -> None:
        """Somebody answered: say whether it is right, and show the step."""
        number, value = change.new.get("number"), change.new.get("value")
        # Each question is answered once, whatever a page sends.
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
                "answer": self._value(question, question.answer),
                "given": self._value(question, tuple(value)),
                "right": right,
                "why": " ".join(plain(line, self._names) for line in why),
            }
        )
        with self.hold_sync():
            self.score += right
            self.log = self._until(_end_of_step(self._events, question.index))
            self.verdict = {
                "number": number,
                "right": right,
                "answer": list(question.answer),
                "words": self._said(question),
                "why": why,
            }

    @traitlets.observe("turn")
    def _go_on(self, change: Any) -> None:
        """The next question, once this one is answered."""
        if change.new != len(self.answers):
            self.turn = change.old
            return
        with self.hold_sync():
            for name, value in self._asked(change.new).items():
                setattr(self, name, value)

    def _asked(self, number: int) -> dict[str, Any]:
        """What the page may know when a question is asked; behind the last one, the whole log."""
        whole = len(self.questions)
        told: dict[str, Any] = {"number": number, "of": whole}
        if number >= whole:
            return {"log": self._until(len(self._events)), "question": told, "verdict": {}}
        question = self.questions[number]
        told |= {
            "kind": question.kind,
            "step": question.step,
            "words": question.words,
            "form": question.form,
            "choices": list(question.choices),
            "texts": list(question.texts),
            "unit": question.unit,
            "about": question.about,
        }
        return {"log": self._until(question.index), "question": told, "verdict": {}}

    def _until(self, end: int) -> str:
        """The log's events before index `end`, packed, in base64; of a long log the last ones."""
        part, begin = EventLog(), 0
        state = State()
        for index, event in enumerate(self._events[:end]):
            if isinstance(event, v.StepStarted) and index and end - index >= MOST_EVENTS:
                begin = index
        if begin:
            for event in self._events[:begin]:
                state.apply(event)
            part.append(state.keyframe())
        for event in self._events[begin:end]:
            part.append(event)
        return base64.b64encode(gzip.compress(part.to_bytes(), mtime=0)).decode()

    def _said(self, question: Question) -> Words:
        """The right answer in words."""
        if question.form == "requests":
            words: Words = []
            for place, request in enumerate(question.answer):
                words += [", " if place else "", request]
            return words or ["nobody"]
        if question.form == "prefixes":
            chosen = zip(question.choices, question.texts, strict=True)
            return [", ".join(text for id_, text in chosen if id_ in question.answer)]
        if question.form == "yes":
            return ["yes" if question.answer[0] else "no"]
        return [f"{question.answer[0]} {question.unit}"]

    def _value(self, question: Question, value: tuple[int, ...]) -> Any:
        if question.form == "requests":
            return [self._names.get(id_, f"r{id_}") for id_ in sorted(value)]
        if question.form == "prefixes":
            return sorted(value)
        if question.form == "yes":
            return bool(value and value[0])
        return value[0] if value else None


class Prediction(anywidget.AnyWidget):
    """Questions about a log, one after another."""

    _esm = MODULE
    kind = traitlets.Unicode("predict").tag(sync=True)
    game = traitlets.Instance(Game).tag(sync=True, **ipywidgets.widget_serialization)

    def __init__(
        self, log: LogLike, count: int = 5, seed: int = 0, kinds: Sequence[str] = KINDS
    ) -> None:
        super().__init__(game=Game(log, count, seed, kinds))

    @property
    def score(self) -> int:
        """Right answers so far."""
        return int(self.game.score)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """What was asked and answered: question, answer, given, right, why."""
        return list(self.game.answers)

    def answer(self, value: int | bool | Sequence[int]) -> str:
        """Answer the question from Python: requests' ids, a number, or True or False.

        Returns what the log says. Raises ValueError if nothing is being asked.
        """
        return str(self.game.answer(value))

    def next(self) -> None:
        """Go on to the next question."""
        self.game.turn += 1

    def __repr__(self) -> str:
        if not self.game.questions:
            return "Prediction(nothing to ask: no decision of this log can be foreseen)"
        asked = count(len(self.game.questions), "question")
        return f"Prediction({asked}, {len(self.answers)} answered, {self.score} right)"


def predict(
    log: LogLike, questions: int = 5, seed: int = 0, kinds: Sequence[str] = KINDS
) -> Prediction:
    """Ask at most so many questions about a log, before it shows what came.

    kinds  of "preempted", "admitted", "blocked", "hit", "tokens", "scheduled" and "evicted"
    seed   another seed, other questions

    Raises ValueError for an unknown kind.
    """
    return Prediction(log, questions, seed, kinds)


def _end_of_step(log: EventLog, index: int) -> int:
    """Behind the last event of the step that begins at `index`."""
    for end in range(index + 1, len(log)):
        if isinstance(log[end], v.StepStarted):
            return end
    return len(log)
