"""Values that a question names, and that a tool call or an answer in JSON copies from it.

A value has a text, for the sentence, and a JSON value. Most texts are drawn from so many that copying
is easier to learn than remembering them. Of the texts that are made up or put together, one in eight is
kept out of training, for evaluation. Words of a list are never kept out: a word has a token of its own
in JSON, where no space precedes it, and a token that was never learned could not be copied.
"""

import re
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

from engine.training import words

_DATA = words.load("values")
KINDS: dict[str, dict[str, Any]] = _DATA["kinds"]
_LISTS: dict[str, list[str]] = words.load("chat")["lists"]
# Every lower-case word of the corpus's sentences.
_WORDS = sorted(
    {
        word
        for subject in ("stories", "serving", "chat", "numbers", "values")
        for word in re.findall(r"(?<![{A-Za-z\\])[a-z]{2,}(?![}A-Za-z])", words.read(subject))
    }
)
_LISTED = {
    *(text for options in _DATA.values() if isinstance(options, list) for text in options),
    *(text for options in _LISTS.values() for text in options),
    *(words.NAMES + words.FOODS + words.THINGS + words.ANIMALS + words.UNKNOWN_ANIMALS),
    *words.COUNTED_WORDS,
    *_WORDS,
}


class Value(NamedTuple):
    """A value of a kind: how a sentence names it, and what stands in JSON."""

    text: str
    json: str | int | float | bool | list[Any]


def held_out(text: str) -> bool:
    """Return whether a text is kept out of the questions of training: one in eight."""
    return text not in _LISTED and crc32(text.encode()) % 8 == 0


def draw(rng: Random, kind: str, *, new: bool = False) -> Value:
    """Draw a value of ``kind``; with ``new``, a text that training keeps out where there is one."""
    about = KINDS[kind]
    if "list" in about:
        count = rng.choice((2, 2, 3))
        parts: list[str] = []
        while len(parts) < count:
            if (part := draw(rng, about["list"], new=new).text) not in parts:
                parts.append(part)
        return Value(f"{', '.join(parts[:-1])} and {parts[-1]}", list(parts))
    if "draw" in about:
        make = _TEXTS[about["draw"]]
        text = make(rng)
        for _ in range(20):
            if held_out(text) == new:
                break
            text = make(rng)
        return Value(text, text)
    return _simple(rng, about)


def _simple(rng: Random, about: dict[str, Any]) -> Value:
    """Draw one of a few values, or a number."""
    if "enum" in about:
        text = rng.choice(about["enum"])
        return Value(text, text)
    if "means" in about:
        meant = rng.choice(tuple(about["means"]))
        return Value(rng.choice(about["means"][meant]), meant)
    if "yes" in about:
        answer = rng.random() < 0.5
        return Value(about["yes"] if answer else about["no"], answer)
    if "low" in about:
        number = rng.randint(about["low"], about["high"])
        return Value(str(number), number)
    amount = rng.randint(11, 9999)
    amount += amount % 10 == 0
    digits = rng.choice((10, 100)) if amount > 100 else 10
    return Value(str(amount / digits), amount / digits)


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON schema of a kind."""
    about = KINDS[kind]
    if "enum" in about:
        return {"type": "string", "enum": about["enum"]}
    if "means" in about:
        return {"type": "string", "enum": list(about["means"])}
    if "yes" in about:
        return {"type": "boolean"}
    if "low" in about:
        return {"type": "integer"}
    if "list" in about:
        return {"type": "array", "items": schema(about["list"])}
    return {"type": about.get("type", "string")}


def _made_up(rng: Random) -> str:
    return words.nonsense_word(rng)[:12].capitalize()


def _or_made_up(share: float, known: Callable[[Random], str]) -> Callable[[Random], str]:
    return lambda rng: _made_up(rng) if rng.random() < share else known(rng)


def _one_of(options: list[str]) -> Callable[[Random], str]:
    return lambda rng: rng.choice(options)


def _full_name(rng: Random) -> str:
    last = _made_up(rng) if rng.random() < 0.3 else rng.choice(_DATA["surnames"])
    return f"{rng.choice(words.NAMES)} {last}"


def _email(rng: Random) -> str:
    name = rng.choice(words.NAMES).lower() if rng.random() < 0.7 else words.nonsense_word(rng)[:10]
    host = rng.choice(("mail", "post", "home", "work", "school", words.nonsense_word(rng)[:8]))
    return f"{name}@{host}.{rng.choice(('com', 'org', 'net'))}"


def _date(rng: Random) -> str:
    form = rng.random()
    if form < 0.4:
        return _one_of(["today", "tomorrow", *_DATA["weekdays"]])(rng)
    day, month = rng.randint(1, 28), rng.choice(_DATA["months"])
    return f"{month} {day}" if form < 0.8 else _iso_date(rng)


def _iso_date(rng: Random) -> str:
    return f"20{rng.randint(20, 35)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def _time(rng: Random) -> str:
    return f"{rng.randint(0, 23):02}:{rng.choice((0, 15, 30, 45, rng.randint(0, 59))):02}"


def _title(rng: Random) -> str:
    first, noun = rng.choice(_DATA["title_starts"]), rng.choice(_DATA["title_nouns"])
    if rng.random() < 0.3:
        noun = _made_up(rng)
    return f"{first} {rng.choice(_DATA['title_adjectives'])} {noun}"


def _code(rng: Random) -> str:
    letters = "".join(rng.choices("ABCDEFGHKLMNPRSTXZ", k=rng.randint(1, 2)))
    return f"{letters}{rng.choice(('', '-'))}{rng.randint(10, 99999)}"


def _item(rng: Random) -> str:
    item: str = rng.choice(_DATA["items"] + words.THINGS)
    return f"{rng.choice(words.STORY_SLOTS['color'])} {item}" if rng.random() < 0.3 else item


def _word(rng: Random) -> str:
    return words.nonsense_word(rng)[:12] if rng.random() < 0.4 else rng.choice(_WORDS)


def _message(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.45:
        return _one_of(_DATA["messages"])(rng)
    if kind < 0.7:
        return " ".join(_word(rng) for _ in range(rng.randint(1, 5)))
    verb = rng.choice(("bring the", "find the", "sell the", "paint the", "where is the", "buy a"))
    return f"{verb} {_word(rng)}"


_TEXTS: dict[str, Callable[[Random], str]] = {
    "city": _or_made_up(0.3, _one_of(_DATA["cities"])),
    "person": _or_made_up(0.3, _one_of(words.NAMES)),
    "full_name": _full_name,
    "email": _email,
    "date": _date,
    "iso_date": _iso_date,
    "weekday": _one_of(_DATA["weekdays"]),
    "time": _time,
    "title": _title,
    "item": _item,
    "dish": _one_of(_DATA["dishes"] + words.FOODS),
    "food": _one_of(words.FOODS + _DATA["dishes"]),
    "job": _one_of(_DATA["jobs"]),
    "animal": _one_of(words.ANIMALS + words.UNKNOWN_ANIMALS),
    "word": _word,
    "code": _code,
    "subject": _one_of(_DATA["subjects"]),
    "message": _message,
    "country": _or_made_up(0.2, _one_of(_LISTS["country"][:19])),
    "language": _one_of(_LISTS["language"]),
    "brand": _made_up,
}
