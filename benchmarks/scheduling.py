"""The cost of scheduling, and whether it grows with the queue and with the cache.

1. A step's scheduling time with 100 and with 10,000 requests waiting, for every policy. Eight requests
   run, about one ends in each step and one is admitted; a new request replaces it, so the queue
   keeps its length. Two engines take turns, and the ratio is that of neighbouring runs.
2. Radix match and insert, per token, with 1,000 and with 100,000 tokens in the tree.

Time is this thread's CPU time: all of it is Python on one thread, and other load on the machine
would easily hide a fraction of a millisecond.
"""

import random
import statistics
import time

from tqdm import tqdm

from benchmarks.pairs import Ratio
from benchmarks.report import panels, save
from engine import CostRunner, Engine, EngineConfig, EventLog, SamplingParams
from engine.core.cache.radix_tree import RadixTree
from engine.core.log.vocabulary import Event, StepFinished
from engine.core.scheduling.policies import POLICIES

WAITING = (100, 10_000)
STEPS = 50  # in a run
PAIRS = 30

CACHED = (1_000, 100_000)
BLOCK = 16
PROMPT = 256
ROUNDS = 40


class ThreadClock:
    """CPU time of this thread."""

    name = "thread"

    def now(self) -> int:
        """Microseconds."""
        return time.thread_time_ns() // 1000


class Stopwatch(EventLog):
    """A log that keeps only the microseconds spent in scheduling."""

    def __init__(self) -> None:
        super().__init__()
        self.us = 0

    def append(self, event: Event) -> None:
        """Add the step's time."""
        if isinstance(event, StepFinished):
            self.us += event.t["scheduled"] - event.t["start"]


class Queue:
    """An engine without a model and a queue that keeps its length."""

    def __init__(self, policy: str, length: int) -> None:
        self._length = length
        self._rng = random.Random(1)
        self._stems = [self._letters(32) for _ in range(20)]
        self._log = Stopwatch()
        config = EngineConfig(policy=policy, token_budget=128, max_batch_size=8, max_kv_tokens=8192)
        self._engine = Engine(CostRunner(0, 0), config, log=self._log, clock=ThreadClock())
        self.us_per_step(2 * STEPS)  # warm: the cache is full and requests end in every step

    def us_per_step(self, steps: int = STEPS) -> float:
        """Serve `steps` steps. Returns microseconds of scheduling per step."""
        self._log.us = 0
        for _ in range(steps):
            while len(self._engine.scheduler.waiting) < self._length:
                self._submit()
            self._engine.step()
        return self._log.us / steps

    def _submit(self) -> None:
        rng = self._rng
        client = rng.randrange(len(self._stems))
        self._engine.submit(
            self._stems[client] + self._letters(rng.randint(4, 40)),
            SamplingParams(max_tokens=rng.randint(4, 12)),
            label=f"client {client}",
            priority=rng.randrange(3),
        )

    def _letters(self, count: int) -> list[int]:
        return [97 + self._rng.randrange(26) for _ in range(count)]


class Tree:
    """A new radix tree for each measurement, with prompts that share prefixes in pairs."""

    def __init__(self, cached_tokens: int) -> None:
        self._rng = random.Random(2)
        self._pairs = max(1, cached_tokens // (PROMPT + PROMPT // 2))

    def measure(self) -> tuple[float, float]:
        """Nanoseconds per token to match cached prompts, and to insert new ones."""
        tree = RadixTree(BLOCK)
        prompts: list[list[int]] = []
        for _ in range(self._pairs):
            stem = self._ids(PROMPT // 2)
            for _ in range(2):
                prompts.append(stem + self._ids(PROMPT // 2))
                self._insert(tree, prompts[-1])
        # New int objects, as from a tokenizer: none may match by being the same object.
        asked = [[int(str(token)) for token in self._rng.choice(prompts)] for _ in range(8)]
        start = time.thread_time_ns()
        for prompt in asked:
            tree.match(prompt, PROMPT // BLOCK)
        matching = time.thread_time_ns() - start
        # New ones leave an old one in the middle of an edge, so that each has one to cut.
        new = [self._rng.choice(prompts)[: PROMPT - 64] + self._ids(64) for _ in range(4)]
        new += [self._ids(PROMPT) for _ in range(4)]
        start = time.thread_time_ns()
        for prompt in new:
            self._insert(tree, prompt)
        inserting = time.thread_time_ns() - start
        return matching / (len(asked) * PROMPT), inserting / (len(new) * PROMPT)

    def _insert(self, tree: RadixTree, prompt: list[int]) -> None:
        match = tree.match(prompt, PROMPT // BLOCK)
        node = match.node
        if match.depth < len(node.blocks):
            node = tree.split(node, match.depth)
        at = len(match.blocks)
        leaf = tree.insert(node, prompt[at * BLOCK :], list(range(at, PROMPT // BLOCK)))
        tree.move_lock(tree.root, leaf)

    def _ids(self, count: int) -> list[int]:
        return [self._rng.randrange(1536) for _ in range(count)]


def queues() -> dict[str, object]:
    """Part 1: for each policy, both times and their ratio."""
    figures: dict[str, object] = {}
    for policy in POLICIES:
        few, many = (Queue(policy, length) for length in WAITING)
        times: list[tuple[float, float]] = []
        for number in tqdm(range(PAIRS), desc=policy, leave=False):
            if number % 2:
                one = few.us_per_step()
                times.append((one, many.us_per_step()))
            else:
                two = many.us_per_step()
                times.append((few.us_per_step(), two))
        ratio = Ratio([two / one for one, two in times])
        low, high = (statistics.median(column) for column in zip(*times, strict=True))
        figures[policy] = ratio.figures() | {"us_per_step": [low, high]}
        print(
            f"{policy:>9}: {low:.0f} us a step with {WAITING[0]} waiting, {high:.0f} us with "
            f"{WAITING[1]:,}; ratio {ratio}"
        )
    return figures


def trees() -> dict[str, object]:
    """Part 2: nanoseconds per token at both sizes, and the ratios."""
    small, large = (Tree(size) for size in CACHED)
    pairs = [
        (small.measure(), large.measure()) for _ in tqdm(range(ROUNDS), desc="radix", leave=False)
    ]
    figures: dict[str, object] = {}
    for index, name in enumerate(("match", "insert")):
        ratio = Ratio([two[index] / one[index] for one, two in pairs])
        low = statistics.median(one[index] for one, _ in pairs)
        high = statistics.median(two[index] for _, two in pairs)
        figures[name] = ratio.figures() | {"ns_per_token": [low, high]}
        print(
            f"radix {name}: {low:.0f} ns a token with {CACHED[0]:,} cached tokens, {high:.0f} ns with "
            f"{CACHED[1]:,}; ratio {ratio}"
        )
    return figures


def main() -> None:
    """Print both parts."""
    by_policy, by_verb = queues(), trees()
    plot, (axes,) = panels(["Scheduling a step"], "", "microseconds")
    for shift, length in enumerate(WAITING):
        heights = [figures["us_per_step"][shift] for figures in by_policy.values()]  # type: ignore[index]
        places = [place + 0.4 * shift - 0.2 for place in range(len(by_policy))]
        axes.bar(places, heights, width=0.36, label=f"{length:,} waiting")
    axes.set_xticks(range(len(by_policy)), list(by_policy))
    axes.legend()
    save("scheduling", {"policies": by_policy, "radix": by_verb}, plot)


if __name__ == "__main__":
    main()
