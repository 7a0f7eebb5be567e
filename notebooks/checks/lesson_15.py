"""Lesson 15: which tokens may come next, so that the output keeps its shape?"""

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, ClassVar

from checks.answer import Answer
from checks.broken import Promises
from checks.guard import call
from checks.judging import counted, listed
from engine import Engine, SamplingParams
from engine.core.request import Constraint
from engine.core.tokenizer import Tokenizer
from engine.extensions.grammars.constraint import Beginning, GrammarConstraint
from engine.extensions.grammars.regex_mask import automaton

Moves = dict[tuple[int, str], int]
Shape = tuple[Moves, Collection[int]]
Mask = Callable[..., Any]

ANSWERS = {
    "choices": Answer(
        10,
        {
            2: "The text has two fields to fill in, but a token is not a character: many texts can be "
            "cut into tokens in several ways.",
            4: "That is the number of tokens without a choice.",
            14: "A mask is not advice: it leaves only what fits, and often that is one token.",
        },
        source="The automaton",
    ),
    "sum": Answer(
        '{"sum": 17}',
        {
            '{"sum": 42}': "It gave this answer before, but the calculator found it, and the mask "
            "forbids the call.",
            '{"sum": 25}': "It does copy a number of the question. But which one?",
            "an error": "The model hardly wants any of the allowed tokens, but one of them is always "
            "the likeliest.",
        },
        source="The engine",
    ),
}
HINTS = (
    "Write a loop that walks one token: start in `state`, look up each character in moves, and stop at "
    "the first that has no entry. Then use it for every token.",
    "Two tokens are special. A token without characters would be walked at once and for ever, so "
    "forbid it. The token `eos` has nothing to do with moves, because it depends on `accepting` alone.",
)


class Promise(Promises):
    """The promises that the check tests."""

    LIST = "the answer is a list with True or False for each token of the vocabulary"
    ALL = "a token is allowed only if all its characters can be walked, one after the other"
    WALKED = "a token whose characters can all be walked from the state is allowed"
    EACH = "each token is walked from the same state, whatever came before it in the vocabulary"
    EMPTY = "a token without characters is not allowed"
    END = "the end token is allowed in an accepting state"
    NOT_THE_END = "the end token is not allowed before an accepting state"
    NO_TOKEN = "if no token is allowed, it raises a ValueError"


PATTERNS = (
    "ab",
    "a(x|y)",
    "a*",
    "(ab)*",
    "[0-9]{1,2}",
    "cat|cow",
    "<[a-z]{1,4}>",
    "(yes|no)!?",
    '": "(owl|fox)"',
    r'\{"n": [0-9]\}',
)


def adapt(mask: Mask | None) -> type[Engine]:
    """Return an engine class that asks the learner's mask if it passed."""
    if mask is None:
        return Engine
    return type("YourEngine", (YourEngine,), {"mask": staticmethod(mask)})


def shape_of(pattern: str) -> Shape:
    """Return the automaton of an expression, with a character for each byte."""
    moves, accepting = automaton(pattern)
    return {(state, chr(byte)): after for (state, byte), after in moves.items()}, set(accepting)


def walk(moves: Moves, state: int, text: str) -> int | None:
    """Return the state after `text`; None if a character has no move."""
    after: int | None = state
    for character in text:
        after = None if after is None else moves.get((after, character))
    return after


@dataclass(frozen=True)
class Question:
    """What the learner is asked: a shape, the state after `text`, and a vocabulary."""

    pattern: str
    text: str
    vocab: tuple[str, ...]
    eos: int

    @property
    def shape(self) -> Shape:
        """(moves, accepting), as the learner gets them."""
        return _shape_of(self.pattern)

    @property
    def state(self) -> int:
        """The state after `text`."""
        state = walk(self.shape[0], 0, self.text)
        assert state is not None
        return state

    def due(self) -> list[bool]:
        """Return the right answer."""
        moves, accepting = self.shape
        allowed = [one != "" and walk(moves, self.state, one) is not None for one in self.vocab]
        allowed[self.eos] = self.state in accepting
        return allowed

    def __str__(self) -> str:
        vocab = [repr(one) for one in self.vocab]
        vocab[self.eos] += " (eos)"
        after = f"After {self.text!r}" if self.text else "At the start"
        return (
            f"The shape {self.pattern}. {after}, in state {self.state}. "
            f"Vocabulary: {listed(vocab)}."
        )


_shape_of = cache(shape_of)


def cases() -> list[Question]:
    """Return questions about the states of all PATTERNS, the smallest first."""
    chance = random.Random(15)
    questions = []
    for pattern in PATTERNS:
        for text in _texts(pattern):
            pool = _tokens(pattern, text)
            for size in (1, 2, 2, 3, 3, 4, 6):
                tokens = chance.sample(pool, min(size, len(pool)))
                eos = chance.randrange(len(tokens) + 1)
                tokens.insert(eos, chance.choice(("", "<end>")))
                questions.append(Question(pattern, text, tuple(tokens), eos))
    return sorted(questions, key=lambda one: (len(one.vocab), len(one.pattern), len(one.text)))


def _texts(pattern: str) -> list[str]:
    """Return a shortest text to each state."""
    moves, _ = _shape_of(pattern)
    texts = {0: ""}
    for state in (queue := [0]):  # grows while the loop runs
        for (before, character), after in moves.items():
            if before == state and after not in texts:
                texts[after] = texts[state] + character
                queue.append(after)
    return list(texts.values())


def _tokens(pattern: str, text: str) -> list[str]:
    """Return tokens that can be walked after `text`, and others that nearly can."""
    moves, _ = _shape_of(pattern)
    start = walk(moves, 0, text)
    walked = [("", start)]
    for token, state in walked:  # grows while the loop runs
        if len(token) < 3:
            nexts = [(char, after) for (before, char), after in moves.items() if before == state]
            walked += [(token + char, after) for char, after in nexts[:3]]
    fitting = [token for token, _ in walked if token]
    others = [token + wrong for token in fitting[:4] for wrong in "x "]
    others += [pattern[:1], pattern[1:3], text[-2:], text[-1:] + "b"]
    return sorted({*fitting[:9], *others, ""})


def attempt(mask: Mask, question: Question) -> None:
    """Check the answer to a question, the end token first."""
    due = question.due()
    answer, error = _answer(mask, question)
    if answer[question.eos] != due[question.eos]:
        _judge_end(question, error)
    for token, mine, right in zip(question.vocab, answer, due, strict=True):
        if mine != right:
            _judge_token(mask, question, token, error or _did(token, mine))
    if not any(due) and not error:
        raise Promise.NO_TOKEN.broken(
            f"You returned False for {counted(len(due), 'token')}, and no error.",
            f"In state {question.state} the text may not end, and no token fits. What would a sampler "
            "choose?",
        )


def _did(token: str, allowed: bool) -> str:
    return f"You allowed {token!r}." if allowed else f"You did not allow {token!r}."


def _answer(mask: Mask, question: Question) -> tuple[list[bool], str]:
    """Return the learner's answer. A ValueError allows no token; its words are the second value."""
    error = ""

    @wraps(mask)
    def caught(*arguments: Any) -> Any:
        nonlocal error
        try:
            return mask(*arguments)
        except ValueError as raised:
            error = (
                f"You raised a ValueError: {raised}." if str(raised) else "You raised a ValueError."
            )
            return [False] * len(question.vocab)

    answer = call(caught, question.shape, question.state, list(question.vocab), question.eos)
    found = list(answer) if isinstance(answer, Collection) else [answer]
    if len(found) != len(question.vocab) or any(one not in (True, False) for one in found):
        raise Promise.LIST.broken(
            f"You returned {answer!r}.",
            f"The vocabulary has {counted(len(question.vocab), 'token')}.",
        )
    return found, error


def _judge_end(question: Question, error: str) -> None:
    state, (_, accepting) = question.state, question.shape
    if state in accepting:
        raise Promise.END.broken(
            error or "You did not allow the end token.",
            f"State {state} is accepting: {question.text!r} is a finished answer. It would have to go "
            "on.",
        )
    raise Promise.NOT_THE_END.broken(
        "You allowed the end token.",
        f"The text may end in state {listed(sorted(accepting))}. This is state {state}: the answer "
        f"would be {question.text!r}, and no more.",
    )


def _judge_token(mask: Mask, question: Question, token: str, did: str) -> None:
    """Raise Broken for a token that the learner allowed wrongly, or did not allow."""
    state, (moves, accepting) = question.state, question.shape
    if token == "":
        raise Promise.EMPTY.broken(
            did, f"It leads from state {state} to state {state}. What comes after it?"
        )
    alone = Question(question.pattern, question.text, (token, ""), eos=1)
    if question.vocab[0] != token and _answer(mask, alone)[0][0] == alone.due()[0]:
        raise Promise.EACH.broken(
            did,
            f"With {token!r} as the only other token, your answer is right. What does one token leave "
            "behind for the next?",
        )
    way, end = _way(moves, state, token), walk(moves, state, token)
    if end is None:
        if walk(moves, 0, token) is not None:
            way += " It can be walked from state 0. Where does this text stand?"
        raise Promise.ALL.broken(did, way)
    if end not in accepting:
        way += f" State {end} is not accepting, but the text may go on."
    raise Promise.WALKED.broken(did, way)


def _way(moves: Moves, state: int, token: str) -> str:
    """Return where the characters of a token lead, as a sentence."""
    steps: list[str] = []
    for character in token:
        after = moves.get((state, character))
        if after is None:
            nexts = sorted(char for before, char in moves if before == state)
            follow = f"only {listed(map(repr, nexts))}" if len(nexts) < 6 else "others"
            words = f"In state {state}, {character!r} cannot follow"
            return " ".join([*steps, f"{words}; {follow if nexts else 'nothing'} can."])
        steps.append(f"In state {state}, {character!r} leads to state {after}.")
        state = after
    return " ".join(steps)


class YourEngine(Engine):
    """An engine that asks a learner's mask which tokens keep a regular expression's shape."""

    mask: ClassVar[Mask]

    def constraint(self, params: SamplingParams) -> Constraint | None:
        """See `Engine`."""
        shape = params.structured
        if shape is None or shape.kind != "regex":
            return super().constraint(params)
        vocab, ends = vocabulary_of(self.tokenizer), self.tokenizer.eos_ids
        matcher = YourMatcher(type(self).mask, shape_of(shape.text), vocab, ends)
        return GrammarConstraint(Beginning(lambda: matcher), ends, ignore_eos=params.ignore_eos)


class YourMatcher:
    """A matcher whose masks come from the learner; see `Matcher` in `constraint.py`."""

    def __init__(
        self, mask: Mask, shape: Shape, vocab: Sequence[str], end_ids: frozenset[int]
    ) -> None:
        self._mask, self._shape, self._vocab, self._end_ids = mask, shape, vocab, end_ids
        self._tokens: list[int] = []

    @property
    def _state(self) -> int:
        text = "".join(self._vocab[token] for token in self._tokens)
        state = walk(self._shape[0], 0, text)
        assert state is not None  # each token was allowed
        return state

    def deep_copy(self) -> "YourMatcher":
        """See `Matcher`."""
        other = YourMatcher(self._mask, self._shape, self._vocab, self._end_ids)
        other._tokens = list(self._tokens)
        return other

    def compute_bitmask(self) -> bytes:
        """See `Matcher`."""
        eos = min(self._end_ids)
        allowed = list(self._mask(self._shape, self._state, list(self._vocab), eos))
        for end in self._end_ids:
            allowed[end] = allowed[eos]
        bits = sum(1 << token for token, one in enumerate(allowed) if one)
        return bits.to_bytes(-(-len(allowed) // 8), "little")

    def validate_tokens(self, tokens: list[int]) -> int:
        """See `Matcher`."""
        matcher = self.deep_copy()
        return matcher.try_consume_tokens(tokens)

    def try_consume_tokens(self, tokens: list[int]) -> int:
        """See `Matcher`."""
        for count, token in enumerate(tokens):
            text = self._vocab[token]
            if not text or walk(self._shape[0], self._state, text) is None:
                return count
            self._tokens.append(token)
        return len(tokens)

    def rollback(self, num_tokens: int) -> bool:
        """See `Matcher`."""
        del self._tokens[len(self._tokens) - num_tokens :]
        return True

    def compute_ff_tokens(self) -> list[int]:
        """See `Matcher`. The learner's masks force nothing."""
        return []

    def get_error(self) -> str:
        """See `Matcher`."""
        return ""


def vocabulary_of(tokenizer: Tokenizer) -> list[str]:
    """Return the text of each token, one character for a byte; "" for special tokens."""
    special = tokenizer.special_ids | tokenizer.eos_ids
    return [
        "" if token in special else tokenizer.token_bytes(token).decode("latin-1")
        for token in range(tokenizer.vocab_size)
    ]
