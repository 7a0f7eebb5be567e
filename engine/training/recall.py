"""Chats that refer back: the user tells something, and asks for it some turns later."""

from random import Random
from typing import Any

from engine.training import talk, values, words
from engine.training.documents import Turn

_DATA = words.load("recall")
_FACTS: list[dict[str, Any]] = _DATA["fact"]


def turns(rng: Random, *, new: bool = False) -> list[Turn]:
    """Tell one to three facts, and ask for some of them, possibly after small talk.

    With ``new``, the facts are values that training keeps out, and the last turn asks for one of them.
    """
    facts = rng.sample(_FACTS, rng.choice((1, 1, 2, 3)))
    told: list[tuple[dict[str, Any], str]] = []
    result: list[Turn] = []
    for fact in facts:
        value = values.draw(rng, fact["kind"], new=new).text
        told.append((fact, value))
        say, reply = (_filled(rng.choice(fact[part]), value) for part in ("say", "reply"))
        result.append(Turn(say, reply))
        if rng.random() < 0.25:
            result += talk.talk_turns(rng)
    if rng.random() < 0.1 and not new:
        other = rng.choice(
            [fact for fact in _FACTS if fact["answer"] not in [f["answer"] for f in facts]]
        )
        result.append(Turn(rng.choice(other["ask"]), _DATA["words"]["unknown"]))
    rng.shuffle(told)
    for fact, value in told[: 1 if new else rng.randint(1, len(told))]:
        result.append(Turn(rng.choice(fact["ask"]), _filled(fact["answer"], value)))
    return result


def _filled(template: str, value: str) -> str:
    text = words.with_right_articles(template.format(v=value))
    return text if template.startswith("{") else text[0].upper() + text[1:]
