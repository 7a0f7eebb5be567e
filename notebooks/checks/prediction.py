"""Predict before you look: a question, a remembered guess, and the reveal.

    guess = predict("04.eva", "In which step does Eva get her first token?", [5, 7, 21, 25])
    guess                             # radio buttons; guess.answer = 7 does the same
    guess.reveal(log.request("Eva").first_token_step)

Nothing is graded. The notebook has no answer in it: the truth and the reasons are in the lesson's
`ANSWERS` (see `answer.py`). A guess is kept when its cell runs again.
"""

import html
import os
import textwrap
from collections.abc import Sequence
from typing import Any

import ipywidgets

from checks.answer import answer_to

_GUESSES: dict[str, Any] = {}  # key -> guess, so that Run All keeps it


class Guess(ipywidgets.VBox):  # type: ignore[misc]
    """A question with its options. `answer` is None until one is chosen."""

    def __init__(self, key: str, question: str, options: Sequence[Any]) -> None:
        if len(set(options)) < len(options) or not 3 <= len(options) <= 5:
            raise ValueError("give three to five different options")
        right = answer_to(key)
        if set(options) != {right.truth, *right.reasons}:
            raise ValueError(f"the options of {key!r} are not those that its answer explains")
        self.key, self.question, self.options = key, question, tuple(options)
        self._asked_to_choose = False
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
        if _GUESSES.get(key) in self.options:
            self.answer = _GUESSES[key]

    @property
    def answer(self) -> Any:
        """The chosen option, or None."""
        return None if self._buttons.index is None else self.options[self._buttons.index]

    @answer.setter
    def answer(self, option: Any) -> None:
        if option not in self.options:
            raise ValueError(f"choose one of {', '.join(map(str, self.options))}")
        self._buttons.index = self.options.index(option)

    def reveal(self, value: Any) -> None:
        """Print the guess next to the truth, which the run's `value` confirms.

        Without a guess, the first call asks for one and the second prints the truth. With
        UNDERGLASS_REVEAL=1 the first call does: for tests and for `make notebooks`, where no one
        can choose. Raises ValueError if `value` does not confirm the lesson's answer.
        """
        right = answer_to(self.key)
        if not right.is_shown_by(value):
            raise ValueError(
                f"{right.source} says {value}, and the lesson's answer is {right.truth}. If you "
                "changed a number in a cell above, put it back and run the lesson from the top."
            )
        revealing = self._asked_to_choose or os.environ.get("UNDERGLASS_REVEAL") == "1"
        if self.answer is None and not revealing:
            self._asked_to_choose = True
            print("No guess recorded. Choose above, or run this cell again.")
            return
        if self.answer == right.truth:
            lines = [f"Your guess: {self.answer}. {right.source} says the same."]
        else:
            guess = "No guess recorded" if self.answer is None else f"Your guess: {self.answer}"
            lines = [f"{guess}. {right.source} says: {right.truth}."]
            tempting = next(iter(right.reasons))
            if self.answer is None:
                lines.append(f"Many say {tempting}. {right.reasons[tempting]}")
            else:
                lines.append(right.reasons[self.answer])
        print("\n".join(textwrap.fill(line, 96) for line in [*lines, right.then] if line))

    def _remember(self, _: Any) -> None:
        _GUESSES[self.key] = self.answer
        self._note.value = f"Noted: {html.escape(str(self.answer))}. Now run on."

    def __repr__(self) -> str:
        options = "   ".join(f"( ) {option}" for option in self.options)
        return f"Predict. {textwrap.fill(self.question, 88)}\n{options}"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if data is not None:
            data["text/plain"] = repr(self)  # ipywidgets cuts it
        return bundle


def predict(key: str, question: str, options: Sequence[Any]) -> Guess:
    """Ask the question `key` ("04.eva") before its reveal, with three to five plausible options."""
    return Guess(key, question, options)
