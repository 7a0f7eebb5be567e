"""Lesson 09: memory is full and a request needs a block. Which request is preempted?"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product
from typing import Any

from checks.answer import Answer
from checks.broken import Promises
from checks.decided import decided
from checks.guard import call, watched
from checks.judging import counted, listed
from engine import Cost, EngineConfig, simulate
from engine.core.part_errors import PolicyError
from engine.core.request import Request
from engine.core.scheduling.policies import Priority
from engine.core.scheduling.policy import Policy
from engine.simulation import choice
from engine.simulation.speakers import NAMES, Speaker, workload_of

ANSWERS = {
    "victim": decided(
        "preemption",
        20,
        {"Ada's": choice.Victim(1), "Bo's": choice.Victim(2), "Cleo's": choice.Victim(3)},
    ),
    "resumes": Answer(
        27,
        {
            21: "Three blocks are idle then, and it needs one. But those three are the beginning of "
            "its own text, so to evict one of them would be no gain.",
            29: "Ada's request has ended by then. But Bo's ended sooner, and released blocks as well.",
        },
    ),
    "thrash": Answer(
        "the tokens computed",
        {
            "the number of steps": "A step counts as one, even if most of its work is lost.",
            "the longest gap in Ada's answer": "A chunk makes her step longer, but in both runs.",
        },
    ),
}
HINTS = (
    "Start with the requests of the least urgent priority, which is the largest number in `running`.",
    "Of those, leave out the oldest (the smallest arrival), unless it is the only one. Any of the "
    "rest will do, and computed and blocks tell you which of them is cheapest.",
)


class Promise(Promises):
    """The promises that the check tests."""

    RUNNING = "the victim is a running request"
    LEAST_URGENT = "a least urgent request is preempted"
    OLDEST_GOES_ON = "of the least urgent requests the oldest goes on, unless it is the only one"


Row = tuple[Any, int, int, int, int]  # id, priority, arrival, computed, blocks
Rule = Callable[[list[Row], Any], Any]

BLOCK = 8  # slots


@dataclass(frozen=True)
class Shortage:
    """The running requests in order of admission, and the one that needs a block."""

    running: tuple[tuple[str, int, int, int, int], ...]
    needed_by: str

    def __str__(self) -> str:
        people = [
            f"{id_} with priority {priority} (arrived {_ORDINALS[arrival - 1]}, "
            f"{computed} tokens computed, {counted(blocks, 'block')})"
            for id_, priority, arrival, computed, blocks in self.running
        ]
        return f"Running: {listed(people)}. {self.needed_by} needs a block, and none is left."


@dataclass(frozen=True)
class Crowd:
    """A workload for a whole run of the engine, with too little memory."""

    people: tuple[Speaker, ...]

    def __str__(self) -> str:
        people = [
            f"{one.name} from step {one.step} with priority {one.priority}, "
            f"{one.own} + {one.output} tokens"
            for one in self.people
        ]
        return f"A run of the engine with 8 blocks of 8 slots: {listed(people)}."


_ORDINALS = ("1st", "2nd", "3rd", "4th", "5th")


class YourVictims(Priority):
    """A learner's victim rule, as a policy; the queue is that of `Priority`."""

    def __init__(self, victim: Rule) -> None:
        self._victim = victim

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:
        """Return the running request with the id that the learner's rule returned."""
        rows: list[Row] = [
            (one.id, one.priority, one.id, one.num_computed_tokens, len(one.block_table))
            for one in running
        ]
        chosen = self._victim(rows, needed_by.id)
        return next(one for one in running if one.id == chosen)


def adapt(victim: Rule | None) -> Policy:
    """Return a policy: the learner's, or the engine's own until that passes."""
    return YourVictims(victim) if victim else Priority()


def cases() -> list[Shortage | Crowd]:
    """Return all mixtures of one to three requests, some larger ones, and then whole runs."""
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
    """Draw priority, age and amount of work independently, so that no order of rows reveals them."""
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
    """Sort by few requests, then mixed priorities, then order of arrival, then little work."""
    classes = len({priority for _, priority, _, _, _ in shortage.running})
    arrivals = [arrival for _, _, arrival, _, _ in shortage.running]
    late = sum(one > other for one, other in pairwise(arrivals))
    work = sum(tokens for _, _, _, tokens, _ in shortage.running)
    return (len(shortage.running), -classes, late, work)


def attempt(victim: Rule, case: Shortage | Crowd) -> None:
    """Check that the victim runs, no request is less urgent, and the oldest goes on."""
    if isinstance(case, Crowd):
        _attempt_run(victim, case)
        return
    chosen = call(victim, list(case.running), case.needed_by)
    rows = {row[0]: row for row in case.running}
    if not _is_among(chosen, rows):
        raise Promise.RUNNING.broken(
            f"You returned {chosen!r}.", f"Return an id: {' or '.join(rows)}."
        )
    priority = rows[chosen][1]
    least = max(row[1] for row in case.running)
    peers = {id_: row for id_, row in rows.items() if row[1] == least}
    if chosen not in peers:
        look = "Priority 0 is the most urgent; larger numbers can wait longer."
        if chosen == case.needed_by:
            look += f" And {chosen} was preempted for a less urgent request."
        elif list(peers) == [case.needed_by]:
            look += f" {case.needed_by} needs the block, and may be the victim all the same."
        raise Promise.LEAST_URGENT.broken(
            f"You preempted {chosen}, with priority {priority}, and {listed(peers)}, with priority "
            f"{least}, {'goes' if len(peers) == 1 else 'go'} on.",
            look,
        )
    oldest = min(peers, key=lambda id_: peers[id_][2])
    if chosen == oldest and len(peers) > 1:
        others = [id_ for id_ in peers if id_ != oldest]
        raise Promise.OLDEST_GOES_ON.broken(
            f"You preempted {chosen}, the oldest of those with priority {least}, though "
            f"{listed(others)} {'was' if len(others) == 1 else 'were'} running as well.",
            f"{chosen} arrived {_ORDINALS[rows[chosen][2] - 1]}, "
            + listed(f"{id_} {_ORDINALS[rows[id_][2] - 1]}" for id_ in others)
            + ". Why did your rule prefer the oldest?",
        )


def _is_among(chosen: object, ids: Iterable[str]) -> bool:
    return isinstance(chosen, str) and chosen in ids


def _attempt_run(victim: Rule, crowd: Crowd) -> None:
    """Try the rule in the engine: ids are numbers, and preempted requests come back.

    A run that ends has served all requests; `watched` stops one that does not end.
    """
    config = EngineConfig(token_budget=32, max_batch_size=4, max_kv_tokens=64, block_size=BLOCK)
    with watched(victim):
        try:
            simulate(
                workload_of(crowd.people), config, cost=Cost(10, 0.25), policy=YourVictims(victim)
            )
        except PolicyError as error:
            raise error.__cause__ or error from None  # it names the learner's line
