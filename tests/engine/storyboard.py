"""The lessons' workloads, on a runner without a model.

A prompt is written as (shared, own): `shared` tokens of a common beginning, `own` tokens of its own.
"""

from dataclasses import dataclass, replace
from zlib import crc32

from engine import Engine, EngineConfig, SamplingParams
from engine.core.request import Request
from engine.core.scheduling.policies import Fcfs
from engine.simulation.checking_runner import CheckingRunner


@dataclass
class Speaker:
    name: str
    step: int
    shared: str
    shared_tokens: int
    own_tokens: int
    output: int
    n: int = 1
    priority: int = 0


def prompt_of(speaker: Speaker) -> list[int]:
    shared = [
        1 + (crc32(f"{speaker.shared}{i}".encode()) % 100) for i in range(speaker.shared_tokens)
    ]
    # The first own token differs between speakers, so that speakers share no more than they should.
    first = 101 + sum(map(ord, speaker.name)) % 100
    own = [1 + (crc32(f"{speaker.name}{i}".encode()) % 100) for i in range(speaker.own_tokens)]
    if own:
        own[0] = first
    return shared + own


def simulate(
    config: EngineConfig, speakers: list[Speaker], **parts
) -> tuple[Engine, dict[str, Request]]:
    """Play the speakers to their ends; outputs are all different and never stop early."""
    runner = CheckingRunner(lambda tokens, seed: 32 + hash((tuple(tokens), seed)) % 60)
    engine = Engine(runner, config, **parts)
    requests: dict[str, Request] = {}
    pending = [replace(speaker) for speaker in speakers]
    while pending or engine.has_work():
        if not engine.has_work():  # an idle engine makes no step
            pending[0].step = min(pending[0].step, engine.step_count + 1)
        for speaker in [s for s in pending if s.step <= engine.step_count + 1]:
            params = SamplingParams(max_tokens=speaker.output, n=speaker.n, ignore_eos=True)
            requests[speaker.name] = engine.submit(
                prompt_of(speaker), params, label=speaker.name, priority=speaker.priority
            )
            pending.remove(speaker)
        engine.step()
    return engine, requests


FIRST_LOOK = [
    Speaker("Ada", 1, "stem", 16, 9, 10),
    Speaker("Bo", 1, "", 0, 30, 8),
    Speaker("Cleo", 3, "stem", 16, 6, 12),
    Speaker("Dev", 5, "", 0, 70, 6),
    Speaker("Eva", 6, "stem", 16, 10, 9),
]
FIRST_LOOK_CONFIG = {"token_budget": 32, "max_batch_size": 4, "max_kv_tokens": 192, "block_size": 8}

SHARED_SYSTEM_PROMPT = [
    Speaker("r1", 1, "system", 48, 10, 8),
    Speaker("r2", 2, "system", 48, 14, 8),
    Speaker("r3", 2, "system", 48, 12, 8),
    Speaker("r4", 2, "system", 48, 9, 8),
]

DOCUMENTS = [
    Speaker(f"{doc}{i}", step, doc, 32 if doc == "D" else 24, 3, 3)
    for doc, i, step in zip("ABCADAB", [1, 1, 1, 2, 1, 3, 2], range(1, 20, 3), strict=True)
]

FULL_MEMORY = [
    Speaker("r1", 1, "common", 16, 14, 28),
    Speaker("r2", 3, "common", 16, 8, 24),
    Speaker("r3", 5, "common", 16, 14, 20),
]
FULL_MEMORY_CONFIG = FIRST_LOOK_CONFIG | {"max_kv_tokens": 14 * 8}


class OldestGivesWay(Fcfs):
    def victim(self, running, needed_by):
        return running[0]
