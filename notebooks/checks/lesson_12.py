"""Lesson 12: reading along with a sample, and answering its tool calls."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from checks.broken import Broken
from checks.guard import watched
from checks.judging import judge
from engine.output.calculator import evaluate
from engine.output.tool_use import Tool, ToolTokens, ToolUse
from engine.text.byte_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()
_marks = ToolTokens.of(TOKENIZER)
assert _marks is not None
MARKS = _marks
START, END = "<|python_start|>", "<|python_end|>"
# A word reaches a state letter by letter: a letter is a token here.
WORDS = (START, END, "7", "-5", "1/0", "2**9", "12*3", "six")
# The count is 2; 3 if half letters become equal replacement characters, 1 if they are dropped.
ACCENTS = "'éèé'.count('é')"


@dataclass(frozen=True)
class Reading:
    """What samples write, word by word, as it would reach their states: (sample, word)."""

    words: tuple[tuple[int, str], ...]

    def __str__(self) -> str:
        samples = {sample for sample, _ in self.words}
        if len(samples) == 1:
            return f"One sample writes {' '.join(word for _, word in self.words)}"
        told = [f"{sample}: {word}" for sample, word in self.words]
        return f"Two samples write by turns; {', '.join(told)}."


def check(state: type) -> type[Tool]:
    """Say how the class `state` does, and give it back; the engine's own while it fails."""
    verdict = judge(state, cases(), attempt)
    print(verdict)
    return state if verdict.passed else ToolUse


def cases() -> list[Reading]:
    """Every short text, and then two samples that write by turns; the shortest first."""
    short = [
        Reading(tuple((0, word) for word in words))
        for length in range(1, 5)
        for words in product((START, END, "7", "-5", "2**9"), repeat=length)
    ]
    short.append(Reading(tuple((0, word) for word in (START, ACCENTS, END))))
    calls = (f"{START} 17+25 {END}", f"{START} 2**9 {END} so", f"3 {END} {START} 12*3 {END} {END}")
    chance = random.Random(12)
    for _ in range(120):
        words = [(sample, word) for sample in (0, 1) for word in chance.choice(calls).split()]
        short.append(Reading(tuple(_shuffled(words, chance))))
        noise = [(sample, chance.choice(WORDS)) for sample in (0, 1) for _ in range(6)]
        short.append(Reading(tuple(_shuffled(noise, chance))))
    return sorted(short, key=lambda one: (len(one.words), len(str(one))))


def _shuffled(words: list[tuple[int, str]], chance: random.Random) -> Iterator[tuple[int, str]]:
    """The words of two samples by turns, each sample's in their order."""
    left = {sample: [word for owner, word in words if owner == sample] for sample in (0, 1)}
    while left[0] or left[1]:
        sample = chance.choice([one for one in (0, 1) if left[one]])
        yield sample, left[sample].pop(0)


def attempt(state: type, reading: Reading) -> None:
    """Feed samples' words to their states, and hold each answer against the promises."""
    with watched(state):
        states: dict[int, _Sample] = {}
        for sample, word in reading.words:
            if sample not in states:
                states[sample] = _Sample(state)
            states[sample].read(word)


class _Sample:
    """A sample's state as the learner wrote it, and the engine's own beside it."""

    def __init__(self, state: type) -> None:
        self._make = state
        self._mine = state(MARKS, TOKENIZER, evaluate)
        self._due = ToolUse(MARKS, TOKENIZER, evaluate)
        self._fed: list[int] = []

    def read(self, word: str) -> None:
        """Feed a word, and judge the answers."""
        for token in TOKENIZER.encode(word)[1:]:
            self._fed.append(token)
            call = None if self._due.call is None else list(self._due.call)
            due = self._due.feed(token)
            answer = self._mine.feed(token)
            if answer != due:
                _judge_answer(answer, due, token, call, alone=self._alone())

    def _alone(self) -> Any:
        """What the same tokens give with nobody else there."""
        fresh = self._make(MARKS, TOKENIZER, evaluate)
        return [fresh.feed(token) for token in self._fed][-1]


def _judge_answer(
    answer: Any, due: list[int], token: int, call: list[int] | None, alone: Any
) -> None:
    """`call` is what was open before `token`; `alone` is the answer without the other sample."""
    if not isinstance(answer, list) or not all(isinstance(one, int) for one in answer):
        raise Broken(
            f"feed() gave {answer!r}.",
            "feed() gives a list of token ids, empty where nothing is to be forced",
            "What does every way through feed() return?",
        )
    did = f"After {TOKENIZER.decode([token])}, you forced {_text(answer)}."
    expression = TOKENIZER.decode(call or [])
    if alone == due:
        raise Broken(
            did,
            "each sample is answered for itself",
            f"Alone, this sample gets {_text(alone)}. What do two states of yours share?",
        )
    if token != MARKS.call_end:
        raise Broken(
            did,
            f"tokens are forced after {END} and nowhere else",
            "A call is complete when the model says so.",
        )
    if call is None:
        raise Broken(did, "an end without a start forces nothing", "No call was open here.")
    if not due:
        raise Broken(
            did,
            "what cannot be evaluated forces nothing",
            f"evaluate({expression!r}) is None, and that is what came after the latest {START}: no "
            "answer, and no words about it either.",
        )
    if not expression.isascii():
        raise Broken(
            did,
            "the text of a call is what its tokens say together",
            f"The call was {expression!r}. An é is two tokens: what does decode() make of one alone?",
        )
    if not answer:
        raise Broken(
            did,
            "a complete call is answered",
            f"The call was {expression!r}, and evaluate() knows the answer.",
        )
    raise Broken(
        did,
        "what is forced is output_start, the result as text, output_end",
        f"The call that was open is {expression!r}: what came after the latest {START}.",
    )


def _text(answer: Any) -> str:
    return TOKENIZER.decode(list(answer)) or "nothing"
