"""The lessons' workloads (see the course's storyboard), on a runner without a model.

A prompt is written as (shared, own): `shared` tokens of a common beginning, `own` tokens of its own.
"""

from dataclasses import dataclass, replace
from zlib import crc32

from engine.config import EngineConfig
from engine.engine import Engine
from engine.scheduling.request import Request
from engine.scheduling.sampling_params import SamplingParams
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
    # The first own token differs between speakers, so that nobody shares more than they should.
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
        if not engine.has_work():  # no step passes while nobody is there
            pending[0].step = min(pending[0].step, engine.step_count + 1)
        for speaker in [s for s in pending if s.step <= engine.step_count + 1]:
            params = SamplingParams(max_tokens=speaker.output, n=speaker.n, ignore_eos=True)
            requests[speaker.name] = engine.submit(
                prompt_of(speaker), params, label=speaker.name, priority=speaker.priority
            )
            pending.remove(speaker)
        engine.step()
    return engine, requests
