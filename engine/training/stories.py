"""Stories: a plot is a list of beats, and a story takes one wording of each.

They teach a tiny model coherence: the hero of the first sentence keeps its name, kind and pronouns to
the end, and so does the friend. Names come from a long list, so the model must look back to get them
right.
"""

from random import Random
from typing import Any

from engine.training import words
from engine.training.documents import Turn
from engine.training.words import Character

_STORIES = words.load("stories")

REQUESTS: dict[str, list[str]] = _STORIES["requests"]


def story(
    rng: Random, hero: Character, plot: dict[str, Any] | None = None
) -> tuple[str, Character]:
    """Tell a story about ``hero``, 80 to 250 tokens long; also return the friend in it."""
    friend = words.character(rng)
    while friend.kind == hero.kind or friend.name == hero.name:
        friend = words.character(rng)
    slots = {slot: rng.choice(options) for slot, options in words.STORY_SLOTS.items()}
    for prefix, person in (("h", hero), ("f", friend)):
        slots |= {prefix.upper(): person.name, prefix: f"the {person.kind}"}
        article = words.with_article(person.kind)
        forms = {"e": person.he, "im": person.him, "is": person.his, "a": article}
        for suffix, form in forms.items():
            slots |= {prefix + suffix: form, prefix.upper() + suffix: form.capitalize()}
    plot = plot or rng.choice(_STORIES["plot"])
    beats = [_STORIES["openings"], _STORIES["traits"], *plot["beats"], _STORIES["endings"]]
    sentences = [rng.choice(beat).format(**slots) for beat in beats]
    return " ".join(sentence for sentence in sentences if sentence), friend


def plain_story(rng: Random) -> str:
    """Tell a story without a chat around it."""
    return story(rng, words.character(rng))[0]


def turns(rng: Random) -> list[Turn]:
    """Ask for a story, tell it, and sometimes ask a question about it."""
    how = rng.choices(("any", "theme", "kind", "name", "unknown"), (4, 2, 5, 4, 1))[0]
    plot = rng.choice(_STORIES["plot"])
    hero = words.character(rng)
    kind = rng.choice(words.UNKNOWN_ANIMALS) if how == "unknown" else hero.kind
    request = rng.choice(REQUESTS[how]).format(
        k=kind, ak=words.with_article(kind), n=hero.name, t=rng.choice(plot["themes"])
    )
    if how == "unknown":
        return [Turn(request, _STORIES["unknown_answer"])]
    text, friend = story(rng, hero, plot)
    result = [Turn(request, text)]
    if rng.random() < 0.3:
        asked = rng.choice((hero, friend))
        question, answer = rng.choice(_STORIES["questions"])
        person = {"n": asked.name, "k": asked.kind, "ak": words.with_article(asked.kind)}
        people = {"h": hero.name, "f": friend.name}
        result.append(Turn(question.format(**person), answer.format(**person, **people)))
    return result
