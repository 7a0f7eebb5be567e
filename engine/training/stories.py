"""Stories: a plot is a list of beats, and a story takes one wording of each.

What a tiny model can learn from them is what makes text hang together: the hero met in the
first sentence keeps name, kind and pronouns to the end, and so does the friend. Names are drawn
from a long list, so the only way to get them right is to look back.
"""

from __future__ import annotations

from random import Random
from typing import Any

from engine.training import words
from engine.training.data import load
from engine.training.documents import Turn
from engine.training.words import Character

_STORIES = load("stories")

# {k} is "fox", {ak} "a fox", {n} a name, {t} what a plot is about.
REQUESTS = {
    "any": (
        "Tell me a story.|Tell me a story!|Tell a story.|Please tell me a story.|A story, please.|"
        "Can you tell me a story?|Could you tell me a story?|Do you know a story?|I want a story.|"
        "I would like to hear a story.|Write a story.|Write a short story.|Story time!|story|"
        "Tell me a short story.|Tell me a bedtime story.|Make up a story.|Tell me something nice.|"
        "Give me a story.|Another story, please.|Please write a story for children.|"
        "I cannot sleep. Tell me a story.|Once upon a time|Tell me a tale.|Do you know any tales?"
    ).split("|"),
    "theme": (
        "Tell me a story about {t}.|Write a story about {t}.|A story about {t}, please.|"
        "Do you know a story about {t}?|Can you tell me a story about {t}?|Story about {t}|"
        "I want to hear a story about {t}.|Make up a story about {t}.|Write about {t}."
    ).split("|"),
    "kind": (
        "Tell me a story about {ak}.|Tell me a story about {ak}!|Write a story about {ak}.|"
        "Can you tell me a story about {ak}?|I want a story about {ak}.|A story about {ak}, please.|"
        "Do you know a story about {ak}?|Please tell me a story about {ak}.|Tell a tale of {ak}.|"
        "Write a short story about {ak}.|Make up a story about {ak}.|Tell me about {ak}.|"
        "I would like a story with {ak}.|Could you write a story about {ak} for me?|{k} story|"
        "Tell my child a story about {ak}.|Story about {ak}|The story should be about {ak}.|"
        "I like {k} stories. Tell me one.|I love stories about {ak}. Do you know one?"
    ).split("|"),
    "name": (
        "Tell me a story about {ak} named {n}.|Tell me a story about {n} the {k}.|"
        "Tell me a story about {ak} called {n}.|Write a story about {n}, {ak}.|"
        "I want a story about {n} the {k}.|Can you tell me a story about {ak} named {n}?|"
        "Write a short story about {ak} called {n}.|A story about {n} the {k}, please.|"
        "Make up a story. It is about {ak} named {n}.|Please tell the story of {n} the {k}."
    ).split("|"),
    "unknown": (
        "Tell me a story about {ak}.|Write a story about {ak}.|Can you tell me a story about {ak}?|"
        "I want a story about {ak}.|A story about {ak}, please.|Do you know a story about {ak}?|"
        "Tell me a story about {ak} named {n}.|Tell me a story about {n} the {k}."
    ).split("|"),
}
UNKNOWN_ANSWER = (
    "I know no stories about that. I know foxes, owls, bears, rabbits and other animals."
)


def story(
    rng: Random, hero: Character, plot: dict[str, Any] | None = None
) -> tuple[str, Character]:
    """A story about ``hero``, 80 to 250 tokens long, and the friend who appears in it."""
    friend = words.character(rng)
    while friend.kind == hero.kind or friend.name == hero.name:
        friend = words.character(rng)
    slots = {
        "home": rng.choice(words.HOMES),
        "place": rng.choice(words.PLACES),
        "food": rng.choice(words.FOODS),
        "thing": rng.choice(words.THINGS),
        "color": rng.choice(words.COLORS),
        "weather": rng.choice(words.WEATHERS),
        "sound": rng.choice(words.SOUNDS),
    }
    for prefix, person in (("h", hero), ("f", friend)):
        slots[prefix.upper()] = person.name
        slots[prefix] = f"the {person.kind}"
        slots[f"{prefix}e"], slots[f"{prefix}im"] = person.he, person.him
        slots[f"{prefix}is"], slots[f"{prefix.upper()}e"] = person.his, person.he.capitalize()
        slots[f"{prefix.upper()}is"] = person.his.capitalize()
        article = words.with_article(person.kind)
        slots[f"a{prefix}"], slots[f"{prefix}a"] = article, article
        slots[f"{prefix.upper()}a"] = article.capitalize()
    plot = plot or rng.choice(_STORIES["plot"])
    beats = [_STORIES["openings"], _STORIES["traits"], *plot["beats"], _STORIES["endings"]]
    sentences = [rng.choice(beat).format(**slots) for beat in beats]
    return " ".join(sentence for sentence in sentences if sentence), friend


def plain_story(rng: Random) -> str:
    """A story without any chat around it."""
    return story(rng, words.character(rng))[0]


def turns(rng: Random) -> list[Turn]:
    """A request for a story, the story, and now and then a question about it."""
    how = rng.choices(("any", "theme", "kind", "name", "unknown"), (4, 2, 5, 4, 1))[0]
    plot = rng.choice(_STORIES["plot"])
    hero = words.character(rng)
    kind = rng.choice(words.UNKNOWN_ANIMALS) if how == "unknown" else hero.kind
    request = rng.choice(REQUESTS[how]).format(
        k=kind, ak=words.with_article(kind), n=hero.name, t=rng.choice(plot["themes"])
    )
    if how == "unknown":
        return [Turn(request, UNKNOWN_ANSWER)]
    text, friend = story(rng, hero, plot)
    result = [Turn(request, text)]
    if rng.random() < 0.3:
        person = rng.choice((hero, friend))
        result.append(
            rng.choice(
                (
                    Turn(
                        f"What was the name of the {person.kind}?",
                        f"The {person.kind} was called {person.name}.",
                    ),
                    Turn(
                        f"What was the {person.kind} called?",
                        f"The {person.kind} was called {person.name}.",
                    ),
                    Turn(
                        f"Who was {person.name}?",
                        f"{person.name} was {words.with_article(person.kind)}.",
                    ),
                    Turn(
                        "Who was the story about?", f"It was about {hero.name} and {friend.name}."
                    ),
                )
            )
        )
    return result
