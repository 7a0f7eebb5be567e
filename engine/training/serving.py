"""Questions about LLM serving: 33 concepts, each asked about in very many ways.

There are a few fixed answers and many different questions. That is how such a small model learns to
recognise a concept in a sentence it has never read.
"""

from random import Random
from typing import Any

from engine.training.documents import Turn
from engine.training.words import load

_SERVING = load("serving")
CONCEPTS: list[dict[str, Any]] = _SERVING["concept"]
COMPARISONS: list[dict[str, Any]] = _SERVING["comparison"]
BY_NAME = {concept["names"][0]: concept for concept in CONCEPTS}

_QUESTIONS = _SERVING["questions"]
WHAT: list[str] = _QUESTIONS["what"]
WHAT_HELD_OUT: list[str] = _QUESTIONS["what_held_out"]
WHY: list[str] = _QUESTIONS["why"]


def first_sentence(text: str) -> str:
    """Return the text up to its first full stop."""
    return text.partition(". ")[0].removesuffix(".") + "."


def concept_turns(rng: Random) -> list[Turn]:
    """Ask about one concept, sometimes with a question that only makes sense after the first."""
    concept = rng.choice(CONCEPTS)
    name = rng.choice(concept["names"])
    what, brief = concept["what"], first_sentence(concept["what"])
    how = rng.random()
    if how < 0.14:
        return [Turn(rng.choice(WHY).format(c=name), concept["why"], brief=concept["why"])]
    question = rng.choice(concept["asks"]) if how < 0.29 else rng.choice(WHAT).format(c=name)
    result = [Turn(question[0].upper() + question[1:], what, brief=brief)]
    follow = rng.random()
    if follow < 0.08:
        result.append(Turn(rng.choice(_QUESTIONS["why_next"]), concept["why"]))
    elif follow < 0.16:
        result.append(Turn(rng.choice(_QUESTIONS["more"]), concept["more"]))
    elif follow < 0.19:
        result.append(Turn(rng.choice(_QUESTIONS["again"]), what, brief=brief))
    return result


def comparison_turns(rng: Random) -> list[Turn]:
    """Ask for the difference between two concepts, in either order.

    A pair without an answer of its own gets the first sentences of the two definitions.
    """
    if rng.random() < 0.6:
        chosen = rng.choice(COMPARISONS)
        first, second = (BY_NAME[name] for name in rng.sample(chosen["pair"], 2))
        answer = chosen["answer"]
    else:
        first, second = rng.sample(CONCEPTS, 2)
        answer = f"{first_sentence(first['what'])} {first_sentence(second['what'])}"
        pair = {first["names"][0], second["names"][0]}
        answer = next((c["answer"] for c in COMPARISONS if set(c["pair"]) == pair), answer)
    a, b = rng.choice(first["names"]), rng.choice(second["names"])
    question = rng.choice(_QUESTIONS["compare"]).format(a=a, b=b)
    return [Turn(question[0].upper() + question[1:], answer)]


def prose(rng: Random) -> str:
    """Write a paragraph about one to three concepts, for completions such as "Prefill is"."""
    parts = []
    for concept in rng.sample(CONCEPTS, rng.choice((1, 1, 2, 3))):
        parts.append(concept["what"])
        parts += [concept[key] for key in ("why", "more") if rng.random() < 0.6]
    return " ".join(parts)
