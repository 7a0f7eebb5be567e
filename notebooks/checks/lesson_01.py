"""Lesson 01: from scores to probabilities: temperature, top-k, top-p."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any

from checks.answer import Answer
from checks.broken import Promises
from checks.guard import call
from checks.judging import counted

if TYPE_CHECKING:
    from torch import Tensor

    from engine.core.compute import truncation

ANSWERS = {
    "kept": Answer(
        3,
        {
            2: "Two words have 0.881, and a third one goes beyond 0.9. But top-p keeps the "
            "smallest set that reaches p, and 0.881 does not reach it.",
            1: "The likeliest word has 0.644. A set of one is far from 0.9.",
            4: "All four have everything. But a smaller set reaches 0.9, too.",
        },
        source="The sum",
    )
}
HINTS = (
    "Temperature 0 needs no division: treat it first. For the rest, sort the places by their "
    "scores and remember them, because the answer is in the order of the logits.",
    "Add up what top-k left, divided by its sum. Keep the token that crosses top_p, and stop "
    "after it. At the end, divide by what is kept.",
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
    PROPORTIONAL = "kept tokens have shares in proportion to e^(logit / temperature)"


Weigh = Callable[..., list[float]]
EXACT = 1e-6


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
        """See `engine.core.compute.truncation.truncated_probs`; min_p is not part of the lesson."""
        del min_p
        rows = zip(*(one.tolist() for one in (logits, temperature, top_k, top_p)), strict=True)
        # By a method, because a page has no torch; see `page_model.Rows`.
        return logits.new_tensor([list(self._distribution(*row)) for row in rows])


def adapt(distribution: Weigh | None) -> "truncation.TokenProbs | None":
    """Return the learner's function, or the engine's until that passes.

    None also stands for the engine's own; without torch, as in a page, there is no other way to say it.
    """
    if distribution:
        return YourDistribution(distribution)
    try:
        from engine.core.compute import truncation
    except ModuleNotFoundError:
        return None
    return truncation.truncated_probs


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
    did = f"You returned {_text(shares)}, which sums to {sum(shares):.3f}."
    if case.temperature == 0:
        best = [i for i, one in enumerate(case.logits) if one == max(case.logits)]
        if abs(sum(shares) - 1) > EXACT or abs(sum(shares[i] for i in best) - 1) > EXACT:
            raise Promise.GREEDY.broken(
                did, "Try 0.5, 0.1, 0.01 on paper. What does the second-best token end up with?"
            )
        return
    promise = _broken_by(shares, case) if any(shares) else Promise.KEEPS_ONE
    if promise is not None:
        raise promise.broken(did, _facts(shares, case))


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


def _softmax(logits: Sequence[float], temperature: float) -> list[float]:
    top = max(logits)
    return _shared([math.exp((one - top) / temperature) for one in logits])


def _broken_by(shares: list[float], case: Scores) -> Promise | None:
    """Return the first broken promise: top-k cuts first, then top-p cuts the rest."""
    logits, top_k, top_p = case.logits, case.top_k, case.top_p
    kept = [logits[i] for i, one in enumerate(shares) if one > 0]
    cut = [logits[i] for i, one in enumerate(shares) if not one > 0]
    ordered = sorted(_softmax(logits, case.temperature), reverse=True)
    most = min(top_k or len(ordered), len(ordered))
    if abs(sum(shares) - 1) > EXACT:
        return Promise.SUMS_TO_1
    if cut and max(cut) > min(kept):
        return Promise.LIKELIEST_FIRST
    if top_k and len(kept) > _as_likely(ordered, most):
        return Promise.TOP_K
    needed = _reaching(_shared(ordered[:most]), top_p)
    if len(kept) < needed:
        return Promise.CUT_WHEN_ASKED if top_p == 1 else Promise.TOP_P
    # A function that keeps all ties at top-k has more tokens to share among, and may need more of them.
    whole = _shared(ordered[: _as_likely(ordered, most)])
    if len(kept) > _as_likely(ordered, max(needed, _reaching(whole, top_p))):
        return Promise.TOP_P
    right = _of_kept(shares, case)
    is_close = all(abs(one - other) < EXACT for one, other in zip(shares, right, strict=True))
    return None if is_close else Promise.PROPORTIONAL


def _facts(shares: list[float], case: Scores) -> str:
    """Say what top-k and top-p see, and what the kept tokens are worth."""
    ordered = sorted(_softmax(case.logits, case.temperature), reverse=True)
    left = _shared(ordered[: case.top_k or None])
    right = _of_kept(shares, case) if any(shares) else [0.0] * len(shares)
    difference = max(abs(one - other) for one, other in zip(shares, right, strict=True))
    return (
        f"You keep {counted(sum(one > 0 for one in shares), 'token')} of {len(shares)}. With the "
        f"temperature, the probabilities are {_text(ordered)}, the likeliest first. Of what top_k = "
        f"{case.top_k} leaves, the likeliest sum up to {_text(list(accumulate(left)))}; top_p is "
        f"{case.top_p:g}. From the right shares of the tokens that you keep, yours differ by up to "
        f"{difference:.2g}."
    )


def _shared(weights: list[float]) -> list[float]:
    return [one / sum(weights) for one in weights]


def _as_likely(ordered: list[float], count: int) -> int:
    """Return how many tokens may be kept if `count` are needed: ties with the last count, too."""
    return sum(one >= ordered[count - 1] - EXACT for one in ordered)


def _reaching(shares: list[float], top_p: float) -> int:
    """How many of the likeliest it takes to reach a share."""
    summed = 0.0
    for count, one in enumerate(shares, 1):
        summed += one
        if summed >= top_p - 1e-9:
            return count
    return len(shares)


def _of_kept(shares: list[float], case: Scores) -> list[float]:
    """Return the right shares of the kept tokens."""
    whole = _softmax(case.logits, case.temperature)
    total = sum(one for one, mine in zip(whole, shares, strict=True) if mine > 0)
    return [one / total if mine > 0 else 0.0 for one, mine in zip(whole, shares, strict=True)]


def _text(shares: list[float]) -> str:
    return "[" + ", ".join(f"{one:.3f}" for one in shares) + "]"
