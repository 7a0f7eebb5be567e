"""An afternoon in class, for lesson 12: a generated workload, scheduled by the real scheduler.

Twenty-four people: most ask a short question, some send a long text, some ask for a long answer. All
numbers are drawn from one seed.
"""

import random

from engine import Cost, EngineConfig, simulate
from engine.core.log import EventLog
from engine.simulation.speakers import NAMES, Speaker, workload_of
from engine.simulation.workload import Workload

SETTINGS = EngineConfig(token_budget=48, max_batch_size=6, max_kv_tokens=60 * 8, block_size=8)
MACHINE = Cost(10, 0.25)
PEOPLE = 24
SEED = 27


def afternoon() -> EventLog:
    """Return the log of that afternoon, the same at each call."""
    return simulate(_class(random.Random(SEED)), SETTINGS, cost=MACHINE)


def _class(chance: random.Random) -> Workload:
    people, step = [], 1
    for place, name in enumerate(NAMES[:PEOPLE]):
        step += chance.choice((0, 1, 1, 2, 3)) if place < 18 else chance.choice((6, 8, 10))
        talks = chance.random() < 0.35
        people.append(
            Speaker(
                name,
                step,
                shared=16 if chance.random() < 0.5 else 0,
                own=chance.randint(60, 150) if chance.random() < 0.2 else chance.randint(8, 24),
                output=chance.randint(40, 70) if talks else chance.randint(6, 20),
            )
        )
    return workload_of(people)
