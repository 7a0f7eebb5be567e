"""Lesson 19: how many blocks to fetch from another replica."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

from checks.answer import Answer
from checks.broken import Broken, Promises
from checks.guard import call
from checks.judging import counted, whole
from engine.cluster.transfer import TransferCosts, blocks_to_move

# (tokens of the prompt, blocks here, blocks there, block size, costs) -> blocks to fetch
Rule = Callable[[int, int, int, int, TransferCosts], int]
Part = Callable[..., Any]

EQUAL_MS = 1e-6  # two sums of the same times may differ by rounding

ANSWERS = {
    "throughput": Answer(
        "nearly the same",
        {
            "twice as many": "Each replica has only one kind of work, but does it for all requests.",
            "a third more": "Steps no longer get in each other's way, but there are as many tokens to "
            "compute as before.",
            "half as many": "A move takes 10 ms, but meanwhile both replicas compute for others.",
        },
        fits=lambda ratio: 0.95 < ratio < 1.05,
    ),
    "goodput": Answer(
        "twice as many",
        {
            "as many": "The throughput was the same, but how do equal replicas keep gaps short?",
            "half as many": "Only one of two replicas prefills. But it may use long steps, since no "
            "chat waits for them.",
            "four times as many": "Small chunks cost equal replicas a lot, but one prefill replica "
            "has a limit, too: 1,000 tokens take it more than a quarter of a second.",
        },
        fits=lambda ratio: 1.5 < ratio < 2.5,
    ),
}
HINTS = (
    "Which answers are possible at all? They go from 0 up to a largest one, which depends on what is "
    "there, on what is here already, and on the last token.",
    "Write the cost of fetching n blocks as a function of n: the move, which is free if n is 0, plus "
    "computing the tokens that are left. Then try every n.",
)


class Promise(Promises):
    """The promises that the check tests."""

    NUMBER = "fetch() returns a whole number of blocks, 0 or more"
    MISSING = "it fetches only blocks that are there and not here"
    LAST = "the last token is left to compute"
    LEAST = "no other number of blocks takes less time"


@dataclass(frozen=True)
class Line:
    """A cost in milliseconds: a fixed part, and a part for each unit."""

    fixed: float
    each: float
    unit: str

    def __call__(self, count: int) -> float:
        """Return the milliseconds of `count` units."""
        return self.fixed + self.each * count

    def __str__(self) -> str:
        first = f"{self.fixed:g} ms and " if self.fixed else ""
        return f"{first}{self.each:g} ms a {self.unit}"


@dataclass(frozen=True)
class Steps:
    """The cost of a prompt in steps that take equally long, however many tokens they have."""

    step_ms: float
    tokens: int

    def __call__(self, count: int) -> float:
        """Return the milliseconds of `count` tokens."""
        return self.step_ms * -(-count // self.tokens)

    def __str__(self) -> str:
        return f"{self.step_ms:g} ms for every {self.tokens} tokens or fewer"


@dataclass(frozen=True)
class Handover:
    """A prompt whose blocks are partly here and partly there, and what moving and computing cost."""

    tokens: int
    here: int
    there: int
    block_size: int
    move: Line
    compute: Line | Steps

    def __str__(self) -> str:
        return (
            f"A prompt of {counted(self.tokens, 'token')}, {self.block_size} to a block. Of its "
            f"blocks, {_first(self.here)} here, and {_first(self.there)} there. A move takes "
            f"{self.move}. Computing takes {self.compute}."
        )

    @property
    def most(self) -> int:
        """The most blocks that can be fetched."""
        return max(0, min(self.there, (self.tokens - 1) // self.block_size) - self.here)

    def times(self, blocks: int) -> tuple[float, float]:
        """Return the milliseconds of the move, and of computing what is left."""
        left = self.tokens - (self.here + blocks) * self.block_size
        return self.move(blocks) if blocks else 0.0, self.compute(left)

    def total(self, blocks: int) -> float:
        """Return the milliseconds of both."""
        return sum(self.times(blocks))


def _first(blocks: int) -> str:
    if not blocks:
        return "none is"
    return "the first is" if blocks == 1 else f"the first {blocks} are"


def adapt(part: Part | None) -> Rule:
    """Return the rule of the learner's part if it passed, else the engine's."""
    return YourRule(part) if part else blocks_to_move


@dataclass(frozen=True)
class YourRule:
    """A learner's part as a rule of the simulator."""

    part: Part

    def __call__(
        self, tokens: int, here: int, there: int, block_size: int, costs: TransferCosts
    ) -> int:
        """Ask the part, with the two prices as functions."""
        return int(self.part(tokens, here, there, block_size, costs.move_ms, costs.compute_ms))


def cases() -> list[Handover]:
    """Return all small handovers, and some with longer prompts: straight lines first, then by size."""
    moves = [Line(*prices, "block") for prices in ((2, 1), (0, 1), (20, 1), (1, 30))]
    computes: list[Line | Steps] = [Line(0, 1, "token"), Line(5, 2, "token"), Steps(10, 8)]
    found = [
        Handover(tokens, here, there, 4, move, compute)
        for tokens, move, compute in product((1, 3, 4, 5, 8, 9, 13, 16, 18), moves, computes)
        for here, there in product(range((tokens - 1) // 4 + 1), range(tokens // 4 + 1))
    ]
    chance = random.Random(18)
    for _ in range(300):
        size = chance.choice((8, 16))
        tokens = chance.randint(1, 40 * size)
        here = min(chance.choice((0, chance.randint(0, 40))), (tokens - 1) // size)
        there = min(chance.choice((here, 40, chance.randint(0, 40))), tokens // size)
        move = Line(chance.randint(0, 60), chance.randint(1, 2 * size + 10) / 2, "block")
        line = Line(chance.randint(0, 10), chance.randint(1, 8) / 4, "token")
        steps = Steps(chance.randint(5, 40), 4 * size)
        compute: Line | Steps = line if chance.random() < 0.5 else steps
        found.append(Handover(tokens, here, there, size, move, compute))
    return sorted(found, key=_size)


def _size(case: Handover) -> tuple[float, ...]:
    has_steps = isinstance(case.compute, Steps)
    return (has_steps, case.tokens, case.here, case.there, case.move.fixed, case.move.each)


def attempt(part: Part, case: Handover) -> None:
    """Ask the part about a handover, and compare its answer with every other one."""
    answer = call(
        part, case.tokens, case.here, case.there, case.block_size, case.move, case.compute
    )
    if (blocks := whole(answer)) is None:
        raise Promise.NUMBER.broken(f"fetch() returned {answer!r}.", "What does each path return?")
    if blocks < 0:
        look = f"There: {case.there}. Here: {case.here}. Which blocks are missing here?"
        raise Promise.NUMBER.broken(f"fetch() returned {blocks}.", look)
    _check_blocks(case, blocks)
    best = min(range(case.most + 1), key=case.total)
    if case.total(blocks) > case.total(best) + EQUAL_MS:
        raise _slower(case, blocks, best)


def _check_blocks(case: Handover, blocks: int) -> None:
    """Raise Broken for blocks that are not there, or that need not or cannot be fetched."""
    did = f"fetch() returned {blocks}."
    end = case.here + blocks
    if blocks and end > case.there:
        look = f"There: {case.there}. Here: {case.here}. Which blocks are missing here?"
        raise Promise.MISSING.broken(did, look)
    if blocks and end * case.block_size >= case.tokens:
        have = counted(end, "block")
        look = (
            f"With {have} of {case.block_size} tokens, all {case.tokens} tokens have keys and values. "
            "Where would the logits of the first output token come from?"
        )
        raise Promise.LAST.broken(did, look)


def _slower(case: Handover, blocks: int, best: int) -> Broken:
    """Return what was compared: the answer's time, and that of a number of blocks which takes less."""
    did = f"fetch() returned {blocks}. {_times(case, blocks)}"
    look = f"Compare that with {best}. {_times(case, best)}"
    # A part that pays a move's fixed price for no blocks would prefer this answer.
    charged = case.move.fixed + case.total(0)
    if not best and case.total(blocks) <= charged + EQUAL_MS:
        look += " What does fetching nothing cost in your sum?"
    elif best and best < case.most:
        look += " Here it is neither all nor nothing."
    return Promise.LEAST.broken(did, look)


def _times(case: Handover, blocks: int) -> str:
    move, compute = case.times(blocks)
    left = counted(case.tokens - (case.here + blocks) * case.block_size, "token")
    if not blocks:
        return f"Nothing moves, and computing the {left} that are not here takes {compute:g} ms."
    return (
        f"Moving {counted(blocks, 'block')} takes {move:g} ms and computing the other {left} "
        f"{compute:g} ms, together {move + compute:g} ms."
    )
