"""Lesson 04: which waiting requests join the batch in this step?"""

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from checks.answer import Answer
from checks.broken import Promises
from checks.guard import call
from checks.judging import counted, listed
from engine.core.request import Request
from engine.core.scheduling.policies import Fcfs
from engine.core.scheduling.policy import AdmissionLimits, Policy

_SHARED = "All requests in a step share its 10 ms. Only the time for each token adds up."
ANSWERS = {
    "static": Answer(
        25,
        {
            5: "Ada's seat is free then. But a static batch does not look at single seats.",
            7: "Two seats are free by then. A static batch looks at neither.",
            21: "Three empty seats ought to be enough. A static batch waits for the last one.",
        },
    ),
    "continuous": Answer(
        40,
        {
            32: "126 tokens over 4 seats are 31.5, if every seat is taken in every step. Are they?",
            54: "That would be a quarter less. But more than half of the seats were empty.",
            72: "The longest answers are as long as before. But they no longer hold up the others.",
        },
    ),
    "price": Answer(
        "about 15% longer",
        {
            "8 times as long": _SHARED,
            "twice as long": _SHARED,
            "shorter": "The wait for the first token is. But a step with more tokens in it is longer.",
        },
        fits=lambda ratio: 1.1 < ratio < 1.2,
    ),
}
HINTS = (
    "Walk the queue from its head and stop at the first request that does not fit.",
    "There are three limits, not one. The budget is the only one that may give a request a part of "
    "what it needs; seats and blocks have to be enough for all of it.",
)


class Promise(Promises):
    """The promises that the check tests."""

    LIST = "the answer is a list of ids"
    WAITING_ONCE = "every admitted request is waiting, and is named once"
    SEATS = "the admitted requests fit into the free seats"
    BUDGET = "every admitted request computes at least one token"
    BLOCKS = "a request is admitted only if all its tokens fit into the free blocks"
    IN_ORDER = "no request overtakes the head of the queue"
    AS_MANY_AS_FIT = "as many requests as fit are admitted"


Admit = Callable[..., list[Any]]
Row = tuple[str, int, int]  # id, tokens, seats
Left = tuple[int, int, int]  # seats, tokens, blocks


@dataclass(frozen=True)
class Queue:
    """The waiting requests, as (id, tokens, seats), and what is left for them in this step."""

    waiting: tuple[Row, ...]
    seats: int
    budget: int
    blocks: int
    block_size: int

    def __str__(self) -> str:
        people = [
            f"{id_} with {counted(tokens, 'token')}"
            + (f" and {samples} samples" if samples > 1 else "")
            for id_, tokens, samples in self.waiting
        ]
        left = _amounts((self.seats, self.budget, self.blocks))
        return f"Queue: {listed(people)}. Left in this step: {left} of {self.block_size} slots."

    def missing(self, row: Row, left: Left) -> Promise | None:
        """Return the promise that is broken if a request is admitted now."""
        _, tokens, samples = row
        seats, budget, blocks = left
        if samples > seats:
            return Promise.SEATS
        if not budget:
            return Promise.BUDGET
        return Promise.BLOCKS if self._blocks_of(tokens) > blocks else None

    def after(self, row: Row, left: Left) -> Left:
        """Return what is left after a request is admitted."""
        _, tokens, samples = row
        seats, budget, blocks = left
        return seats - samples, budget - min(tokens, budget), blocks - self._blocks_of(tokens)

    def turn(self, row: Row, left: Left) -> str:
        """Say what was left when it was a request's turn, and what it needs."""
        id_, tokens, samples = row
        need = _amounts((samples, tokens, self._blocks_of(tokens)))
        look = f"When it was {id_}'s turn, {_amounts(left)} were left. All of {id_} needs {need}."
        if 0 < left[1] < tokens:
            look += f" This step computes {left[1]} of its tokens. Where does the rest go?"
        return look

    def _blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.block_size)


def _amounts(left: Left) -> str:
    seats, tokens, blocks = left
    return f"{counted(seats, 'seat')}, {counted(tokens, 'token')} and {counted(blocks, 'block')}"


class YourAdmission(Fcfs):
    """A learner's admission rule, as a policy."""

    def __init__(self, admit: Admit) -> None:
        self._admit = admit

    def admit(self, waiting: Iterator[Request], limits: AdmissionLimits) -> Collection[Request]:
        """Return the requests whose ids the learner's function returned."""
        queue = list(waiting)
        ids = self._admit(
            [(one.id, one.num_uncomputed_tokens, one.num_seqs) for one in queue], *limits
        )
        return [one for one in queue if one.id in ids]


def adapt(admit: Admit | None) -> Policy:
    """Return a policy: the learner's, or the engine's own until that passes."""
    return YourAdmission(admit) if admit else Fcfs()


def cases() -> list[Queue]:
    """Return all short queues with all combinations of limits, and some longer ones; smallest first."""
    limits = list(product((3, 2, 1, 0), (32, 6, 4, 1, 0), (8, 2, 1, 0)))
    people = list(product((1, 4, 5, 9), (1, 2)))
    queues = [()] + [queue for length in (1, 2) for queue in product(people, repeat=length)]
    chance = random.Random(4)
    longer = [tuple(chance.choices(people, k=chance.randint(3, 5))) for _ in range(600)]
    pairs = [*product(queues, limits), *((queue, chance.choice(limits)) for queue in longer)]
    return sorted((_queue(people, left) for people, left in pairs), key=_size)


def _queue(people: Iterable[tuple[int, int]], left: tuple[int, int, int]) -> Queue:
    named = [(id_, *one) for id_, one in zip("ABCDE", people, strict=False)]
    return Queue(tuple(named), *left, block_size=4)


def _size(queue: Queue) -> tuple[int, ...]:
    """Sort by few requests, few samples, few tokens, and then by generous limits."""
    tokens = sum(tokens for _, tokens, _ in queue.waiting)
    samples = sum(samples for _, _, samples in queue.waiting)
    return (len(queue.waiting), samples, tokens, -queue.seats, -queue.blocks, -queue.budget)


def attempt(admit: Admit, queue: Queue) -> None:
    """Check that the answer fits, skips no request and leaves out no request that fits."""
    left = queue.seats, queue.budget, queue.blocks
    answer = call(admit, list(queue.waiting), *left, queue.block_size)
    ids = [id_ for id_, _, _ in queue.waiting]
    if not isinstance(answer, list | tuple):
        raise Promise.LIST.broken(f"You returned {answer!r}.", "What does admit() return?")
    chosen = list(answer)
    did = f"You admitted {listed(chosen)}"
    if any(one not in ids for one in chosen) or len(set(chosen)) < len(chosen):
        raise Promise.WAITING_ONCE.broken(f"{did}.", f"The waiting requests: {listed(ids)}.")
    for row in (row for row in queue.waiting if row[0] in chosen):
        if promise := queue.missing(row, left):
            raise promise.broken(f"{did}.", queue.turn(row, left))
        left = queue.after(row, left)
    if chosen != ids[: len(chosen)]:
        first = next(id_ for id_, mine in zip(ids, [*chosen, None], strict=False) if id_ != mine)
        raise Promise.IN_ORDER.broken(
            f"{did}.",
            f"{first} was at the head when another request was admitted. Follow {first} if small "
            "requests keep arriving.",
        )
    for row in queue.waiting[len(chosen) :][:1]:
        if not queue.missing(row, left):
            raise Promise.AS_MANY_AS_FIT.broken(
                f"{did}, and left {row[0]} waiting.", queue.turn(row, left)
            )
