"""The eight workloads of the final project: their requests, their machines and their latency goals.

Each seed draws another workload of the same kind. A client's limit (`max_tokens`) depends on the kind
of client alone, so it does not give away the length of the answer.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.cluster.transfer import TransferCosts
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.sampling_params import SamplingParams
from engine.simulation.cost_runner import Cost
from engine.simulation.workload import Answer, Arrival, letters

MACHINE = Cost(base_ms=10, per_token_ms=0.25)
BLOCK_SIZE = 16
END = min(ByteTokenizer().eos_ids)
CACHE = ("BlockPool", "split", "choose_leaf")  # a prefix cache needs them all


@dataclass(frozen=True)
class Kind:
    """A workload to draw, the machine for it, and its goals.

    uses     the parts that make a difference here
    ttft_ms  the goal for the time from arrival to first token
    gap_ms   the goal for the longest time between two tokens of one answer
    draw     (random numbers) -> the requests, without their arrival times
    needs    label of a client -> the part without which its requests are rejected
    streams  clients read the tokens one by one; without `Outbox` they get the whole answer at its end
    drafts   answers repeat their prompts, so that prompt lookup can draft them
    host, disk  memory below the GPU, in blocks
    link     what it costs to move KV from the replica that prefills to the one that decodes
    """

    name: str
    uses: tuple[str, ...]
    requests: int
    per_second: float
    blocks: int
    ttft_ms: float
    gap_ms: float
    draw: Callable[[random.Random], "Draw"]
    cost: Cost = MACHINE
    seats: int = 8
    replicas: int = 1
    needs: Mapping[str, str] = field(default_factory=dict, hash=False)
    streams: bool = False
    drafts: bool = False
    host: int = 0
    disk: int = 0
    link: TransferCosts | None = None

    def arrivals(self, seed: int) -> list[Arrival]:
        """Draw the requests. The same seed gives the same ones on every machine.

        Times are rounded to whole milliseconds, because logarithms differ in the last digit.
        """
        rng = random.Random(f"{self.name} {seed}")
        draw, at = self.draw(rng), 0.0
        requests = []
        for _ in range(self.requests):
            at += rng.expovariate(self.per_second) * 1000
            requests.append(draw(float(round(at))))
        return requests


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
    prompt = (shared or []) + letters(rng, rng.randint(*own))
    return _arrival(at_ms, label, prompt, Answer(length), limit, priority=priority)


def _arrival(
    at_ms: float, label: str, prompt: list[int], answer: Answer, limit: int, *, priority: int = 1
) -> Arrival:
    return Arrival(
        at_ms=at_ms,
        prompt=prompt,
        params=SamplingParams(max_tokens=limit),
        label=label,
        priority=priority,
        answers={0: answer},
    )


def _assistants(rng: random.Random) -> Draw:
    """Eight assistants with long instructions; the first is the most popular (Zipf's law)."""
    instructions = [letters(rng, 192) for _ in range(8)]
    popularity = [1 / rank for rank in range(1, 9)]

    def draw(at_ms: float) -> Arrival:
        [number] = rng.choices(range(8), popularity)
        label, shared = f"assistant {number + 1}", instructions[number]
        return _request(rng, at_ms, label, shared=shared, own=(8, 40), answer=(4, 40), limit=64)

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


def _edits(rng: random.Random) -> Draw:
    """Texts that come back with a few letters changed; some as JSON, some sampled."""

    def draw(at_ms: float) -> Arrival:
        text = letters(rng, 96)
        answer = text[: rng.randint(24, 64)]
        for _ in range(len(answer) // 12):
            answer[rng.randrange(len(answer))] = letters(rng, 1)[0]
        label = rng.choice(("plain", "plain", "JSON", "sampled"))
        return _arrival(at_ms, label, text, Answer(len(answer) + 1, [*answer, END]), 80)

    return draw


def _agents(rng: random.Random) -> Draw:
    """Fourteen agents that come back with all that was said before, and the result of a tool."""
    common = letters(rng, 128)
    said = [list(common) for _ in range(14)]

    def draw(at_ms: float) -> Arrival:
        number = rng.randrange(14)
        if len(said[number]) > 900:
            said[number] = list(common)  # a new conversation
        said[number] += letters(rng, rng.randint(40, 160))
        prompt, answer = list(said[number]), letters(rng, rng.randint(8, 24))
        said[number] += answer
        told = Answer(len(answer) + 1, [*answer, END])
        return _arrival(at_ms, f"agent {number + 1}", prompt, told, 32)

    return draw


def _chats(rng: random.Random) -> Draw:
    """People who talk to a small model."""
    return lambda at_ms: _request(rng, at_ms, "chat", own=(8, 40), answer=(8, 48), limit=64)


def _fleet(rng: random.Random) -> Draw:
    """Questions about nine guides, some of which are more popular."""
    guides = [letters(rng, 320) for _ in range(9)]
    popularity = [rank**-0.5 for rank in range(1, 10)]

    def draw(at_ms: float) -> Arrival:
        [number] = rng.choices(range(9), popularity)
        label, shared = f"guide {number + 1}", guides[number]
        return _request(rng, at_ms, label, shared=shared, own=(8, 72), answer=(8, 56), limit=64)

    return draw


def _reports(rng: random.Random) -> Draw:
    """Long reports and short chats, whose readers notice the smallest gap."""

    def draw(at_ms: float) -> Arrival:
        if rng.random() < 0.5:
            return _request(rng, at_ms, "report", own=(300, 700), answer=(16, 48), limit=64)
        return _request(rng, at_ms, "chat", own=(16, 48), answer=(16, 48), limit=64)

    return draw


_BASIC = ("order", "admit", "victim", "pick_budget")
FLEET = Kind(
    "fleet",
    (*_BASIC, *CACHE, "route"),
    requests=200,
    per_second=41,
    blocks=96,
    ttft_ms=400,
    gap_ms=60,
    draw=_fleet,
    replicas=3,
)
WORKLOADS = (
    Kind("assistants", (*_BASIC, *CACHE), 160, 19, 72, ttft_ms=600, gap_ms=40, draw=_assistants),
    Kind("documents", _BASIC, 120, 18, 48, ttft_ms=600, gap_ms=30, draw=_documents),
    Kind("rush", _BASIC, 160, 26, 40, ttft_ms=500, gap_ms=60, draw=_rush),
    Kind(
        "edits",
        (*_BASIC, "distribution", "accept", "mask"),
        requests=120,
        per_second=12.5,
        blocks=72,
        ttft_ms=500,
        gap_ms=40,
        draw=_edits,
        cost=Cost(base_ms=16, per_token_ms=0.2),
        seats=6,
        needs={"JSON": "mask", "sampled": "distribution"},
        drafts=True,
    ),
    Kind(
        "agents",
        (*_BASIC, *CACHE, "fetch_or_compute"),
        requests=120,
        per_second=17,
        blocks=160,
        ttft_ms=500,
        gap_ms=60,
        draw=_agents,
        cost=Cost(base_ms=10, per_token_ms=0.25, per_host_token_ms=0.01, per_disk_token_ms=0.3),
        host=512,
        disk=1024,
    ),
    Kind(
        "chats",
        (*_BASIC, "Outbox", "Ahead"),
        requests=160,
        per_second=37,
        blocks=96,
        ttft_ms=300,
        gap_ms=40,
        draw=_chats,
        cost=Cost(base_ms=8, per_token_ms=0.1, cpu_ms=6),
        streams=True,
    ),
    FLEET,
    Kind(
        "handover",
        ("order", "admit", "victim", *CACHE, "fetch"),
        requests=120,
        per_second=40,
        blocks=400,
        ttft_ms=500,
        gap_ms=16,
        draw=_reports,
        cost=Cost(base_ms=10, per_token_ms=0.1),
        seats=16,
        replicas=2,
        link=TransferCosts(fixed_ms=2, block_ms=0.2, token_ms=0.1),
    ),
)
