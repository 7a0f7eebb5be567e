"""The answers to a lesson's predictions. A lesson asks; only its checks know.

Each `checks/lesson_NN.py` has `ANSWERS`, by the name under which the lesson asks: the question
"04.eva" is `ANSWERS["eva"]` in `checks/lesson_04.py`.
"""

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What a prediction's reveal prints.

    `reasons` says of each wrong option why it is tempting and what it misses, the most tempting one
    first. `then` follows for everyone. `source` names where the truth comes from. If the options are
    words, `fits` says whether a value of the run is what the true option says.

    If the reader decides instead of predicting, `said` has the consequence of each option, and `truth`
    is what the scheduler decided: see `decided.py`.
    """

    truth: Any
    reasons: Mapping[Any, str]
    then: str = ""
    source: str = "The log"
    fits: Callable[[Any], bool] | None = None
    said: Mapping[Any, str] = field(default_factory=dict)

    def is_shown_by(self, value: Any) -> bool:
        """Return whether a run's value confirms the truth."""
        return bool(value == self.truth if self.fits is None else self.fits(value))

    def reply_to(self, guess: Any) -> list[str]:
        """Return what the reveal says about a guess, or about None: one paragraph each."""
        if self.said:
            chosen = [guess] if guess in self.said else list(self.said)
            lines = [f"{option}: {self.said[option]}" for option in chosen]
            lines.append(f"What happened: {self.truth}.")
        elif guess == self.truth:
            lines = [f"Your guess: {guess}. {self.source} says the same."]
        elif guess is not None:
            lines = [f"Your guess: {guess}. {self.source} says: {self.truth}.", self.reasons[guess]]
        else:
            tempting = next(iter(self.reasons))
            lines = [
                f"No guess recorded. {self.source} says: {self.truth}.",
                f"Many say {tempting}. {self.reasons[tempting]}",
            ]
        return [line for line in [*lines, self.then] if line]


def answer_to(key: str) -> Answer:
    """Return the answer to the question "NN.name". Raises KeyError if no lesson has it."""
    lesson, _, name = key.partition(".")
    module = f"checks.lesson_{lesson}"
    if not lesson.isdigit() or importlib.util.find_spec(module) is None:
        raise KeyError(f'{key!r} names no lesson: a question is called "04.eva"')
    answers: dict[str, Answer] = importlib.import_module(module).ANSWERS
    if name not in answers:
        known = ", ".join(f"{lesson}.{one}" for one in answers)
        raise KeyError(f"lesson {lesson} has no answer to {key!r}; it has {known}")
    return answers[name]
