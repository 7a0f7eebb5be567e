"""Answers in JSON about a sentence in the question, or about an animal that the model knows.

A client that sends a schema need not mention its keys in the prompt: a grammar forces them. So the
model learns three cases: the question names the keys, it only asks for JSON, or it does neither. In the
third case, the keys are given, and only the values are learned.
"""

import json
from random import Random
from typing import Any

from engine.training import serving, talk, values, words
from engine.training.documents import Piece, Turn
from engine.training.tools import json_pieces

_DATA = words.load("records")
_ASK, _ANIMALS = _DATA["ask"], _DATA["animals"]
_KNOWN = [dict(zip(_ANIMALS["keys"], row, strict=True)) for row in _ANIMALS["know"]]


def turns(rng: Random) -> list[Turn]:
    """Ask for JSON about a sentence or an animal, or for an ordinary answer in a field of JSON."""
    make = rng.choices((_record, _animal, _sentence), (76, 14, 10))[0]
    turn = make(rng)
    return [turn._replace(question=talk.dress_lightly(rng, turn.question))]


def _record(rng: Random) -> Turn:
    return record(rng)[0]


def record(rng: Random, *, new: bool = False) -> tuple[Turn, dict[str, Any]]:
    """Ask about a sentence; also return the right answer.

    With ``new``, training has no such sentence.
    """
    about = rng.choice([one for one in _DATA["record"] if one.get("held_out", False) == new])
    # Where a question neither names keys nor has them forced, all fields come in one form.
    form = rng.choices(("named", "free", "silent"), (35, 0 if new else 20, 45))[0]
    slots: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for kind in about["has"]:
        value = values.draw(rng, kind, new=new)
        while value.text in slots.values():
            value = values.draw(rng, kind, new=new)
        slots[kind] = value.text
        options = [key for key in values.KINDS[kind]["keys"] if key not in fields]
        fields[options[0] if form == "free" or rng.random() < 0.5 else rng.choice(options)] = (
            value.json
        )
    sentence = words.with_right_articles(rng.choice(about["say"]).format(**slots))
    sentence = (
        sentence[0].upper() + sentence[1:] if sentence[0] != sentence[0].upper() else sentence
    )
    names = list(fields)
    if form != "free":
        rng.shuffle(names)
        names = names[: rng.choice((1, 2, 3, 4, 4, 4))]
    fields = {name: fields[name] for name in names}
    template = rng.choice(_ASK[f"{form}_held_out" if new else form])
    slots = {"s": sentence, "w": rng.choice(about["what"]), "k": _listed(rng, names)}
    question = template.format(**slots)
    tight = rng.random() < 0.1
    return Turn(question, "", parts=_parts(fields, form == "silent", tight)), fields


def _listed(rng: Random, names: list[str]) -> str:
    if rng.random() < 0.3:
        return ", ".join(names)
    shown = [name.replace("_", " ") for name in names] if rng.random() < 0.3 else names
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _parts(fields: dict[str, Any], given: bool = True, tight: bool = False) -> tuple[Piece, ...]:
    """Return an answer in JSON; keys that are ``given`` are not learned, and may be written tightly."""
    if not given:
        return (Piece(json.dumps(fields), True),)
    return tuple(json_pieces(fields, tight=tight))


def _sentence(rng: Random) -> Turn:
    turn = rng.choice((serving.concept_turns, talk.talk_turns))(rng)[0]
    answer = turn.brief or turn.answer
    return Turn(turn.question, "", parts=_parts({rng.choice(_DATA["answer"]["keys"]): answer}))


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
    return Turn(question, "", parts=_parts(fields, given))
