"""Small talk, refusals, names, echoes, system prompts, and text around a question."""

from random import Random
from typing import Any, NamedTuple

from engine.training import values, words
from engine.training.documents import Turn

_CHAT = words.load("chat")
TALK: list[dict[str, Any]] = _CHAT["talk"]
DECLINES: list[dict[str, Any]] = _CHAT["decline"]
LISTS: dict[str, list[str]] = _CHAT["lists"]

_AROUND, _NAME, _SYSTEMS = _CHAT["around"], _CHAT["name"], _CHAT["systems"]


def dress(rng: Random, question: str) -> str:
    """Put greetings, context and politeness around a question; sometimes type it carelessly."""
    if rng.random() < 0.25:
        question = rng.choice(_AROUND["contexts"]) + question
    if rng.random() < 0.3:
        greeting: str = rng.choice(_AROUND["greetings"])
        if greeting.endswith((", ", ": ")) and question[1:2].islower():
            question = question[0].lower() + question[1:]
        question = greeting + question
    if rng.random() < 0.18:
        question += rng.choice(_AROUND["thanks"])
    careless = rng.random()
    if careless < 0.12:
        question = question.lower()
    if careless < 0.06 or careless > 0.9:
        question = question.rstrip("?.!")
    return question


def dress_lightly(rng: Random, question: str) -> str:
    """Put words around a question that leave its values as they are."""
    if rng.random() < 0.12:
        question = rng.choice(_AROUND["contexts"]) + question
    if rng.random() < 0.15:
        greetings = [one for one in _AROUND["greetings"] if not one.endswith((", ", ": "))]
        question = rng.choice(greetings) + question
    return question + rng.choice(_AROUND["thanks"]) if rng.random() < 0.1 else question


def _fill(rng: Random, template: str) -> str:
    slots: dict[str, object] = {name: rng.choice(options) for name, options in LISTS.items()}
    slots |= {"a": rng.randrange(2, 500), "b": rng.randrange(2, 100)}
    slots |= {"l": rng.choice("abcdefghilmnoprstu"), "word": words.counted_word(rng)}
    noise = words.nonsense_word(rng)
    return template.format(**slots, noise=noise)


def talk_turns(rng: Random) -> list[Turn]:
    """Make one exchange of small talk."""
    topic = rng.choice(TALK)
    return [Turn(rng.choice(topic["user"]), rng.choice(topic["answer"]))]


def decline_turns(rng: Random) -> list[Turn]:
    """Ask for something that the model cannot do; the answer says so."""
    topic = rng.choice(DECLINES)
    return [Turn(_fill(rng, rng.choice(topic["user"])), rng.choice(topic["answer"]))]


def name_turns(rng: Random) -> list[Turn]:
    """Tell the model a name and sometimes ask for it later, or ask without telling it first."""
    name = rng.choice(words.NAMES)
    if rng.random() < 0.15:
        name = words.nonsense_word(rng).capitalize()
    ask = rng.choice(_NAME["ask"])
    if rng.random() < 0.1:
        return [Turn(ask, "You have not told me your name yet.")]
    say = rng.choice(_NAME["say"]).format(n=name)
    result = [Turn(say, f"Nice to meet you, {name}!")]
    if rng.random() < 0.4:
        result += talk_turns(rng) if rng.random() < 0.5 else []
        result.append(Turn(ask, f"Your name is {name}."))
    return result


def echo_turns(rng: Random) -> list[Turn]:
    """Dictate a few words, which the model repeats."""
    pool = (words.NAMES, words.NAMES, words.THINGS, words.ANIMALS, words.FOODS, words.COUNTED_WORDS)
    made_up = rng.random() < 0.5  # words that can only be copied
    text = " ".join(
        values.draw(rng, rng.choice(("word", "code", "brand"))).text
        if made_up
        else rng.choice(rng.choice(pool))
        for _ in range(rng.randint(1, 6))
    )
    ask = rng.choice(_CHAT["echo"]["ask"])
    return [Turn(ask.format(t=text), text)]


class System(NamedTuple):
    """A system prompt and its effect on the answers: a key of ``_EFFECTS``, or "" for none."""

    text: str
    effect: str = ""
    word: str = ""

    def apply(self, turn: Turn) -> Turn:
        """Return the turn with the answer that this system prompt asks for."""
        answer = turn.answer
        match self.effect:
            case "opening":
                answer = f"{self.word} {answer}"
            case "closing":
                answer = f"{answer} {self.word}"
            case "name":
                answer = answer.replace(
                    "I am the small model", f"I am {self.word}, the small model"
                )
            case "brief":
                answer = turn.brief or answer
        return turn._replace(answer=answer)


# Each effect up to its limit; below the first number, a system prompt has no effect.
_NEUTRAL = 0.55
_EFFECTS = {"opening": 0.67, "closing": 0.79, "name": 0.88, "brief": 1.0}
_EFFECT_WORDS = {
    "opening": _SYSTEMS["opening_words"],
    "closing": _SYSTEMS["closing_words"],
    "name": words.NAMES,
}


def system(rng: Random) -> System:
    """Draw a system prompt: usually a neutral one, otherwise one with a visible effect."""
    neutral = rng.choice(_CHAT["neutral_systems"]["lines"])
    kind = rng.random()
    if kind < _NEUTRAL:
        return System(neutral)
    lead = f"{neutral} " if rng.random() < 0.4 else ""
    effect = next(effect for effect, limit in _EFFECTS.items() if kind < limit)
    word = rng.choice(_EFFECT_WORDS[effect]) if effect in _EFFECT_WORDS else ""
    return System(lead + rng.choice(_SYSTEMS[effect]).format(w=word), effect, word)
