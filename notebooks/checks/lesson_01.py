"""Lesson 01: from scores to probabilities: temperature, top-k, top-p."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from checks.answer import Answer
from checks.broken import Promises
from checks.guard import call
from checks.judging import counted

if TYPE_CHECKING:
    from torch import Tensor

    from engine.core.compute import sampler

ANSWERS = {
    "kept": Answer(
        3,
        {
            2: "Two words have 0.881, and a third one goes beyond 0.9. But top-p keeps the smallest "
            "set that reaches p, and 0.881 doesn't reach it.",
            1: "The likeliest word has 0.644, so a set of one is far from 0.9.",
            4: "All four have everything, but a smaller set reaches 0.9, too.",
        },
        source="The sum",
    )
}
HINTS = (
    "Temperature 0 needs no division, so treat it first. For the rest, sort the places by their "
    "scores and remember them, because the answer is in the order of the logits.",
    "Add up what top-k left, divided by its sum. Keep the token with which the sum reaches top_p, "
    "stop there, and divide by the sum of what you kept.",
)


class Promise(Promises):
    """The promises that the check tests."""

    IS_LIST = "the answer is a list of probabilities"
    ONE_PER_TOKEN = "every token has a probability, in the order of the logits"
    NUMBERS = "the probabilities are numbers"
    NOT_NEGATIVE = "no probability is below 0"
    GREEDY = "at temperature 0 the likeliest token is certain"
    KEEPS_ONE = "at least one token can be drawn"
    SUMS_TO_1 = "the probabilities sum to 1"
    LIKELIEST_FIRST = "no token is cut that is likelier than one that is kept"
    TOP_K = "top-k keeps the k likeliest tokens"
    CUT_WHEN_ASKED = "a token is cut only if top-k or top-p asks for it"
    TOP_P = "top-p keeps the smallest set that reaches p"
    FIRST_OF_EQUALS = "of equal logits, the first in the list counts as the likelier"
    PROPORTIONAL = "kept tokens have shares in proportion to e^(logit / temperature)"


Weigh = Callable[..., list[float]]
EXACT = 1e-6
NEARLY = 0.005  # a difference that rounding to two places makes


@dataclass(frozen=True)
class Scores:
    """A model's logits and a request's sampling settings."""

    logits: tuple[float, ...]
    temperature: float
    top_k: int
    top_p: float

    def __str__(self) -> str:
        return (
            f"logits = {list(self.logits)}, temperature = {self.temperature:g}, "
            f"top_k = {self.top_k}, top_p = {self.top_p:g}"
        )


class YourDistribution:
    """A learner's function for one list of scores, applied to all rows for the engine."""

    def __init__(self, distribution: Weigh) -> None:
        self._distribution = distribution

    def __call__(
        self,
        logits: "Tensor",
        temperature: "Tensor",
        min_p: "Tensor",
        top_k: "Tensor",
        top_p: "Tensor",
    ) -> "Tensor":
        """See `engine.core.compute.sampler.truncated_probs`; min_p is not part of the lesson."""
        del min_p
        rows = zip(*(one.tolist() for one in (logits, temperature, top_k, top_p)), strict=True)
        # By a method, because a page has no torch; see `page_model.Rows`.
        return logits.new_tensor([list(self._distribution(*row)) for row in rows])


def adapt(distribution: Weigh | None) -> "sampler.TokenProbs | None":
    """Return the learner's function, or the engine's until that passes.

    None also stands for the engine's own; without torch, as in a page, there is no other way to say it.
    """
    if distribution:
        return YourDistribution(distribution)
    try:
        from engine.core.compute import sampler
    except ModuleNotFoundError:
        return None
    return sampler.truncated_probs


def cases() -> list[Scores]:
    """Return few tokens first, in irregular order; then ties, then more tokens."""
    plain = [(2.0,), (0.0, 1.0), (1.0, -1.0, 2.0, 0.0), (-3.0, 0.5, 0.0)]
    asked = list(product((1.0, 0.5, 2.0, 0.0), (0, 1, 2, 3, 9), (1.0, 0.9, 0.7, 0.5, 0.01)))
    tied = [(1.0, 1.0), (0.0, 2.0, 0.0), (1.0, 1.0, 1.0, 0.0)]
    chance = random.Random(1)
    longer = [tuple(round(chance.gauss(0, 2), 2) for _ in range(9)) for _ in range(40)]
    return [
        *sorted((Scores(logits, *one) for logits in plain for one in asked), key=_size),
        *(Scores(logits, *one) for logits in tied for one in asked),
        *(Scores(logits, *chance.choice(asked)) for logits in longer),
    ]


def _size(case: Scores) -> tuple[float, ...]:
    """Sort by few tokens and few settings, the temperature first.

    A setting counts as much as a third token. So a wrong top-p shows with two tokens before it shows
    with three shares whose sum is rounded to more than 1.
    """
    asked = (case.temperature != 1, 0 < case.top_k < len(case.logits), case.top_p < 1)
    tokens = len(case.logits)
    return (sum(asked) + max(0, tokens - 2), tokens, asked[1] + asked[2], -case.top_p, case.top_k)


def attempt(distribution: Weigh, case: Scores) -> None:
    """Check that they are probabilities, of the right tokens, and correct."""
    answer = call(distribution, list(case.logits), case.temperature, case.top_k, case.top_p)
    shares = _numbers(answer, case)
    if case.temperature == 0:
        _check_greedy(shares, case)
        return
    if not any(shares):
        look = "The likeliest token may reach top_p by itself. Is it in or out?"
        if len(shares) == 1:
            look = "There is only one token, so it is certain. What is the probability of that?"
        raise Promise.KEEPS_ONE.broken(
            f"You returned {_text(shares)}: no token can be drawn.", look
        )
    if abs(sum(shares) - 1) > EXACT:
        look = "The cut tokens leave a gap. Which tokens share it?"
        if sum(shares) > 1:
            look = "That is more than 1. What do you divide by?"
        raise Promise.SUMS_TO_1.broken(
            f"You returned {_text(shares)}, which sums to {sum(shares):.3f}.", look
        )
    _check_kept(shares, case)
    _check_shares(shares, case)


def _numbers(answer: Any, case: Scores) -> list[float]:
    """Return the answer as floats. Raises Broken if it is something else."""
    try:
        shares = [float(one) for one in answer]
    except (TypeError, ValueError):
        raise Promise.IS_LIST.broken(
            f"You returned {answer!r}.", "What does distribution() return?"
        ) from None
    if len(shares) != len(case.logits):
        raise Promise.ONE_PER_TOKEN.broken(
            f"You returned {counted(len(shares), 'number')} for {len(case.logits)} logits.",
            "Cut tokens have one, too: 0.",
        )
    if any(math.isnan(one) for one in shares):
        raise Promise.NUMBERS.broken(
            f"With temperature {case.temperature:g} you returned {_text(shares)}.",
            "0 / 0 and infinity / infinity are nan. Where do you divide?",
        )
    if any(one < 0 for one in shares):
        raise Promise.NOT_NEGATIVE.broken(
            f"You returned {_text(shares)}.", "Can a share be negative?"
        )
    return shares


def _check_greedy(shares: list[float], case: Scores) -> None:
    best = case.logits.index(max(case.logits))
    if abs(sum(shares) - 1) <= EXACT and abs(shares[best] - 1) <= EXACT:
        return
    look = "Try 0.5, 0.1, 0.01 on paper. What does the second-best token end up with?"
    if case.logits.count(case.logits[best]) > 1:
        look = "Several tokens are the likeliest here. Which of them does the docstring prefer?"
    raise Promise.GREEDY.broken(f"With temperature 0 you returned {_text(shares)}.", look)


def _softmax(logits: Sequence[float], temperature: float) -> list[float]:
    top = max(logits)
    return _shared([math.exp((one - top) / temperature) for one in logits])


def _check_kept(shares: list[float], case: Scores) -> None:
    """Check that the likeliest tokens are kept: top-k cuts first, then top-p cuts the rest."""
    logits, top_k, top_p = case.logits, case.top_k, case.top_p
    kept = [i for i, one in enumerate(shares) if one > 0]
    cut = [i for i in range(len(logits)) if i not in kept]
    lost = max((logits[i] for i in cut), default=-math.inf)
    worst = min(logits[i] for i in kept)
    if lost > worst:
        raise Promise.LIKELIEST_FIRST.broken(
            f"You returned {_text(shares)}: a token of logit {worst:g} is kept, and one of {lost:g} "
            "is cut.",
            "The logits come in any order, and the answer is in the same order.",
        )
    order = sorted(range(len(logits)), key=logits.__getitem__, reverse=True)
    whole = _softmax(logits, case.temperature)
    ordered = [whole[i] for i in order]
    left = _shared(ordered[: top_k or None])
    needed = _reaching(left, top_p)
    if len(kept) > len(left):
        equal = logits[order[top_k]] == logits[order[top_k - 1]]
        raise Promise.TOP_K.broken(
            f"You keep {counted(len(kept), 'token')}, with top_k = {top_k}.",
            f"You returned {_text(shares)}. "
            + (
                "Are equal logits equally likely to stay?"
                if equal
                else "Which token should have been cut?"
            ),
        )
    if len(kept) < needed:
        _too_few(len(kept), left, case)
    if len(kept) > needed:
        _too_many(len(kept), needed, left, ordered, case)
    if kept != sorted(order[:needed]):
        raise Promise.FIRST_OF_EQUALS.broken(
            f"You returned {_text(shares)}: of equal tokens, an earlier one is cut.",
            "In which order does your sort leave equal logits?",
        )


def _shared(weights: list[float]) -> list[float]:
    return [one / sum(weights) for one in weights]


def _reaching(shares: list[float], top_p: float) -> int:
    """How many of the likeliest it takes to reach a share."""
    summed = 0.0
    for count, one in enumerate(shares, 1):
        summed += one
        if summed >= top_p - 1e-9:
            return count
    return len(shares)


_CUT_TOO_EARLY = "At temperature 1 the cut would be right. Which comes first, temperature or cut?"


def _as_at_temperature_one(kept: int, case: Scores) -> bool:
    """Return whether `kept` tokens would be right at temperature 1."""
    ordered = sorted(_softmax(case.logits, 1.0), reverse=True)[: case.top_k or None]
    return case.temperature != 1 and kept == _reaching(_shared(ordered), case.top_p)


def _too_few(kept: int, left: list[float], case: Scores) -> None:
    if case.top_p == 1 or not kept:
        raise Promise.CUT_WHEN_ASKED.broken(
            f"You keep {counted(kept, 'token')} of {len(left)}.",
            f"What does top_k = {case.top_k} cut here, and what does top_p = 1? Shares are rounded: "
            "their sum may end just above 1, or just below.",
        )
    raise Promise.TOP_P.broken(
        f"You keep {counted(kept, 'token')}, with {sum(left[:kept]):.3f} of the probability. "
        f"top_p is {case.top_p:g}.",
        _CUT_TOO_EARLY
        if _as_at_temperature_one(kept, case)
        else "Follow the sum, token by token. Is the one that crosses the line in or out?",
    )


def _too_many(
    kept: int, needed: int, left: list[float], ordered: list[float], case: Scores
) -> None:
    enough = f"The {'likeliest has' if needed == 1 else f'{needed} likeliest have'}"
    look = "Is it the smallest set?"
    if abs(sum(left[:needed]) - case.top_p) < EXACT:
        look = "That is exactly top_p, so it has been reached."
    elif case.top_k and kept == min(case.top_k, _reaching(ordered, case.top_p)):
        look = "Top-k cuts first. Which tokens does top-p see then, and what is their sum?"
    elif _as_at_temperature_one(kept, case):
        look = _CUT_TOO_EARLY
    raise Promise.TOP_P.broken(
        f"You keep {counted(kept, 'token')}. {enough} {sum(left[:needed]):.3f} of what top-k leaves, "
        f"and top_p is {case.top_p:g}.",
        look,
    )


def _check_shares(shares: list[float], case: Scores) -> None:
    right = _of_kept(shares, case.logits, case.temperature)
    if _close(shares, right):
        return
    did = f"You returned {_text(shares)}."
    if case.temperature != 1 and _close(shares, _of_kept(shares, case.logits, 1.0)):
        raise Promise.PROPORTIONAL.broken(
            did, "With temperature 1 it would be the same. Where does yours use the temperature?"
        )
    if _close(shares, _of_kept(shares, case.logits, 1 / case.temperature)):
        raise Promise.PROPORTIONAL.broken(
            did, "Does a high temperature make your probabilities bolder or more careful?"
        )
    look = "Compare two of the tokens: by which factor do they differ?"
    if all(abs(mine - its) < NEARLY for mine, its in zip(shares, right, strict=True)):
        look = "They are right to two places, and wrong behind them. Do you round?"
    raise Promise.PROPORTIONAL.broken(did, look)


def _of_kept(shares: list[float], logits: Sequence[float], temperature: float) -> list[float]:
    """Return the right shares of the kept tokens."""
    whole = _softmax(logits, temperature)
    total = sum(one for one, mine in zip(whole, shares, strict=True) if mine > 0)
    return [one / total if mine > 0 else 0.0 for one, mine in zip(whole, shares, strict=True)]


def _close(some: list[float], others: list[float]) -> bool:
    return all(abs(one - other) < EXACT for one, other in zip(some, others, strict=True))


def _text(shares: list[float]) -> str:
    return "[" + ", ".join(f"{one:.3f}" for one in shares) + "]"
