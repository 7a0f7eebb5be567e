"""Predict before you look: a question, a remembered answer, and the reveal.

    guess = predict("In which step does Eva get her first token?", [5, 7, 25])
    guess                                     # radio buttons; guess.answer = 7 does the same
    guess.reveal(25, {5: "A seat is free then. ..."})

Nothing is graded. The reveal also runs without an answer. A question's answer is
kept when its cell runs again.
"""

import html
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets

_ANSWERS: dict[str, Any] = {}  # question -> answer, so that Run All keeps it


class Guess(ipywidgets.VBox):  # type: ignore[misc]
    """A question with its options. `answer` is None until one is chosen."""

    def __init__(self, question: str, options: Sequence[Any]) -> None:
        if len(set(options)) < len(options) or not 3 <= len(options) <= 5:
            raise ValueError("give three to five different options")
        self.question, self.options = question, tuple(options)
        short = sum(len(str(option)) + 6 for option in options) < 70
        self._buttons = ipywidgets.RadioButtons(
            options=[(str(option), option) for option in options],
            index=None,
            orientation="horizontal" if short else "vertical",
            layout=ipywidgets.Layout(width="auto"),
        )
        self._note = ipywidgets.HTML()
        self._buttons.observe(self._remember, "index")
        asked = ipywidgets.HTML(f"<b>Predict.</b> {html.escape(question)}")
        super().__init__([asked, self._buttons, self._note])
        if _ANSWERS.get(question) in self.options:
            self.answer = _ANSWERS[question]

    @property
    def answer(self) -> Any:
        """The chosen option, or None."""
        return None if self._buttons.index is None else self.options[self._buttons.index]

    @answer.setter
    def answer(self, option: Any) -> None:
        if option not in self.options:
            raise ValueError(f"choose one of {', '.join(map(str, self.options))}")
        self._buttons.index = self.options.index(option)

    def reveal(self, truth: Any, reasons: Mapping[Any, str], *, source: str = "The log") -> None:
        """Print the answer next to the truth. `reasons` says why a wrong option is tempting.

        `source` names where the truth comes from, if it is not the log. Without an answer the first
        reason is printed. Raises ValueError if the truth is not an option: then the question is wrong.
        """
        if truth not in self.options or not set(reasons) < set(self.options):
            raise ValueError(f"{truth} and the reasons must be among the options {self.options}")
        if self.answer is None:
            tempting = next(iter(reasons))
            lines = [f"No guess recorded. {source} says: {truth}."]
            lines.append(f"Many say {tempting}. {reasons[tempting]}")
        elif self.answer == truth:
            lines = [f"Your guess: {self.answer}. {source} says the same."]
        else:
            lines = [f"Your guess: {self.answer}. {source} says: {truth}."]
            lines.append(reasons.get(self.answer, ""))
        print("\n".join(textwrap.fill(line, 96) for line in lines if line))

    def _remember(self, _: Any) -> None:
        _ANSWERS[self.question] = self.answer
        self._note.value = f"Noted: {html.escape(str(self.answer))}. Now run on."

    def __repr__(self) -> str:
        options = "   ".join(f"( ) {option}" for option in self.options)
        return f"Predict. {textwrap.fill(self.question, 88)}\n{options}"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if data is not None:
            data["text/plain"] = repr(
                self
            )  # ipywidgets cuts it, and this is all a static page shows
        return bundle


def predict(question: str, options: Sequence[Any]) -> Guess:
    """Ask a question before its reveal, with three to five plausible options."""
    return Guess(question, options)
