"""Small talk, plain refusals, names, echoes, and what people wrap around a question."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from engine.training import words
from engine.training.data import load
from engine.training.documents import Turn

_CHAT = load("chat")
TALK: list[dict[str, Any]] = _CHAT["talk"]
DECLINES: list[dict[str, Any]] = _CHAT["decline"]
LISTS: dict[str, list[str]] = _CHAT["lists"]

GREETINGS = (
    "Hi! |Hello! |Hello, |Hi, |Hey, |Hey! |Hi there! |Good morning! |Good evening. |Hey there, |"
    "Excuse me, |Please, |Sorry, |OK, |Okay, |So, |Well, |Now, |Um, |Hmm, |Quick question: |"
    "Question: |One question: |I have a question. |Another question. |Next question. |"
    "Can I ask you something? |May I ask you something? |Dear model, |Hey Underglass, |Hello robot, |"
    "Tell me, |Just wondering: |By the way, |Oh, |And now: |Listen: |First question: |Right. "
).split("|")
CONTEXTS = (
    "I am a student. |I am new here. |I am doing my homework. |We have a test tomorrow. |"
    "I am reading a paper. |I am learning about LLM serving. |I read about vLLM yesterday. |"
    "My teacher asked me this. |I need it for my work. |I hope you can help me. |You can do it. |"
    "This is important. |I am in a hurry. |I am curious. |I always forget this. |Let me test you. |"
    "I sit in a class with thirty others. |I just started the server. |It is a rainy day. |"
    "My friend wants to know this. |I have been thinking. |Let us try something. |"
    "This may be a silly question. |I would be glad about an answer. "
).split("|")
THANKS = (
    " Thanks!| Thank you!| Thank you very much.| Thanks a lot.| Please.| Please!| please| thanks|"
    " I would be glad to know.| Can you help?| Be quick.| I am curious.| Just the answer, please.|"
    " It is for my homework.| Do you know?| Take your time.| Go on!| Come on!| Help!| If you can."
    "| As fast as you can.| I have no clue.| Show me.| Right now, please.| Be honest.| My friend."
).split("|")


def dress(rng: Random, question: str) -> str:
    """Put greetings, context and politeness around a question; at times type it carelessly."""
    if rng.random() < 0.25:
        question = rng.choice(CONTEXTS) + question
    if rng.random() < 0.3:
        greeting = rng.choice(GREETINGS)
        if greeting.endswith((", ", ": ")) and question[1:2].islower():
            question = question[0].lower() + question[1:]
        question = greeting + question
    if rng.random() < 0.18:
        question += rng.choice(THANKS)
    careless = rng.random()
    if careless < 0.12:
        question = question.lower()
    if careless < 0.06 or careless > 0.9:
        question = question.rstrip("?.!")
    return question


def _fill(rng: Random, template: str) -> str:
    slots: dict[str, object] = {name: rng.choice(options) for name, options in LISTS.items()}
    slots |= {"a": rng.randrange(2, 500), "b": rng.randrange(2, 100)}
    slots |= {"l": rng.choice("abcdefghilmnoprstu"), "word": words.counted_word(rng)}
    noise = words.nonsense_word(rng)
    return template.format(**slots, noise=noise)


def talk_turns(rng: Random) -> list[Turn]:
    """One exchange of small talk."""
    topic = rng.choice(TALK)
    return [Turn(rng.choice(topic["user"]), rng.choice(topic["answer"]))]


def decline_turns(rng: Random) -> list[Turn]:
    """A wish the model cannot fulfil, and the sentence that says so."""
    topic = rng.choice(DECLINES)
    return [Turn(_fill(rng, rng.choice(topic["user"])), rng.choice(topic["answer"]))]


def name_turns(rng: Random) -> list[Turn]:
    """The user says their name, and the model is asked for it later, or asked without that."""
    name = rng.choice(words.GIRLS + words.BOYS)
    if rng.random() < 0.15:
        name = words.nonsense_word(rng).capitalize()
    ask = rng.choice(
        (
            "What is my name?",
            "Do you know my name?",
            "Who am I?",
            "Do you remember my name?",
            "What was my name again?",
            "Can you tell me my name?",
        )
    )
    if rng.random() < 0.1:
        return [Turn(ask, "You have not told me your name yet.")]
    say = rng.choice(
        (
            "My name is {n}.",
            "I am {n}.",
            "Hello, I am {n}.",
            "Hi! My name is {n}.",
            "You can call me {n}.",
            "Hi, {n} here.",
            "People call me {n}.",
            "Hello, my name is {n}!",
            "I'm {n}.",
        )
    ).format(n=name)
    result = [Turn(say, f"Nice to meet you, {name}!")]
    if rng.random() < 0.4:
        result += talk_turns(rng) if rng.random() < 0.5 else []
        result.append(Turn(ask, f"Your name is {name}."))
    return result


def echo_turns(rng: Random) -> list[Turn]:
    """The user dictates a few words, the model repeats them."""
    names = words.GIRLS + words.BOYS
    pool = (names, names, words.THINGS, words.ANIMALS, words.FOODS, words.COUNTED_WORDS)
    text = " ".join(rng.choice(rng.choice(pool)) for _ in range(rng.randint(1, 6)))
    ask = rng.choice(
        (
            "Say: {t}",
            "Repeat: {t}",
            "Repeat after me: {t}",
            "Please repeat: {t}",
            "Echo: {t}",
            "Say after me: {t}",
        )
    )
    return [Turn(ask.format(t=text), text)]


@dataclass(frozen=True)
class System:
    """A system prompt and what it changes about the answers."""

    text: str
    opening: str = ""
    closing: str = ""
    name: str = ""
    brief: bool = False

    def apply(self, turn: Turn) -> Turn:
        """The turn as it goes under this system prompt."""
        answer = turn.answer
        if self.brief and turn.brief:
            answer = turn.brief
        if self.name:
            answer = answer.replace(
                "I am the small model that", f"I am {self.name}, the small model that"
            )
        return turn._replace(answer=f"{self.opening}{answer}{self.closing}")


def system(rng: Random) -> System:
    """A system prompt: mostly one that changes nothing, else one with a visible effect."""
    neutral = rng.choice(_CHAT["neutral_systems"]["lines"])
    kind = rng.random()
    if kind < 0.55:
        return System(neutral)
    lead = f"{neutral} " if rng.random() < 0.4 else ""
    if kind < 0.67:
        word = rng.choice(("Ahoy!", "Sure!", "Of course!", "Beep boop!", "Howdy!", "Aha!", "Well,"))
        ask = rng.choice(
            ("Start every answer with {w}", "Begin each answer with {w}", "Always say {w} first.")
        )
        return System(lead + ask.format(w=word), opening=f"{word} ")
    if kind < 0.79:
        word = rng.choice(
            ("Over and out.", "Have a nice day!", "Good luck!", "Stay curious!", "Beep!")
        )
        ask = rng.choice(
            ("End every answer with {w}", "Finish each answer with {w}", "Always close with {w}")
        )
        return System(lead + ask.format(w=word), closing=f" {word}")
    if kind < 0.88:
        name = rng.choice(words.GIRLS + words.BOYS)
        ask = rng.choice(
            ("Your name is {n}.", "You are called {n}.", "You are {n}.", "People call you {n}.")
        )
        return System(lead + ask.format(n=name), name=name)
    ask = rng.choice(
        (
            "Answer in one sentence.",
            "Be brief.",
            "Keep your answers short.",
            "Use one sentence only.",
            "Short answers, please.",
        )
    )
    return System(lead + ask, brief=True)
