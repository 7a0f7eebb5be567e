"""The three workloads of the final project, and their latency goals.

Each seed draws another workload of the same kind. All three run on one pretend machine: a step takes
10 ms and 0.25 ms for each of its tokens. A client's limit (`max_tokens`) depends on the kind of
client alone, so it does not give away the length of the answer.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from engine.core.sampling_params import SamplingParams
from engine.simulation.cost_runner import Cost
from engine.simulation.workload import Answer, Arrival, Workload

MACHINE = Cost(base_ms=10, per_token_ms=0.25)
SEATS = 8
BLOCK_SIZE = 16


@dataclass(frozen=True)
class Kind:
    """A workload to draw, the memory for it, and its goals.

    ttft_ms  the goal for the time from arrival to first token
    gap_ms   the goal for the longest time between two tokens of one answer
    draw     (random numbers) -> the requests, without their arrival times
    """

    name: str
    requests: int
    per_second: float
    blocks: int
    ttft_ms: float
    gap_ms: float
    draw: Callable[[random.Random], "Draw"]

    def workload(self, seed: int) -> Workload:
        """Draw the requests. The same seed gives the same ones on every machine.

        Times are rounded to whole milliseconds, because logarithms differ in the last digit.
        """
        rng = random.Random(f"{self.name} {seed}")
        draw, at = self.draw(rng), 0.0
        inputs: list[Arrival] = []
        for _ in range(self.requests):
            at += rng.expovariate(self.per_second) * 1000
            inputs.append(draw(float(round(at))))
        return Workload(list(inputs))


Draw = Callable[[float], Arrival]  # arrival time in ms -> a request


def _request(
    rng: random.Random,
    at_ms: float,
    label: str,
    *,
    shared: list[int] | None = None,
    own: tuple[int, int],
    answer: tuple[int, int],
    limit: int,
    priority: int = 1,
) -> Arrival:
    """Draw a request: `own` and `answer` are ranges of lengths in tokens, `limit` is its max_tokens."""
    length = rng.randint(*answer)
    return Arrival(
        at_ms=at_ms,
        prompt=(shared or []) + _letters(rng, rng.randint(*own)),
        params=SamplingParams(max_tokens=limit),
        label=label,
        priority=priority,
        answers={0: Answer(length)},
    )


def _letters(rng: random.Random, count: int) -> list[int]:
    return [ord("a") + rng.randrange(26) for _ in range(count)]


def _assistants(rng: random.Random) -> Draw:
    """Eight assistants with long instructions; the first is the most popular (Zipf's law)."""
    instructions = [_letters(rng, 192) for _ in range(8)]
    popularity = [1 / rank for rank in range(1, 9)]

    def draw(at_ms: float) -> Arrival:
        [number] = rng.choices(range(8), popularity)
        shared = instructions[number]
        return _request(
            rng,
            at_ms,
            f"assistant {number + 1}",
            shared=shared,
            own=(8, 40),
            answer=(4, 40),
            limit=64,
        )

    return draw


def _documents(rng: random.Random) -> Draw:
    """Chats, and a few long documents among them."""

    def draw(at_ms: float) -> Arrival:
        if rng.random() < 0.15:
            return _request(rng, at_ms, "document", own=(200, 500), answer=(4, 24), limit=32)
        return _request(rng, at_ms, "chat", own=(16, 48), answer=(8, 48), limit=64)

    return draw


def _rush(rng: random.Random) -> Draw:
    """Short urgent requests among longer ones that can wait."""

    def draw(at_ms: float) -> Arrival:
        if rng.random() < 0.3:
            return _request(rng, at_ms, "urgent", own=(8, 32), answer=(4, 16), limit=16, priority=0)
        return _request(rng, at_ms, "usual", own=(16, 96), answer=(8, 48), limit=64)

    return draw


WORKLOADS = (
    Kind("assistants", 160, 17, 72, ttft_ms=600, gap_ms=40, draw=_assistants),
    Kind("documents", 120, 16, 48, ttft_ms=600, gap_ms=30, draw=_documents),
    Kind("rush", 160, 24, 40, ttft_ms=500, gap_ms=60, draw=_rush),
)
