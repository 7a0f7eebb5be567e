"""Workloads for the comparison with vLLM, by stratum. Equal seeds give equal workloads.

    designed    small cases, one rule each; add one by recording it with the others
    random      anything: block sizes, budgets, seats, shared beginnings
    serving     personas with a system prompt each, chats that continue, documents asked repeatedly;
                memory for one to six requests
    tight       memory for little more than one request
    priorities  tight memory under the priority policy, with late urgent requests
    aborts      clients that leave while they wait, run or are preempted
    async       all of these under asynchronous scheduling
    long prefill  vLLM's limit on the tokens of a long prompt per step
    limits      vLLM's other limits: a watermark, fewer active seats, long prefills, first chunks

Source of the mix of chats and documents: the traces of Mooncake (arXiv:2407.00079).
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from parity.records import DECISIONS_OF_VLLM, STOP, Ask, Workload, read

COUNTS = {
    "random": 300,
    "serving": 400,
    "tight": 200,
    "priorities": 150,
    "aborts": 150,
    "async": 300,
    "limits": 100,
}


def workloads(
    counts: dict[str, int] | None = None, *, first_seed: int = 0, designed_too: bool = True
) -> Iterator[Workload]:
    """Yield the designed workloads, then `counts` seeded ones of each stratum."""
    if designed_too:
        yield from designed()
    for stratum, count in (counts or COUNTS).items():
        for seed in range(first_seed, first_seed + count):
            yield GENERATORS[stratum](seed)


def letters(seed: Any, count: int, alphabet: int = 26) -> list[int]:
    """Return `count` tokens, each the code of a lower-case letter."""
    rng = random.Random(str(seed))
    return [97 + rng.randrange(alphabet) for _ in range(count)]


def blocks_of(ask: Ask, block_size: int) -> int:
    """Return the blocks that a request needs at its longest."""
    return -(-(len(ask.prompt) + ask.max_tokens) // block_size)


def designed() -> list[Workload]:
    """Return the designed workloads, which the committed recording has."""
    recorded = (recording.workload for recording in read(DECISIONS_OF_VLLM))
    return [one for one in recorded if one.stratum in ("designed", "long prefill")]


# Seeded workloads


def _output(rng: random.Random, longest: int, stops: float) -> tuple[list[int], int]:
    """Return the output and max_tokens. A share `stops` of the outputs ends with the stop token."""
    said = [97 + rng.randrange(26) for _ in range(rng.randint(1, longest))]
    if rng.random() >= stops:
        return said, len(said)
    return [*said[:-1], STOP], len(said) + rng.randint(1, 6)


def random_workload(seed: int, *, stratum: str = "random") -> Workload:
    """Anything: shared beginnings or none, tight memory or plenty, any policy."""
    rng = random.Random(f"{stratum} {seed}")
    tight = stratum != "random" or rng.random() < 0.5
    shared = rng.random() < (0.75 if tight else 0.5)
    size = rng.choice([1, 2, 4, 8, 16])
    longest = rng.choice([2, 4, 6]) * size + rng.randint(0, size)
    alphabet = rng.choice([2, 26])
    stems = [letters(rng.random(), rng.randint(1, longest), alphabet) for _ in range(3)]
    last_step = rng.choice([1, 8, 30])
    longest_output = rng.choice([3, 12, 24])
    requests = []
    for _ in range(rng.randint(2, 12)):
        own = letters(rng.random(), rng.randint(1, max(1, longest // 2)), alphabet)
        stem = rng.choice(stems)
        prompt = stem[: rng.randint(1, len(stem))] + own if shared else own
        output, max_tokens = _output(rng, longest_output, 0.2)
        ask = Ask(rng.randint(1, last_step), prompt, output, max_tokens, rng.randint(0, 3))
        if stratum == "aborts" and rng.random() < 0.5:
            ask.abort = ask.step + rng.randint(0, 20)
        requests.append(ask)
    requests.sort(key=lambda ask: ask.step)
    if stratum == "priorities":
        for number, ask in enumerate(requests):  # mostly, a later request is more urgent
            ask.priority = rng.randint(0, max(0, 8 - number))
    need = max(blocks_of(ask, size) for ask in requests)
    seats = rng.choice([1, 2, 3, 4, 8])
    policy = rng.choice(["fcfs", "fcfs", "priority"])
    return Workload(
        f"{stratum} {seed}",
        stratum,
        token_budget=max(seats, rng.choice([1, 2, 3, 5, 8, 16, 32, 64, 256])),
        max_batch_size=seats,
        num_blocks=need + rng.randint(0, 3) if tight else need * len(requests) + 8,
        block_size=size,
        requests=requests,
        policy="priority" if stratum == "priorities" else policy,
        prefix_cache=rng.random() < 0.85,
    )


def serving_workload(seed: int) -> Workload:
    """Chats of several turns with personas, and questions about documents, in little memory."""
    rng = random.Random(f"serving {seed}")
    size = rng.choice([4, 8, 16])
    budget = rng.choice([16, 32, 64, 128])
    personas = [letters(rng.random(), rng.randint(size, 5 * size)) for _ in range(3)]
    documents = [
        rng.choice([[], rng.choice(personas)])
        + letters(rng.random(), rng.randint(3 * size, 8 * size))
        for _ in range(2)
    ]
    chats: list[tuple[list[int], int, int]] = []  # tokens so far, step of the next turn, turns left
    requests: list[Ask] = []
    now = 1
    for _ in range(rng.randint(10, 20)):
        now += rng.choice([0, 0, 0, 1, 3, 8])
        words = letters(rng.random(), rng.randint(1, 2 * size))
        output, max_tokens = _output(rng, 18, 0.5)
        step, draw, turns = now, rng.random(), rng.randint(0, 3)
        if chats and draw < 0.45:
            history, ready, turns = chats.pop(rng.randrange(len(chats)))
            prompt, step = history + words, max(now, ready)
        elif draw < 0.7:
            prompt = rng.choice(documents) + words
        elif requests and draw < 0.78:
            prompt = rng.choice(requests).prompt  # asked again
        else:
            prompt = rng.choice(personas) + words
        requests.append(Ask(step, prompt, output, max_tokens))
        if turns:
            ready = step + len(prompt) // budget + len(output) + rng.randint(0, 12)
            chats.append((prompt + output, ready, turns - 1))
    requests.sort(key=lambda ask: ask.step)
    needs = [blocks_of(ask, size) for ask in requests]
    room = round(sum(needs) / len(needs) * rng.uniform(1, 6))
    return Workload(
        f"serving {seed}",
        "serving",
        token_budget=budget,
        max_batch_size=rng.choice([2, 4, 8]),
        num_blocks=max(*needs, room),
        block_size=size,
        requests=requests,
    )


def async_workload(seed: int) -> Workload:
    """One of the other strata under asynchronous scheduling."""
    strata = ("random", "serving", "tight", "priorities", "aborts")
    one = GENERATORS[strata[seed % len(strata)]](10_000 + seed)
    name = f"async {seed}"
    return msgspec.structs.replace(one, name=name, stratum="async", async_scheduling=True)


def limits_workload(seed: int) -> Workload:
    """One of the other strata with one of four limits: seed mod 4 says which, and async with others."""
    strata = ("random", "serving", "tight", "priorities", "async")
    one = GENERATORS[strata[seed // 4 % len(strata)]](20_000 + seed)
    rng = random.Random(f"limits {seed}")
    limits: dict[str, Any] = {"name": f"limits {seed}", "stratum": "limits"}
    if seed % 4 == 0 or rng.random() < 0.2:
        limits["watermark"] = rng.choice([0.01, 0.05, 0.1, 0.25, 0.5])
    if seed % 4 == 1 or rng.random() < 0.2:
        limits["long_prefill"] = rng.choice([1, 2, 3, 5, 8, 16])
        limits["long_prefill_adaptive"] = rng.random() < 0.5
    if seed % 4 == 2 or rng.random() < 0.2:
        limits["runner_seats"] = one.max_batch_size + rng.randint(1, 4)
        limits["token_budget"] = max(one.token_budget, limits["runner_seats"])
    if seed % 4 == 3 or rng.random() < 0.2:
        limits["whole_sequence"] = False
    return msgspec.structs.replace(one, **limits)


GENERATORS: dict[str, Callable[[int], Workload]] = {
    "random": random_workload,
    "serving": serving_workload,
    "tight": lambda seed: random_workload(seed, stratum="tight"),
    "priorities": lambda seed: random_workload(seed, stratum="priorities"),
    "aborts": lambda seed: random_workload(seed, stratum="aborts"),
    "async": async_workload,
    "limits": limits_workload,
}
