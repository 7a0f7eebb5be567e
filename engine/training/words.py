"""The words that stories, sums and letter counts draw from, and the files of sentences."""

import re
import tomllib
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import Any, NamedTuple

DATA = Path(__file__).parent / "data"


def read(subject: str) -> str:
    """Return the text of ``data/<subject>.toml``."""
    return (DATA / f"{subject}.toml").read_text(encoding="utf-8")


def load(subject: str) -> dict[str, Any]:
    """Read the words and sentences of ``data/<subject>.toml``."""
    return tomllib.loads(read(subject))


_WORDS: dict[str, list[str]] = load("words")
GIRLS, BOYS = _WORDS["girls"], _WORDS["boys"]
NAMES = GIRLS + BOYS
PEOPLE = {"girl": GIRLS, "boy": BOYS, "princess": GIRLS, "prince": BOYS}
ANIMALS, UNKNOWN_ANIMALS = _WORDS["animals"], _WORDS["unknown_animals"]
FOODS, THINGS = _WORDS["foods"], _WORDS["things"]
# Slots of a story's sentences, in the order in which they are drawn.
STORY_SLOTS = {
    slot: _WORDS[f"{slot}s"]
    for slot in ("home", "place", "food", "thing", "color", "weather", "sound")
}
COUNTED_WORDS = _WORDS["counted_words"]


def nonsense_word(rng: Random) -> str:
    """Make a pronounceable word of one to four syllables that is in no dictionary."""
    syllables = rng.choice((1, 2, 2, 3, 3, 4))
    return "".join(
        "".join(rng.choice(_WORDS[part]) for part in ("onsets", "vowels", "codas"))
        for _ in range(syllables)
    )


def counted_word(rng: Random) -> str:
    """Draw a word to count letters in: real, nonsense or random letters, 2 to 16 of them."""
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(COUNTED_WORDS)
    if kind < 0.75:
        return nonsense_word(rng)[:16]
    # Few different letters make repeats likely, and repeats make copying hard.
    letters = rng.sample(ascii_lowercase, rng.randint(2, 8))
    return "".join(rng.choices(letters, k=rng.randint(2, 12)))


class Character(NamedTuple):
    """A person or animal in a story: ``Pip``, ``fox``, and the pronouns ``he him his``."""

    name: str
    kind: str
    he: str
    him: str
    his: str


def character(rng: Random) -> Character:
    """Draw a character: an animal or, less often, a person."""
    kind = rng.choice(list(PEOPLE) if rng.random() < 0.3 else ANIMALS)
    names = PEOPLE.get(kind) or rng.choice((GIRLS, BOYS))
    pronouns = ("she", "her", "her") if names is GIRLS else ("he", "him", "his")
    return Character(rng.choice(names), kind, *pronouns)


def with_article(noun: str) -> str:
    """Return ``a fox``, ``an owl``."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def with_right_articles(text: str) -> str:
    """Return ``text`` with "an" instead of "a" before a vowel."""
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
