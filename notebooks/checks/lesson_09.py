"""Lesson 09: memory is full, somebody needs a block. Who gives way?"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product
from typing import Any

from checks.broken import Broken
from checks.guard import call, watched
from checks.judging import counted, judge, listed
from engine import Cost, EngineConfig, simulate
from engine.part_errors import PolicyError
from engine.scheduling.policies import Priority
from engine.scheduling.policy import Policy
from engine.scheduling.request import Request
from engine.simulation.speakers import NAMES, Speaker, workload_of

Row = tuple[Any, int, int, int, int]  # id, priority, arrival, computed, blocks
Victim = Callable[[list[Row], Any], Any]

BLOCK = 8  # slots


@dataclass(frozen=True)
class Shortage:
    """Who runs, in order of admission, and who of them needs a block that is not there."""

    running: tuple[tuple[str, int, int, int, int], ...]
    needed_by: str

    def __str__(self) -> str:
        people = [
            f"{id_} with priority {priority} (came {_PLACES[arrival - 1]}, "
            f"{computed} tokens computed, {counted(blocks, 'block')})"
            for id_, priority, arrival, computed, blocks in self.running
        ]
        return f"Running: {listed(people)}. {self.needed_by} needs a block, and none is left."


@dataclass(frozen=True)
class Crowd:
    """People for a whole run of the engine, in a memory that is too small for them."""

    people: tuple[Speaker, ...]

    def __str__(self) -> str:
        people = [
            f"{one.name} from step {one.step} with priority {one.priority}, "
            f"{one.own} + {one.output} tokens"
            for one in self.people
        ]
        return f"A run of the engine with 8 blocks of 8 slots: {listed(people)}."


_PLACES = ("1st", "2nd", "3rd", "4th", "5th")


class YourVictims(Priority):
    """What a learner wrote, as the engine asks for it; the queue is that of `Priority`."""

    def __init__(self, victim: Victim) -> None:
        self._victim = victim

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:
        """The running request with the id that the learner's rule names."""
        rows: list[Row] = [
            (one.id, one.priority, one.id, one.num_computed_tokens, len(one.block_table))
            for one in running
        ]
        chosen = self._victim(rows, needed_by.id)
        return next(one for one in running if one.id == chosen)


def check(victim: Victim) -> Policy:
    """Say how `victim` does, and give the engine a policy that asks it; its own while it fails."""
    verdict = judge(victim, cases(), attempt)
    print(verdict)
    return YourVictims(victim) if verdict.passed else Priority()


def cases() -> list[Shortage | Crowd]:
    """Every mixture of one to three requests, some larger ones, and then whole runs."""
    chance = random.Random(9)
    shortages = [
        _shortage(priorities, arrivals, chance)
        for count in (1, 2, 3)
        for priorities, arrivals, _ in product(
            product((0, 5), repeat=count), permutations(range(1, count + 1)), range(3)
        )
    ]
    for _ in range(300):
        count = chance.randint(4, 5)
        arrivals = chance.sample(range(1, count + 1), count)
        shortages.append(_shortage(chance.choices((0, 2, 5), k=count), arrivals, chance))
    return [*sorted(shortages, key=_size), *(_crowd(chance) for _ in range(12))]


def _shortage(
    priorities: Sequence[int], arrivals: Sequence[int], chance: random.Random
) -> Shortage:
    """Priority, age and amount of work are independent: no order of the rows gives one away."""
    computed = chance.sample(range(9, 57), len(arrivals))
    running = tuple(
        (id_, priority, arrival, tokens, -(-tokens // BLOCK))
        for id_, priority, arrival, tokens in zip(
            "ABCDE", priorities, arrivals, computed, strict=False
        )
    )
    return Shortage(running, chance.choice(running)[0])


def _crowd(chance: random.Random) -> Crowd:
    return Crowd(
        tuple(
            Speaker(
                name,
                step,
                own=chance.randint(12, 20),
                output=chance.randint(16, 24),
                priority=chance.choice((0, 5)),
            )
            for name, step in zip(NAMES, (1, 1, 2, 4), strict=False)
        )
    )


def _size(shortage: Shortage) -> tuple[int, ...]:
    """Few people; some in a hurry and some not; in the order in which they came; little work."""
    classes = len({priority for _, priority, _, _, _ in shortage.running})
    arrivals = [arrival for _, _, arrival, _, _ in shortage.running]
    late = sum(one > other for one, other in pairwise(arrivals))
    work = sum(tokens for _, _, _, tokens, _ in shortage.running)
    return (len(shortage.running), -classes, late, work)


def attempt(victim: Victim, case: Shortage | Crowd) -> None:
    """Hold an answer against the promises: it runs, nobody is less urgent, the oldest goes on."""
    if isinstance(case, Crowd):
        _attempt_run(victim, case)
        return
    chosen = call(victim, list(case.running), case.needed_by)
    rows = {row[0]: row for row in case.running}
    if not _is_among(chosen, rows):
        raise Broken(
            f"You returned {chosen!r}.",
            "the victim is one of those who run",
            f"What is asked for is an id: {' or '.join(rows)}.",
        )
    priority = rows[chosen][1]
    least = max(row[1] for row in case.running)
    peers = {id_: row for id_, row in rows.items() if row[1] == least}
    if chosen not in peers:
        look = "Priority 0 is the most urgent here; who has a larger number can wait longer."
        if chosen == case.needed_by:
            look += f" And {chosen} has stopped for somebody in less of a hurry."
        raise Broken(
            f"You stopped {chosen}, with priority {priority}, and {listed(peers)}, with priority "
            f"{least}, {'goes' if len(peers) == 1 else 'go'} on.",
            "the least urgent give way",
            look,
        )
    oldest = min(peers, key=lambda id_: peers[id_][2])
    if chosen == oldest and len(peers) > 1:
        others = [id_ for id_ in peers if id_ != oldest]
        raise Broken(
            f"You stopped {chosen}, the oldest of those with priority {least}, though "
            f"{listed(others)} {'was' if len(others) == 1 else 'were'} running as well.",
            "of the least urgent the oldest goes on, unless it is alone",
            f"{chosen} came {_PLACES[rows[chosen][2] - 1]}, "
            + listed(f"{id_} {_PLACES[rows[id_][2] - 1]}" for id_ in others)
            + ". What made your rule prefer the first of them?",
        )


def _is_among(chosen: object, ids: Iterable[str]) -> bool:
    return isinstance(chosen, str) and chosen in ids


def _attempt_run(victim: Victim, crowd: Crowd) -> None:
    """In the engine ids are numbers, and whoever gave way comes back.

    A run that comes to an end has served everybody; one that does not is stopped by `watched`.
    """
    config = EngineConfig(token_budget=32, max_batch_size=4, max_kv_tokens=64, block_size=BLOCK)
    with watched(victim):
        try:
            simulate(
                workload_of(crowd.people), config, cost=Cost(10, 0.25), policy=YourVictims(victim)
            )
        except PolicyError as error:
            raise error.__cause__ or error from None  # it has the learner's own line
