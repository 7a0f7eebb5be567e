"""Lesson 12: a state machine that follows a sample and answers its tool calls."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from checks.answer import Answer
from checks.broken import Promises
from checks.guard import watched
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.output.tool_use import Tool, ToolTokens, ToolUse
from engine.extensions.calculator import evaluate

TOKENIZER = ByteTokenizer()
_marks = ToolTokens.of(TOKENIZER)
assert _marks is not None
MARKS = _marks
START, END = "<|python_start|>", "<|python_end|>"

ANSWERS = {
    "last": Answer(
        20,
        {
            24: "One step for each token that the model has to find. Must it find these four?",
            21: "One step to read the result? The step that reads it samples the next token, too.",
            43: "That was with a second request in the queue. This one never leaves its seat.",
        },
    ),
    "own": Answer(
        "8 of 12",
        {
            "all 12": "That would be fair: the other four are not sampled. But they take up memory.",
            "10 of 12": "The two digits are forced. The two marks around them are forced as well.",
            "7 of 12": "Those are the call. What is left after it and its result?",
        },
        fits=lambda chosen: chosen == 8,
    ),
}
HINTS = (
    "Two states are enough: no call is open (None), or one is, with the ids that it contains so far.",
    "At the end of a call, close it first. Then decode all of its ids together and evaluate the text; "
    "return the ids of the mark, the result and the mark, or [] if there is no result.",
)


class Promise(Promises):
    """The promises that the check tests."""

    LIST = "feed() returns a list of token ids, empty if nothing is forced"
    OWN_STATE = "each sample has a state of its own"
    ONLY_AFTER_END = f"tokens are forced after {END} and nowhere else"
    NO_START = "an end without a start forces nothing"
    NO_RESULT = "a call that cannot be evaluated forces nothing"
    DECODED_TOGETHER = "the text of a call is that of all its tokens together"
    ANSWERED = "a complete call is answered"
    FRAMED = "the forced tokens are output_start, the result as text, output_end"


# A state gets a word letter by letter: a letter is a token here.
WORDS = (START, END, "7", "-5", "1/0", "2**9", "12*3", "six")
# The count is 2; 3 if half letters become equal replacement characters, 1 if they are dropped.
ACCENTS = "'éèé'.count('é')"


@dataclass(frozen=True)
class Reading:
    """The words that samples write, in order: (sample, word)."""

    words: tuple[tuple[int, str], ...]

    def __str__(self) -> str:
        samples = {sample for sample, _ in self.words}
        if len(samples) == 1:
            return f"One sample writes {' '.join(word for _, word in self.words)}"
        turns = [f"{sample}: {word}" for sample, word in self.words]
        return f"Two samples write by turns; {', '.join(turns)}."


def adapt(state: type | None) -> type[Tool]:
    """Return the learner's class, or the engine's own until that passes."""
    return state or ToolUse


def cases() -> list[Reading]:
    """Return all short texts, and two samples that write by turns; the shortest first."""
    short = [
        Reading(tuple((0, word) for word in words))
        for length in range(1, 5)
        for words in product((START, END, "7", "-5", "2**9"), repeat=length)
    ]
    short.append(Reading(tuple((0, word) for word in (START, ACCENTS, END))))
    short.append(Reading(tuple((0, word) for word in (START, "7", END, START, "-5", END))))
    calls = (f"{START} 17+25 {END}", f"{START} 2**9 {END} so", f"3 {END} {START} 12*3 {END} {END}")
    chance = random.Random(12)
    for _ in range(120):
        words = [(sample, word) for sample in (0, 1) for word in chance.choice(calls).split()]
        short.append(Reading(tuple(_shuffled(words, chance))))
        noise = [(sample, chance.choice(WORDS)) for sample in (0, 1) for _ in range(6)]
        short.append(Reading(tuple(_shuffled(noise, chance))))
    return sorted(short, key=lambda one: (len(one.words), len(str(one))))


def _shuffled(words: list[tuple[int, str]], chance: random.Random) -> Iterator[tuple[int, str]]:
    """Yield the words of two samples by turns; each sample's words keep their order."""
    left = {sample: [word for owner, word in words if owner == sample] for sample in (0, 1)}
    while left[0] or left[1]:
        sample = chance.choice([one for one in (0, 1) if left[one]])
        yield sample, left[sample].pop(0)


def attempt(state: type, reading: Reading) -> None:
    """Feed the samples' words to their states and check each answer."""
    with watched(state):
        states: dict[int, _Sample] = {}
        for sample, word in reading.words:
            if sample not in states:
                states[sample] = _Sample(state)
            states[sample].read(word)


class _Sample:
    """A learner's state for one sample, and the engine's own for comparison."""

    def __init__(self, state: type) -> None:
        self._make = state
        self._mine = state(MARKS, TOKENIZER, evaluate)
        self._due = ToolUse(MARKS, TOKENIZER, evaluate)
        self._fed: list[int] = []

    def read(self, word: str) -> None:
        """Feed a word and check the answers."""
        for token in TOKENIZER.encode(word)[1:]:
            self._fed.append(token)
            call = None if self._due.call is None else list(self._due.call)
            due = self._due.feed(token)
            answer = self._mine.feed(token)
            if not isinstance(answer, list) or answer != due:
                _judge_answer(answer, due, token, call, alone=self._alone())

    def _alone(self) -> Any:
        """Return the last answer to the same tokens without another sample."""
        fresh = self._make(MARKS, TOKENIZER, evaluate)
        return [fresh.feed(token) for token in self._fed][-1]


def _judge_answer(
    answer: Any, due: list[int], token: int, call: list[int] | None, alone: Any
) -> None:
    """Raise Broken. `call` was open before `token`; `alone` is the answer without the other sample."""
    if not isinstance(answer, list) or not all(isinstance(one, int) for one in answer):
        raise Promise.LIST.broken(
            f"feed() returned {answer!r}.", "What does each path through feed() return?"
        )
    did = f"After {TOKENIZER.decode([token])}, you forced {_text(answer)}."
    expression = TOKENIZER.decode(call or [])
    if alone == due:
        raise Promise.OWN_STATE.broken(
            did,
            f"A new state that reads the same forces {_text(alone)}. What does your state share with "
            "the states made before it or beside it?",
        )
    if token != MARKS.call_end:
        raise Promise.ONLY_AFTER_END.broken(did, "A call ends with that token.")
    if call is None:
        raise Promise.NO_START.broken(did, "No call was open here.")
    if not due:
        raise Promise.NO_RESULT.broken(
            did,
            f"evaluate({expression!r}) is None, and that came after the latest {START}: force no "
            "result, and no error text either.",
        )
    if not expression.isascii():
        raise Promise.DECODED_TOGETHER.broken(
            did,
            f"The call was {expression!r}. An é is two tokens. What does decode() return for one?",
        )
    if not answer:
        raise Promise.ANSWERED.broken(
            did, f"The call was {expression!r}, and evaluate() has a result."
        )
    raise Promise.FRAMED.broken(did, f"The open call is {expression!r}, after the latest {START}.")


def _text(answer: Any) -> str:
    return TOKENIZER.decode(list(answer)) or "nothing"
