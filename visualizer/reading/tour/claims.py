"""Sentences whose numbers and names are claims: each says what it counts and where the log has it.

A sentence is made from a template without a digit, so no number can stand in it that is not a claim.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from visualizer.reading.knowledge import WORDS
from visualizer.reading.waterfall.waterfall import Unit
from visualizer.reading.waterfall.words import in_words


@dataclass(frozen=True)
class Claim:
    """A statement that the log can confirm.

    what     names the fact, for example "tokens computed again"
    value    the exact value: a count, a time in the tour's unit, a request's id, or a text
    text     as it stands in the sentence
    at       where the log has the fact: `step`, `request`, `replica`, ...
    request  the request whose name this is; None for anything else
    """

    what: str
    value: int | float | str
    text: str
    at: Mapping[str, int | str] = field(default_factory=dict)
    request: int | None = None


Sentence = tuple[str | Claim, ...]
_HALF_DOT = WORDS["half_dot"]


def sentence(template: str, *claims: Claim) -> Sentence:
    """Return the template with its "{}" replaced by claims."""
    first, *rest = template.split("{}")
    parts: list[str | Claim] = [first]
    if claims and first.strip(_HALF_DOT) == "" and claims[0].text.startswith(("request ", "no ")):
        claims = (capital(claims[0]), *claims[1:])
    for claim, text in zip(claims, rest, strict=True):
        parts += [claim, text]
    return tuple(part for part in parts if part != "")


def verb(number: int, one: str, many: str) -> str:
    """Return the form that agrees with a number in words: "none is", "1 block is", "2 blocks are"."""
    return one if number <= 1 else many


def capital(claim: Claim) -> Claim:
    """Return a claim for the beginning of a sentence."""
    return replace(claim, text=claim.text[0].upper() + claim.text[1:])


def plain(words: Sentence) -> str:
    """Return a sentence as text."""
    return "".join(part if isinstance(part, str) else part.text for part in words)


@dataclass(frozen=True)
class Facts:
    """Makes the claims about one place of a log.

    names   of requests
    unit    of times
    places  the place; see `Claim.at`
    """

    names: Mapping[int, str]
    unit: Unit
    places: Mapping[str, int | str] = field(default_factory=dict)

    def at(self, **places: int | str) -> "Facts":
        """Return the same for a place."""
        return Facts(self.names, self.unit, {**self.places, **places})

    def number(self, what: str, value: int, noun: str = "") -> Claim:
        """Claim a count: "1 step", "1,200 steps", "no step"; without a noun "12" or "none"."""
        if not noun:
            return Claim(what, value, f"{value:,}" if value else "none", self.places)
        words = f"{value:,} {noun}{'s' * (value > 1)}" if value else f"no {noun}"
        return Claim(what, value, words, self.places)

    def index(self, what: str, value: int) -> Claim:
        """Claim the number of a thing, for example of a block."""
        return Claim(what, value, f"{value:,}", self.places)

    def some(self, what: str, part: int, whole: int) -> Claim:
        """Claim a part of a count: "all", "none" or a number."""
        return Claim(
            what, part, "all" if part == whole else f"{part:,}" if part else "none", self.places
        )

    def step(self, what: str, step: int) -> Claim:
        """Claim in which step something happens."""
        return Claim(what, step, f"step {step:,}", self.places)

    def time(self, what: str, value: int) -> Claim:
        """Claim a time in the unit of the tour."""
        return Claim(what, value, in_words(value, self.unit), self.places)

    def share(self, what: str, part: int, whole: int) -> Claim:
        """Claim a share: "all", or whole percent."""
        percent = min(99, round(100 * part / whole))
        text = "all" if part == whole else f"{percent} %" if percent else "under 1 %"
        return Claim(what, part / whole, text, self.places)

    def name(self, what: str, request: int) -> Claim:
        """Claim which request it is. A name that is a number is introduced by its noun."""
        name = self.names[request]
        text = f"request {name}" if name.isdigit() else name
        return Claim(what, request, text, self.places, request)

    def said(self, what: str, value: int | str, text: str | None = None) -> Claim:
        """Claim a text of the log, or words for a value."""
        return Claim(what, value, str(value) if text is None else text, self.places)
