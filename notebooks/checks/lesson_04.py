"""Lesson 04: who of the queue joins the batch in this step?"""

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from checks.broken import Broken
from checks.guard import call
from checks.judging import counted, judge, listed
from engine.scheduling.policies import Fcfs
from engine.scheduling.policy import AdmissionLimits, Policy
from engine.scheduling.request import Request

Admit = Callable[..., list[Any]]


@dataclass(frozen=True)
class Queue:
    """Who waits, as (id, tokens, places), and what is left for them in this step."""

    waiting: tuple[tuple[str, int, int], ...]
    places: int
    budget: int
    blocks: int
    block_size: int

    def __str__(self) -> str:
        people = [
            f"{id_} with {counted(tokens, 'token')}"
            + (f" and {slots} samples" if slots > 1 else "")
            for id_, tokens, slots in self.waiting
        ]
        blocks = f"{counted(self.blocks, 'free block')} of {self.block_size} slots"
        left = listed([counted(self.places, "place"), counted(self.budget, "token"), blocks])
        return f"Queue: {listed(people)}. Left in this step: {left}."


class YourAdmission(Fcfs):
    """What a learner wrote, as the engine asks for it."""

    def __init__(self, admit: Admit) -> None:
        self._admit = admit

    def admit(self, waiting: Iterator[Request], limits: AdmissionLimits) -> Collection[Request]:
        """Everybody whose id is in the learner's answer."""
        queue = list(waiting)
        ids = self._admit(
            [(one.id, one.num_uncomputed_tokens, one.num_seqs) for one in queue], *limits
        )
        return [one for one in queue if one.id in ids]


def check(admit: Admit) -> Policy:
    """Say how `admit` does, and give the engine a policy that runs it; its own while it fails."""
    verdict = judge(admit, cases(), attempt)
    print(verdict)
    return YourAdmission(admit) if verdict.passed else Fcfs()


def cases() -> list[Queue]:
    """Every short queue before every kind of room, and some longer ones; the smallest first."""
    rooms = list(product((3, 2, 1, 0), (32, 6, 4, 1, 0), (8, 2, 1, 0)))
    people = list(product((1, 4, 5, 9), (1, 2)))
    queues = [()] + [queue for length in (1, 2) for queue in product(people, repeat=length)]
    chance = random.Random(4)
    longer = [tuple(chance.choices(people, k=chance.randint(3, 5))) for _ in range(600)]
    pairs = [*product(queues, rooms), *((queue, chance.choice(rooms)) for queue in longer)]
    return sorted((_queue(people, room) for people, room in pairs), key=_size)


def _queue(people: Iterable[tuple[int, int]], room: tuple[int, int, int]) -> Queue:
    named = [(id_, *one) for id_, one in zip("ABCDE", people, strict=False)]
    return Queue(tuple(named), *room, block_size=4)


def _size(queue: Queue) -> tuple[int, ...]:
    """Few people, few samples, few tokens; and where there is plenty of room, less can be tight."""
    tokens = sum(tokens for _, tokens, _ in queue.waiting)
    slots = sum(slots for _, _, slots in queue.waiting)
    return (len(queue.waiting), slots, tokens, -queue.places, -queue.blocks, -queue.budget)


def attempt(admit: Admit, queue: Queue) -> None:
    """Hold an answer against the promises: it fits, nobody is passed over, nobody is left out."""
    answer = call(
        admit, list(queue.waiting), queue.places, queue.budget, queue.blocks, queue.block_size
    )
    ids = [id_ for id_, _, _ in queue.waiting]
    if not isinstance(answer, list | tuple):
        raise Broken(
            f"You returned {answer!r}.", "the answer is a list of ids", "What does admit() return?"
        )
    chosen = list(answer)
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(ids):
        raise Broken(
            f"You admitted {listed(chosen)}.",
            "each who is admitted waits, and is named once",
            f"Those who wait are {listed(ids)}.",
        )
    _check_limits(chosen, queue)
    if chosen != ids[: len(chosen)]:
        first = next(id_ for id_, mine in zip(ids, [*chosen, None], strict=False) if id_ != mine)
        raise Broken(
            f"You admitted {listed(chosen)}.",
            "nobody overtakes the head of the queue",
            f"{first} was at the head when somebody else was taken. Follow {first} if small "
            "requests keep arriving.",
        )
    _check_nobody_is_left_out(chosen, queue)


def _left_after(chosen: list[str], queue: Queue) -> tuple[int, int, int]:
    """Places, tokens and blocks that remain; below 0 where too much was given away."""
    places, budget, blocks = queue.places, queue.budget, queue.blocks
    for id_, tokens, slots in queue.waiting:
        if id_ in chosen:
            chunk = min(tokens, budget)
            places, budget = places - slots, budget - chunk
            blocks -= -(-chunk // queue.block_size)
    return places, budget, blocks


def _check_limits(chosen: list[str], queue: Queue) -> None:
    people = {id_: (tokens, slots) for id_, tokens, slots in queue.waiting}
    in_order = [id_ for id_ in people if id_ in chosen]
    for count, id_ in enumerate(in_order, 1):
        tokens, slots = people[id_]
        before, after = (_left_after(in_order[:end], queue) for end in (count - 1, count))
        chunk = min(tokens, before[1])
        did = f"You admitted {listed(chosen)}."
        if after[0] < 0:
            look = f"{id_} needs {counted(slots, 'place')}: one for each sample."
            if slots == 1:
                look = f"{counted(queue.places, 'place')} left, and {id_} is one too many."
            raise Broken(did, "no more places are given away than there are", look)
        if chunk == 0:
            raise Broken(
                did,
                "whoever joins computes at least one token",
                f"When it was {id_}'s turn, the budget was spent.",
            )
        if after[2] < 0:
            raise Broken(
                did,
                "no more blocks are given away than are free",
                f"{id_} computes {counted(chunk, 'token')}, which "
                f"{'needs' if chunk == 1 else 'need'} "
                f"{counted(-(-chunk // queue.block_size), 'block')}. At that moment "
                f"{before[2]} were free.",
            )


def _check_nobody_is_left_out(chosen: list[str], queue: Queue) -> None:
    if len(chosen) == len(queue.waiting):
        return
    places, budget, blocks = _left_after(chosen, queue)
    id_, tokens, slots = queue.waiting[len(chosen)]
    chunk = min(tokens, budget)
    if slots > places or chunk == 0 or -(-chunk // queue.block_size) > blocks:
        return
    left = f"{counted(places, 'place')}, {counted(budget, 'token')} and {counted(blocks, 'block')}"
    look = f"When it was {id_}'s turn, {left} were left."
    if chunk < tokens:
        look += f" {id_} has {tokens} tokens to compute: a chunk of them fits."
    raise Broken(
        f"You admitted {listed(chosen)}, and left {id_} waiting.",
        "as many join as fit",
        look,
    )
