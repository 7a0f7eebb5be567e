"""Workloads for the comparison with vLLM, by stratum. Equal seeds give equal workloads.

    designed    small cases, one rule each
    random      anything: block sizes, budgets, seats, shared beginnings
    serving     personas with a system prompt each, chats that continue, documents asked repeatedly;
                memory for one to six requests
    tight       memory for little more than one request
    priorities  tight memory under the priority policy, with late urgent requests
    aborts      clients that leave while they wait, run or are preempted
    async       all of these under asynchronous scheduling
    long prefill  vLLM's limit on the tokens of a long prompt per step, which is not a setting here

Source of the mix of chats and documents: the traces of Mooncake (arXiv:2407.00079).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from parity.records import STOP, Ask, Workload

COUNTS = {
    "random": 300,
    "serving": 400,
    "tight": 200,
    "priorities": 150,
    "aborts": 150,
    "async": 400,
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


# Designed workloads


def _ask(
    step: int,
    name: str,
    prompt: int,
    output: int,
    *,
    prefix: Sequence[int] = (),
    stop_early: int = 0,
    **fields: int,
) -> Ask:
    """Return a request whose tokens follow from its name. `stop_early`: tokens that it leaves."""
    said = letters(name + " output", output)
    if stop_early:
        said[-1] = STOP
    ids = [*prefix, *letters(name, prompt)]
    return Ask(step, ids, said, output + stop_early, **fields)


def _case(name: str, requests: list[Ask], **settings: Any) -> Workload:
    fields = {"token_budget": 64, "max_batch_size": 4, "num_blocks": 32, "block_size": 4} | settings
    stratum = "long prefill" if "long_prefill" in settings else "designed"
    return Workload(name, stratum, requests=requests, **fields)


def designed() -> list[Workload]:
    """Return the designed workloads, and those of synchronous ones that differ when asynchronous."""
    synchronous = [*_batch_cases(), *_prefix_cases(), *_memory_cases(), *_abort_cases()]
    asynchronous = [
        msgspec.structs.replace(one, name=f"{one.name}, asynchronous", async_scheduling=True)
        for one in synchronous
        if one.chunked_prefill
    ]
    return synchronous + asynchronous


def _batch_cases() -> list[Workload]:
    """Budget, seats, chunks and the order of the queue."""
    stops = [_ask(1, "a", 6, 5, stop_early=6), _ask(1, "b", 5, 3, stop_early=9)]
    urgent = [
        _ask(1, "a", 4, 5, priority=5),
        _ask(1, "b", 4, 5, priority=5),
        _ask(2, "c", 4, 5, priority=0),
    ]
    ties = [_ask(1, name, 4, 3, priority=n % 2) for n, name in enumerate("abcdef")]
    long_prompts = [_ask(1, "a", 30, 4), _ask(1, "b", 30, 4), _ask(2, "c", 3, 8)]
    return [
        _case(
            "a prompt is cut into chunks",
            [_ask(1, "a", 19, 4), _ask(1, "b", 5, 6), _ask(2, "c", 9, 3)],
            token_budget=8,
        ),
        _case(
            "decode and prefill share a step",
            [_ask(1, "a", 3, 8), _ask(3, "b", 14, 3)],
            token_budget=6,
        ),
        _case("a budget of one token", [_ask(1, "a", 5, 3), _ask(2, "b", 4, 3)], token_budget=1),
        _case("blocks of one token", [_ask(1, "a", 7, 4), _ask(2, "b", 6, 4)], block_size=1),
        _case(
            "all seats are taken",
            [_ask(1, "a", 4, 5), _ask(1, "b", 4, 3), _ask(1, "c", 4, 2)],
            max_batch_size=2,
        ),
        _case(
            "one seat", [_ask(1, "a", 9, 4), _ask(1, "b", 3, 2), _ask(3, "c", 6, 2)],
            max_batch_size=1,
        ),
        _case("outputs end with a stop token", stops),
        _case(
            "a stop token frees the only seat", [*stops, _ask(2, "c", 3, 2)], max_batch_size=1
        ),
        _case("a late urgent request overtakes", urgent, policy="priority", max_batch_size=1),
        _case("equal priorities go by arrival", ties, policy="priority", max_batch_size=2),
        _case(
            "chunked prefill is off",
            [_ask(1, "a", 30, 4), _ask(1, "b", 40, 4), _ask(2, "c", 20, 3)],
            chunked_prefill=False,
        ),
        _case("long prompts may fill the budget", long_prompts, token_budget=24, long_prefill=64),
        _case("long prompts get part of the budget", long_prompts, token_budget=24, long_prefill=6),
        _case(
            "a long prompt alone gets the budget", [_ask(1, "a", 40, 3)], token_budget=16,
            long_prefill=4,
        ),
    ]  # fmt: skip


def _prefix_cases() -> list[Workload]:
    """What is found in the cache, when, and what is kept twice."""
    stem = letters("stem", 16)
    turn = _ask(1, "turn", 9, 7)
    chat = [*turn.prompt, *turn.output]
    question, answer = letters("question", 8), letters("answer", 12)
    return [
        _case(
            "a finished prompt is found",
            [_ask(1, "a", 3, 3, prefix=stem), _ask(6, "b", 3, 3, prefix=stem)],
        ),
        _case(
            "a running prompt is found",
            [_ask(1, "a", 3, 9, prefix=stem), _ask(4, "b", 3, 3, prefix=stem)],
        ),
        _case(
            "one beginning twice in one step",
            [_ask(1, "a", 3, 3, prefix=stem), _ask(1, "b", 3, 3, prefix=stem)],
        ),
        _case(
            "one beginning four times, small budget",
            [_ask(1, name, 3, 3, prefix=stem) for name in "abcd"],
            token_budget=8,
        ),
        _case(
            "a beginning that another computes in chunks",
            [_ask(1, "a", 3, 3, prefix=stem), _ask(2, "b", 3, 3, prefix=stem)],
            token_budget=8,
        ),
        _case(
            "at least one token is computed",
            [_ask(1, "a", 0, 3, prefix=stem), _ask(6, "b", 0, 3, prefix=stem)],
        ),
        _case(
            "a beginning ends within a block",
            [_ask(1, "a", 6, 3, prefix=stem[:14]), _ask(6, "b", 6, 3, prefix=stem[:14])],
        ),
        _case(
            "a chat continues",
            [turn, _ask(12, "next", 5, 6, prefix=chat), _ask(13, "other", 9, 3, prefix=chat[:12])],
        ),
        _case(
            "a chat continues while its last turn runs",
            [turn, _ask(4, "next", 5, 6, prefix=chat)],
        ),
        _case(
            "equal prompts with equal outputs",
            [Ask(1, question, answer, 12), Ask(3, question, answer, 12)],
        ),
        _case(
            "equal prompts with equal outputs are then asked again",
            [*(Ask(1, question, answer, 12) for _ in range(3)),
             _ask(20, "more", 4, 4, prefix=[*question, *answer])],
        ),
        _case(
            "no prefix cache",
            [_ask(1, "a", 3, 3, prefix=stem), _ask(6, "b", 3, 3, prefix=stem)],
            prefix_cache=False,
        ),
    ]  # fmt: skip


def _memory_cases() -> list[Workload]:
    """Admission, preemption and eviction."""
    stem = letters("stem", 16)
    a, b = letters("a", 16), letters("b", 13)
    lru = [(1, "a", 12), (4, "b", 12), (7, "a", 12), (10, "c", 16), (13, "a", 12), (16, "b", 12)]
    self_preempting = [
        _ask(1, "low", 11, 8, priority=9),
        _ask(2, "high", 8, 12, priority=0),
        _ask(2, "middle", 4, 12, priority=1),
    ]
    refunded = [
        _ask(1, "first", 8, 12, priority=9),
        _ask(2, "second", 8, 12, priority=0),
        _ask(3, "third", 7, 12, priority=1),
    ]
    three = [_ask(1, name, length, 12) for name, length in (("a", 8), ("b", 7), ("c", 6))]
    return [
        _case(
            "a whole prompt must fit beside the running requests",
            [_ask(1, "a", 12, 10), _ask(2, "b", 20, 4)],
            token_budget=4,
            num_blocks=8,
        ),
        _case(
            "a large request blocks a small one behind it",
            [_ask(1, "a", 12, 8), _ask(2, "b", 20, 4), _ask(2, "c", 2, 2)],
            num_blocks=8,
        ),
        _case(
            "a whole sequence must fit again after a preemption", three, num_blocks=8,
            token_budget=8,
        ),
        _case(
            "cached blocks count only if no running request holds them",
            [_ask(1, "a", 3, 9, prefix=stem), _ask(2, "b", 3, 5, prefix=stem),
             _ask(8, "c", 10, 5, prefix=stem[:8])],
            num_blocks=9,
        ),
        _case(
            "the last request is preempted", [_ask(1, "a", 8, 9), _ask(1, "b", 7, 9)], num_blocks=6
        ),
        _case(
            "the least urgent request is preempted",
            [_ask(1, "a", 8, 9, priority=5), _ask(1, "b", 7, 9, priority=0)],
            num_blocks=6,
            policy="priority",
        ),
        _case("a request is preempted and finds a part again", three[:2], num_blocks=7),
        _case("two requests are preempted", three, num_blocks=9),
        _case(
            "a request preempts itself", [_ask(1, "a", 10, 12), _ask(1, "b", 3, 12)], num_blocks=6
        ),
        _case(
            "a request preempts itself under the priority policy", self_preempting,
            num_blocks=8, policy="priority",
        ),
        _case(
            "a victim gives back its tokens of the same step", refunded, num_blocks=8,
            policy="priority", token_budget=10,
        ),
        _case(
            "nothing is admitted after a preemption",
            [*three[:2], _ask(6, "late", 2, 2)],
            num_blocks=6,
        ),
        _case(
            "eviction takes a part of a prefix, its tail first",
            [Ask(1, a, letters("x", 4), 4), Ask(8, b, letters("y", 3), 3),
             Ask(16, a, letters("z", 4), 4)],
            num_blocks=8,
        ),
        _case(
            "the least recently used prefix is evicted",
            [Ask(step, letters(name, length), letters(step, 2), 2) for step, name, length in lru],
            num_blocks=10,
        ),
        _case(
            "a shared beginning is evicted after its endings",
            [_ask(1, "a", 5, 3, prefix=stem), _ask(1, "b", 5, 3, prefix=stem),
             _ask(9, "c", 14, 3), _ask(16, "d", 5, 3, prefix=stem)],
            num_blocks=9,
        ),
        _case(
            "memory runs out without a prefix cache",
            [_ask(1, "a", 8, 9), _ask(1, "b", 7, 9), _ask(1, "c", 3, 5)],
            num_blocks=7,
            prefix_cache=False,
        ),
    ]  # fmt: skip


def _abort_cases() -> list[Workload]:
    """Aborts of waiting, running and preempted requests."""
    stem = letters("stem", 16)
    return [
        _case(
            "aborts in the queue and in the batch",
            [_ask(1, "a", 9, 9), _ask(1, "b", 9, 9, abort=3), _ask(1, "c", 9, 9, abort=4)],
            token_budget=8,
            max_batch_size=2,
        ),
        _case(
            "an abort in the middle of a prompt leaves whole blocks",
            [_ask(1, "a", 9, 3, prefix=stem, abort=3), _ask(4, "b", 2, 3, prefix=stem)],
            token_budget=6,
        ),
        _case(
            "a preempted request is aborted",
            [_ask(1, "a", 8, 12), _ask(1, "b", 7, 12, abort=8), _ask(2, "c", 3, 4)],
            num_blocks=6,
        ),
        _case(
            "an abort frees the seat for the next request",
            [_ask(1, "a", 4, 9, abort=4), _ask(1, "b", 4, 4)],
            max_batch_size=1,
        ),
        _case("an abort before the first step", [_ask(1, "a", 4, 9, abort=1), _ask(1, "b", 4, 4)]),
    ]


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


GENERATORS: dict[str, Callable[[int], Workload]] = {
    "random": random_workload,
    "serving": serving_workload,
    "tight": lambda seed: random_workload(seed, stratum="tight"),
    "priorities": lambda seed: random_workload(seed, stratum="priorities"),
    "aborts": lambda seed: random_workload(seed, stratum="aborts"),
    "async": async_workload,
}
