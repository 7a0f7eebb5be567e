"""Lesson 04: which waiting requests join the batch in this step?"""

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from checks.answer import Answer
from checks.broken import Promises
from checks.decided import decided
from checks.guard import call
from checks.judging import counted, listed
from engine.core.request import Request
from engine.core.scheduling.policies import Fcfs
from engine.core.scheduling.policy import AdmissionLimits, Policy
from engine.simulation.choice import Settings

ANSWERS = {
    "static": Answer(
        25,
        {
            5: "Ada's seat is free then, but a static batch doesn't look at single seats.",
            7: "Two seats are free by then, but a static batch looks at neither.",
            21: "Three empty seats ought to be enough, but a static batch waits for the last one.",
        },
    ),
    "continuous": Answer(
        40,
        {
            32: "126 tokens over 4 seats are 31.5, if every seat is taken in every step. Are they?",
            54: "That would be a quarter less, but more than half of the seats were empty.",
            72: "The longest answers are as long as before, but they no longer hold up the others.",
        },
    ),
    "price": decided(
        "continuous_batching",
        1,
        {
            "1 seat": Settings(seats=1),
            "2 seats": Settings(seats=2),
            "4 seats": Settings(seats=4),
            "8 seats": Settings(seats=8),
        },
    ),
}
HINTS = (
    "Walk the queue from its head and stop at the first request that does not fit.",
    "There are three limits, and the budget is the only one that may give a request a part of what "
    "it needs. Seats and blocks have to be enough for all of it.",
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


@dataclass(frozen=True)
class Queue:
    """The waiting requests, as (id, tokens, seats), and what is left for them in this step."""

    waiting: tuple[tuple[str, int, int], ...]
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
        blocks = f"{counted(self.blocks, 'free block')} of {self.block_size} slots"
        left = listed([counted(self.seats, "seat"), counted(self.budget, "token"), blocks])
        return f"Queue: {listed(people)}. Left in this step: {left}."


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
    answer = call(
        admit, list(queue.waiting), queue.seats, queue.budget, queue.blocks, queue.block_size
    )
    ids = [id_ for id_, _, _ in queue.waiting]
    if not isinstance(answer, list | tuple):
        raise Promise.LIST.broken(f"You returned {answer!r}.", "What does admit() return?")
    chosen = list(answer)
    if any(one not in ids for one in chosen) or len(set(chosen)) < len(chosen):
        raise Promise.WAITING_ONCE.broken(
            f"You admitted {listed(chosen)}.",
            f"The waiting requests are {listed(ids)}." if ids else "No request is waiting.",
        )
    _check_limits(chosen, queue)
    if chosen != ids[: len(chosen)]:
        first = next(id_ for id_, mine in zip(ids, [*chosen, None], strict=False) if id_ != mine)
        raise Promise.IN_ORDER.broken(
            f"You admitted {listed(chosen)}.",
            f"{first} was at the head when another request was admitted. Follow {first} if small "
            "requests keep arriving.",
        )
    _check_none_is_left_out(chosen, queue)


def _left_after(chosen: list[str], queue: Queue) -> tuple[int, int, int]:
    """Return the seats, tokens and blocks that remain; below 0 if too much was given away."""
    seats, budget, blocks = queue.seats, queue.budget, queue.blocks
    for id_, tokens, samples in queue.waiting:
        if id_ in chosen:
            seats, budget = seats - samples, budget - min(tokens, budget)
            blocks -= _blocks_of(tokens, queue)
    return seats, budget, blocks


def _blocks_of(tokens: int, queue: Queue) -> int:
    return -(-tokens // queue.block_size)


def _check_limits(chosen: list[str], queue: Queue) -> None:
    people = {id_: (tokens, samples) for id_, tokens, samples in queue.waiting}
    in_order = [id_ for id_ in people if id_ in chosen]
    for count, id_ in enumerate(in_order, 1):
        tokens, _ = people[id_]
        before, after = (_left_after(in_order[:end], queue) for end in (count - 1, count))
        chunk = min(tokens, before[1])
        did = f"You admitted {listed(chosen)}."
        if after[0] < 0:
            look = f"When it was {id_}'s turn, {counted(before[0], 'seat')} "
            look += f"{'was' if before[0] == 1 else 'were'} left."
            several = [one for one in in_order[:count] if people[one][1] > 1]
            if several:
                look += f" {several[-1]} needs {people[several[-1]][1]}: one for each sample."
            raise Promise.SEATS.broken(did, look)
        if chunk == 0:
            raise Promise.BUDGET.broken(did, f"When it was {id_}'s turn, the budget was spent.")
        if after[2] < 0:
            look = (
                f"{id_} has {counted(tokens, 'token')}, which {'needs' if tokens == 1 else 'need'} "
                f"{counted(_blocks_of(tokens, queue), 'block')}. At that moment {before[2]} "
                f"{'was' if before[2] == 1 else 'were'} free."
            )
            if chunk < tokens and _blocks_of(chunk, queue) <= before[2]:
                look += (
                    f" The first chunk, {counted(chunk, 'token')}, fits. Where does the rest go?"
                )
            raise Promise.BLOCKS.broken(did, look)


def _check_none_is_left_out(chosen: list[str], queue: Queue) -> None:
    if len(chosen) == len(queue.waiting):
        return
    seats, budget, blocks = _left_after(chosen, queue)
    id_, tokens, samples = queue.waiting[len(chosen)]
    chunk = min(tokens, budget)
    if samples > seats or chunk == 0 or _blocks_of(tokens, queue) > blocks:
        return
    left = f"{counted(seats, 'seat')}, {counted(budget, 'token')} and {counted(blocks, 'block')}"
    look = f"When it was {id_}'s turn, {left} were left."
    if chunk < tokens:
        look += f" {id_} has {tokens} tokens to compute: the budget is enough for a chunk of them."
    raise Promise.AS_MANY_AS_FIT.broken(
        f"You admitted {listed(chosen)}, and left {id_} waiting.", look
    )
