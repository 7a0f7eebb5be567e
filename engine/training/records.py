"""Answers in JSON about a sentence in the question, or about an animal that the model knows.

A client that sends a schema need not mention its keys in the prompt: a grammar forces them. So the
model learns three cases: the question names the keys, it only asks for JSON, or it does neither. In the
third case, the keys are given, and only the values are learned.
"""

import json
from random import Random
from typing import Any

from engine.training import values, words
from engine.training.documents import Piece, Turn
from engine.training.tools import json_pieces

_DATA = words.load("records")
_ASK, _ANIMALS = _DATA["ask"], _DATA["animals"]
_KNOWN = [dict(zip(_ANIMALS["keys"], row, strict=True)) for row in _ANIMALS["know"]]


def turns(rng: Random) -> list[Turn]:
    """Ask for JSON about a sentence or about an animal."""
    if rng.random() < 0.15:
        return [_animal(rng)]
    return [record(rng)[0]]


def record(rng: Random, *, new: bool = False) -> tuple[Turn, dict[str, Any]]:
    """Ask about a sentence; also return the right answer.

    With ``new``, training has no such sentence.
    """
    about = rng.choice([one for one in _DATA["record"] if one.get("held_out", False) == new])
    slots: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for kind in about["has"]:
        value = values.draw(rng, kind, new=new)
        while value.text in slots.values():
            value = values.draw(rng, kind, new=new)
        slots[kind] = value.text
        options = [key for key in values.KINDS[kind]["keys"] if key not in fields]
        fields[options[0] if rng.random() < 0.5 else rng.choice(options)] = value.json
    sentence = rng.choice(about["say"]).format(**slots)
    sentence = (
        sentence[0].upper() + sentence[1:] if sentence[0] != sentence[0].upper() else sentence
    )
    names = list(fields)
    if rng.random() < 0.5:
        rng.shuffle(names)
    names = names[: rng.choice((1, 2, 3, 4, 4, 4))]
    fields = {name: fields[name] for name in names}
    form = rng.choices(("named", "free", "silent"), (35, 0 if new else 20, 45))[0]
    template = rng.choice(_ASK[f"{form}_held_out" if new else form])
    slots = {"s": sentence, "w": rng.choice(about["what"]), "k": _listed(rng, names)}
    question = template.format(**slots)
    return Turn(question, "", parts=_parts(rng, fields, given=form == "silent")), fields


def _listed(rng: Random, names: list[str]) -> str:
    if rng.random() < 0.3:
        return ", ".join(names)
    shown = [name.replace("_", " ") for name in names] if rng.random() < 0.3 else names
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _parts(rng: Random, fields: dict[str, Any], *, given: bool) -> tuple[Piece, ...]:
    """Return an answer in JSON; keys that are ``given`` are not learned, and may be written tightly."""
    if not given:
        return (Piece(json.dumps(fields), True),)
    return tuple(json_pieces(fields, tight=rng.random() < 0.1))


def _animal(rng: Random) -> Turn:
    known = rng.choice(_KNOWN)
    names = list(known) if rng.random() < 0.4 else ["animal", "legs"]
    first, *rest = names
    rng.shuffle(rest)
    names = [first, *rest[: rng.randint(0 if rest[1:] else 1, len(rest))]]
    keys = {name: rng.choice(_ANIMALS["keys"][name]) for name in names}
    fields = {keys[name]: known[name] for name in names}
    if rng.random() < 0.6:
        question = rng.choice(_ANIMALS["ask"])
    else:
        question = rng.choice(_ANIMALS["ask_one"]).format(a=words.with_article(known["animal"]))
    form = rng.random()
    if form < 0.25:
        question += rng.choice(_ANIMALS["as_json"])
    elif form < 0.5:
        question += rng.choice(_ANIMALS["with_keys"]).format(k=_listed(rng, list(fields)))
    given = form > 0.5 or rng.random() < 0.5
    return Turn(question, "", parts=_parts(rng, fields, given=given))
