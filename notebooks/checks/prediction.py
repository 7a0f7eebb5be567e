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
from functools import cached_property
from typing import Any

from checks.answer import Answer, answer_to

_GUESSES: dict[str, Any] = {}  # key -> guess, so that Run All keeps it


class Guess:
    """A question with its options. `answer` is None until one is chosen."""

    def __init__(self, key: str, question: str, options: Sequence[Any]) -> None:
        if len(set(options)) < len(options) or not 3 <= len(options) <= 5:
            raise ValueError("give three to five different options")
        right = answer_to(key)
        if set(options) != {right.truth, *right.reasons}:
            raise ValueError(f"the options of {key!r} are not those that its answer explains")
        self.key, self.question, self.options = key, question, tuple(options)
        self._asked_to_choose = False
        self._verb = "Decide" if right.said else "Predict"

    @property
    def answer(self) -> Any:
        """The chosen option, or None."""
        guess = _GUESSES.get(self.key)
        return guess if guess in self.options else None

    @answer.setter
    def answer(self, option: Any) -> None:
        if option not in self.options:
            raise ValueError(f"choose one of {', '.join(map(str, self.options))}")
        _GUESSES[self.key] = option
        if "_form" in vars(self):  # it is on display
            self._form.children[1].index = self.options.index(option)

    def reveal(self, value: Any) -> None:
        """Print the guess next to the truth, which the run's `value` confirms.

        Without a guess, the first call asks for one and the second prints the truth. With
        UNDERGLASS_REVEAL=1 the first call does: for tests and for `make notebooks`, where no one
        can choose.
        """
        right = self.check(value)
        revealing = self._asked_to_choose or os.environ.get("UNDERGLASS_REVEAL") == "1"
        if self.answer is None and not revealing:
            self._asked_to_choose = True
            print("No guess recorded. Choose above, or run this cell again.")
            return
        print("\n".join(textwrap.fill(line, 96) for line in right.reply_to(self.answer)))

    def check(self, value: Any) -> Answer:
        """Return the lesson's answer. Raises ValueError if a run's value does not confirm it."""
        right = answer_to(self.key)
        if not right.is_shown_by(value):
            raise ValueError(
                f"{right.source} says {value}, and the lesson's answer is {right.truth}. If you "
                "changed a number in a cell above, put it back and run the lesson from the top."
            )
        return right

    @cached_property
    def _form(self) -> Any:
        """Radio buttons, made when the guess is displayed: a page has no ipywidgets."""
        import ipywidgets

        short = sum(len(str(option)) + 6 for option in self.options) < 70
        buttons = ipywidgets.RadioButtons(
            options=[(str(option), option) for option in self.options],
            index=None if self.answer is None else self.options.index(self.answer),
            orientation="horizontal" if short else "vertical",
            layout=ipywidgets.Layout(width="auto"),
        )
        note = ipywidgets.HTML(self._noted())

        def remember(change: Any) -> None:
            self.answer = self.options[change.new]
            note.value = self._noted()

        buttons.observe(remember, "index")
        asked = ipywidgets.HTML(f"<b>{self._verb}.</b> {html.escape(self.question)}")
        return ipywidgets.VBox([asked, buttons, note])

    def _noted(self) -> str:
        return "" if self.answer is None else f"Noted: {html.escape(str(self.answer))}. Now run on."

    def __repr__(self) -> str:
        options = "   ".join(f"( ) {option}" for option in self.options)
        return f"{self._verb}. {textwrap.fill(self.question, 88)}\n{options}"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = self._form._repr_mimebundle_(**kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if data is not None:
            data["text/plain"] = repr(self)  # ipywidgets cuts it
        return bundle


def predict(key: str, question: str, options: Sequence[Any]) -> Guess:
    """Ask the question `key` ("04.eva") before its reveal, with three to five plausible options."""
    return Guess(key, question, options)
