"""Lesson 16: which blocks of an agent that comes back are fetched, and which are computed again."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from checks.answer import Answer
from checks.broken import Promises
from checks.guard import call
from checks.judging import counted, listed, whole
from engine.extensions.tier_prices import fetch_or_compute

# (prices of fetching each block, prices of computing it) in microseconds -> blocks to fetch
Rule = Callable[[Sequence[float], Sequence[float]], int]
Part = Callable[..., Any]

ANSWERS = {
    "left": Answer(
        1024,
        {
            3200: "That is what the agent had when it left, in whole blocks, but others needed room.",
            4092: "The last part has never been computed, because the tool has only now returned it.",
            0: "That would be right if its whole history were gone. But which part of it do the other "
            "agents use as well?",
        },
    ),
    "times": Answer(
        "about 12 times as long",
        {
            "half as long": "Copying moves many bytes, and GPUs are fast, but divide both and "
            "compare.",
            "twice as long": "They are that close for a disk, but host memory is five times as fast.",
            "about 100 times as long": "With a smaller KV or a larger model, perhaps. See the two "
            "lines above.",
        },
        fits=lambda ratio: 11 < ratio < 13,
    ),
    "through": Answer(
        "nearly none",
        {
            "the same number": "The same blocks are computed. But when do they leave host memory?",
            "twice as many": "More blocks are copied, but there is no more room for them.",
            "half as many": "It is less than that. What is in host memory when a block leaves the GPU?",
        },
        fits=lambda share: share < 0.1,
    ),
}
HINTS = (
    "What does a number of blocks cost? The first ones are fetched, and the ones after them are "
    "computed. Write that sum for one number, then for every number from 0 to all.",
    "Take the number with the smallest sum, and the larger one of two equal sums. A loop that stops at "
    "the first block that is dearer to fetch never sees the cheap blocks behind it.",
)


class Promise(Promises):
    """The promises that the check tests."""

    NUMBER = "fetch_or_compute() returns a whole number of blocks, from 0 to all of them"
    LEAST = "no other number of blocks takes less time"
    EQUAL = "of two numbers that take equally long, it is the larger one"


@dataclass(frozen=True)
class Return:
    """The blocks that a tier has of a prompt, with the prices of each in microseconds."""

    fetch: tuple[int, ...]
    compute: tuple[int, ...]

    def __str__(self) -> str:
        if not self.fetch:
            return "No tier has a block of the prompt."
        return (
            f"{counted(len(self.fetch), 'block')}. Fetching takes {listed(self.fetch)} us, computing "
            f"{listed(self.compute)} us."
        )

    def total(self, count: int) -> int:
        """Return what it takes to fetch the first `count` blocks, and to compute the others."""
        return sum(self.fetch[:count]) + sum(self.compute[count:])


def adapt(part: Part | None) -> Rule:
    """Return the rule for `simulate`: the learner's if it passed, else the engine's."""
    return part or fetch_or_compute


def cases() -> list[Return]:
    """Return all short lists of some prices, then longer ones from two tiers, the shortest first."""
    found = [
        Return(fetch, compute)
        for length in range(4)
        for fetch in product((1, 4, 9), repeat=length)
        for compute in product((2, 4), repeat=length)
    ]
    chance = random.Random(12)
    for _ in range(200):
        length = chance.randint(4, 12)
        host, disk = chance.randint(1, 4), chance.randint(8, 40)
        first, more = chance.randint(5, 20), chance.randint(0, 3)
        fetch = tuple(chance.choice((host, host, disk)) for _ in range(length))
        found.append(Return(fetch, tuple(first + more * index for index in range(length))))
    return sorted(found, key=lambda one: (len(one.fetch), sum(one.fetch)))


def attempt(part: Part, case: Return) -> None:
    """Ask the part, and compare its answer with every other number."""
    answer = call(part, list(case.fetch), list(case.compute))
    count, most = whole(answer), len(case.fetch)
    if count is None or not 0 <= count <= most:
        raise Promise.NUMBER.broken(
            f"fetch_or_compute() returned {answer!r}.",
            f"The tiers have {counted(most, 'block')}. What does each path return?",
        )
    best = min(range(most + 1), key=lambda one: (case.total(one), -one))
    did = f"fetch_or_compute() returned {count}: {_times(case, count)}"
    if case.total(count) > case.total(best):
        raise Promise.LEAST.broken(did, f"With {counted(best, 'block')}: {_times(case, best)}")
    if count != best:
        raise Promise.EQUAL.broken(
            did,
            f"{counted(best, 'block')} would take equally long, and leave the GPU time for others.",
        )


def _times(case: Return, count: int) -> str:
    fetch, compute = sum(case.fetch[:count]), sum(case.compute[count:])
    return f"fetching takes {fetch} us and computing {compute} us, together {fetch + compute} us."
