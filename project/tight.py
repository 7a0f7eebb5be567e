"""Small random workloads with too little memory, served by a runner that checks every read of KV.

The right answers come from a plain loop over the next-token function, without an engine.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from checks.broken import Broken
from checks.judging import listed
from engine import Engine, EngineConfig, SamplingParams
from engine.core.part_errors import PartError
from engine.simulation.checking_runner import CheckingRunner
from engine.simulation.cost_runner import US_PER_MS
from project.learner import Mine, MineError, Source, said
from project.parts import SeenClock, parts_of
from visualizer import read

BLOCK_SIZE = 4
STEP_MS = 10


@dataclass(frozen=True)
class Client:
    """A request before step `step`."""

    step: int
    prompt: tuple[int, ...]
    max_tokens: int
    samples: int
    priority: int


@dataclass(frozen=True)
class Tight:
    """A workload, and an engine that is hardly large enough for it."""

    number: int
    clients: tuple[Client, ...]
    config: EngineConfig

    def __str__(self) -> str:
        prompts = listed(len(one.prompt) for one in self.clients)
        return (
            f"Tight workload {self.number}: prompts of {prompts} tokens, {self.config.num_blocks} "
            f"blocks of {BLOCK_SIZE} slots, {self.config.max_batch_size} seats, "
            f"token_budget={self.config.token_budget}."
        )


def drawn(number: int) -> Tight:
    """Return workload `number`: some clients share a prefix, and some want two samples."""
    rng = random.Random(number)
    prefixes = [tuple(rng.choices(range(97, 123), k=12)) for _ in range(2)]
    clients = tuple(
        Client(
            step=rng.randint(1, 12),
            prompt=rng.choice([(), *prefixes])
            + tuple(rng.choices(range(97, 123), k=rng.randint(1, 14))),
            max_tokens=rng.randint(1, 14),
            samples=rng.choice((1, 1, 1, 2)),
            priority=rng.choice((0, 1)),
        )
        for _ in range(rng.randint(3, 8))
    )
    longest = max(len(one.prompt) + one.max_tokens for one in clients)
    config = EngineConfig(
        block_size=BLOCK_SIZE,
        max_kv_tokens=BLOCK_SIZE * (-(-longest // BLOCK_SIZE) + rng.randint(1, 6)),
        max_batch_size=rng.randint(2, 5),
        token_budget=rng.randint(6, 24),
    )
    return Tight(number, tuple(sorted(clients, key=lambda one: one.step)), config)


def serve_all(source: Source, names: tuple[str, ...], count: int) -> None:
    """Serve workloads 1 to `count` with some of a learner's parts.

    Raises MineError unless every request finishes with the right tokens, and all memory is free at the
    end.
    """
    for number in range(1, count + 1):
        mine = source.load()
        parts = {name: part for name, part in mine.parts.items() if name in names}
        tight = drawn(number)
        try:
            _serve(Mine({}, parts), tight)
        except Broken as broken:
            raise MineError(f"{tight} {said(broken)}") from None
        except PartError as error:
            cause = error.__cause__
            what = said(cause) if isinstance(cause, Broken) else str(error)
            raise MineError(f"{tight} {what}") from None


def _serve(mine: Mine, tight: Tight) -> None:
    runner = CheckingRunner(_next_token)
    steps = SeenClock.latest_us = 0
    parts = parts_of(mine, tight.config, 20 * STEP_MS)
    engine = Engine(runner, tight.config, **parts)
    limit = 50 * sum(len(one.prompt) + one.samples * one.max_tokens for one in tight.clients)
    pending, finished = list(tight.clients), []
    while pending or engine.has_work():
        steps += 1
        SeenClock.latest_us = steps * STEP_MS * US_PER_MS
        while pending and pending[0].step <= steps:
            one = pending.pop(0)
            params = SamplingParams(
                max_tokens=one.max_tokens, n=one.samples, temperature=1, ignore_eos=True
            )
            engine.submit(list(one.prompt), params, priority=one.priority)
        finished += engine.step().finished
        if steps > limit:
            preemptions = read(engine.log).requests.preemptions
            raise Broken(
                f"After {limit:,} steps, {listed(f'request {id_}' for id_ in engine.requests)} had not "
                "finished.",
                "every request finishes",
                f"{len(preemptions)} requests, {preemptions.sum()} preemptions. "
                "Which one goes on to its end?",
            )
    for request in finished:
        if request.finish_reason == "error":
            raise Broken(request.error, "a block holds the KV of the tokens before it", "")
        due = _plain(
            request.tokens[: request.prompt_length],
            request.params.max_tokens,
            request.seed + request.sample,
        )
        if request.output_ids != due:
            raise Broken(
                f"Request {request.id} got the tokens {request.output_ids}.",
                "the text does not depend on memory",
                f"Alone it gets {due}.",
            )
    _check_memory(engine)


def _check_memory(engine: Engine) -> None:
    """Ask the pool for all blocks once the cache is cleared."""
    engine.clear_prefix_cache()
    blocks = engine.config.num_blocks
    free = len(engine.pool.free)
    if free < blocks or sorted(engine.pool.allocate(blocks)) != list(range(blocks)):
        raise Broken(
            f"At the end {free} of {blocks} blocks were free.",
            "no block leaks",
            "No request and no cached prefix was left. Which release was missed?",
        )


def _plain(prompt: list[int], count: int, seed: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(_next_token(tokens, seed))
    return tokens[len(prompt) :]


def _next_token(tokens: Sequence[int], seed: int) -> int:
    """Return a letter that depends on all tokens before it."""
    return 97 + hash((seed, *tokens)) % 26
