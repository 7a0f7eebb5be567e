"""Routers, simulated: hits and time to first token per policy, the cost of a decision, 100 replicas.

1. Policies: six prefixes of 1,000 tokens on two replicas whose memory holds four, at a moderate rate
   and in a rush. A step takes 10 ms + 0.2 ms per token, and news of a replica 50 ms.
2. The cost of a decision with 2 and with 100 replicas: CPU time of `choose` and `on_routed`, and of
   `on_event` per request.
3. 100 replicas: UNDERGLASS_ROUTING_REQUESTS requests (a million takes about half an hour of one core)
   with 1,000 prefixes, served event by event by 100 engines. How long it took, what the router cost,
   how large it is, and how often the predicted hit was the delivered one.

All but the times of Python are virtual, so they are the same on every machine.
"""

import copy
import os
import random
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from benchmarks.memory import resident_mib
from benchmarks.report import bars, panels, save
from engine import Cost, EngineConfig, SamplingParams, Workload
from engine.cluster import Decision, Router, router_named
from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog
from engine.cluster.simulate_cluster import simulate_cluster
from engine.core.log import vocabulary as v
from engine.simulation.workload import Arrival
from visualizer import read

REQUESTS = int(os.environ.get("UNDERGLASS_ROUTING_REQUESTS", "10000"))
MACHINE = Cost(10, 0.2)
PREFIXES, PREFIX, OWN, OUTPUT = 6, 1000, 30, 16
SEEDS = (1, 2, 3)
SCENES = {"8 requests/s, 60 per prefix": (8, 60), "a rush: 30/s, 10 per prefix": (30, 10)}
ROUTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("random", {}),
    "power_of_two": ("power_of_two", {}),
    "prefix_tree": ("prefix_tree", {}),
    "events alone": ("prefix_events", {"guesses": False}),
    "prefix_events": ("prefix_events", {}),
}


def letters(rng: random.Random, count: int) -> list[int]:
    """Return random tokens."""
    return [97 + rng.randrange(26) for _ in range(count)]


def prefixed(rate: float, each: int, seed: int) -> Workload:
    """Return requests with six long prefixes, in random order."""
    rng = random.Random(seed)
    prefixes = [letters(rng, PREFIX) for _ in range(PREFIXES)]
    prompts = [prefix + letters(rng, OWN) for prefix in prefixes for _ in range(each)]
    rng.shuffle(prompts)
    at, inputs = 0.0, []
    for prompt in prompts:
        at += rng.expovariate(rate) * 1000
        inputs.append(Arrival(at_ms=at, prompt=prompt, params=SamplingParams(max_tokens=OUTPUT)))
    return Workload(list(inputs))


def compare_policies() -> dict[str, dict[str, dict[str, float]]]:
    """Return for each scene and router: hit rate, mean TTFT in ms, share of exact predictions."""
    config = EngineConfig(max_kv_tokens=4096, token_budget=512)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for scene, (rate, each) in SCENES.items():
        print(f"{scene:30} {'hits':>6} {'TTFT':>9} {'exact':>6}")
        found[scene] = {}
        for shown, (name, options) in ROUTERS.items():
            rows = [
                row
                for seed in SEEDS
                for row in read(
                    simulate_cluster(
                        prefixed(rate, each, seed),
                        config,
                        cost=MACHINE,
                        router=router_named(name, **options),
                    )
                ).decision_rows
            ]
            found[scene][shown] = one = {
                "hits": sum(row.cached_tokens or 0 for row in rows)
                / sum(row.prompt_tokens for row in rows),
                "ttft_ms": sum(row.ttft_ms or 0 for row in rows) / len(rows),
                "exact": sum(row.predicted_tokens == row.cached_tokens for row in rows) / len(rows),
            }
            print(f"  {shown:28} {one['hits']:6.2f} {one['ttft_ms']:6.0f} ms {one['exact']:6.2f}")
    return found


class Timed(Router):
    """A router whose CPU time is measured, in nanoseconds."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.decisions = 0
        self.deciding_ns = 0
        self.folding_ns = 0

    def choose(self, request: int, tokens: Any, replicas: Any, now_us: int) -> Decision:
        """See `Router`."""
        began = time.thread_time_ns()
        decision = self.router.choose(request, tokens, replicas, now_us)
        self.deciding_ns += time.thread_time_ns() - began
        self.decisions += 1
        return decision

    def on_routed(self, request: int, tokens: Any, replica: str, now_us: int) -> None:
        """See `Router`."""
        began = time.thread_time_ns()
        self.router.on_routed(request, tokens, replica, now_us)
        self.deciding_ns += time.thread_time_ns() - began

    def on_event(self, replica: str, event: v.Event, now_us: int) -> None:
        """See `Router`."""
        began = time.thread_time_ns()
        self.router.on_event(replica, event, now_us)
        self.folding_ns += time.thread_time_ns() - began

    def on_first_token(self, request: int, now_us: int) -> None:
        """See `Router`."""
        self.router.on_first_token(request, now_us)

    def on_ended(self, request: int, now_us: int) -> None:
        """See `Router`."""
        self.router.on_ended(request, now_us)

    def on_joined(self, replica: str, block_size: int) -> None:
        """See `Router`."""
        self.router.on_joined(replica, block_size)

    def on_left(self, replica: str) -> None:
        """See `Router`."""
        self.router.on_left(replica)

    @property
    def decision_us(self) -> float:
        """Mean time of a decision."""
        return self.deciding_ns / self.decisions / 1000


def decision_costs() -> dict[str, float]:
    """Return the microseconds of a decision for a prompt of 1,030 tokens, by policy and replicas."""
    found: dict[str, float] = {}
    config = EngineConfig(max_kv_tokens=4096, token_budget=512)
    for shown, (name, options) in ROUTERS.items():
        for replicas in (2, 100):
            timed = Timed(router_named(name, **options))
            simulate_cluster(
                prefixed(8, 20, 1),
                config,
                cost=MACHINE,
                router=timed,
                replicas=replicas,
                log=Tally(),
            )
            found[f"{shown}, {replicas} replicas"] = timed.decision_us
            print(f"a decision of {shown} with {replicas} replicas: {timed.decision_us:.0f} us")
    return found


@dataclass
class Traffic:
    """Short requests with shared prefixes, made as they are needed: a million fit into no memory."""

    count: int
    per_second: float
    prefixes: int = 1000
    prefix: int = 96
    seed: int = 0

    def __iter__(self) -> Iterator[Arrival]:
        rng = random.Random(self.seed)
        heads = [letters(rng, self.prefix) for _ in range(self.prefixes)]
        popularity = [1 / (rank + 10) for rank in range(self.prefixes)]
        params = [SamplingParams(max_tokens=count) for count in range(1, 5)]
        at = 0.0
        drawn: list[int] = []
        for _ in range(self.count):
            if not drawn:
                drawn = rng.choices(range(self.prefixes), popularity, k=1000)
            at += rng.expovariate(self.per_second) * 1000
            prompt = heads[drawn.pop()] + letters(rng, rng.randint(4, 24))
            yield Arrival(at_ms=at, prompt=prompt, params=rng.choice(params))


class Tally(ClusterLog):
    """A cluster log that keeps sums instead of events."""

    def __init__(self, bar: Any = None) -> None:
        super().__init__()
        self.events = self.requests = self.finished = self.admitted = self.exact = 0
        self.prompt = self.cached = 0
        self.last_us = self.ttft_us = 0
        self._bar = bar
        self._predicted: dict[int, c.Routed] = {}
        self._its: dict[tuple[str, int], c.Routed] = {}
        self._waiting: dict[tuple[str, int], int] = {}  # for the first token: when it was routed

    def append(self, event: c.AnyClusterEvent) -> None:
        """Add to the sums."""
        self.events += 1
        match event:
            case c.Routed():
                self.requests += 1
                self.last_us = event.t["at"]
                self._predicted[event.request] = event
                if self._bar is not None:
                    self._bar.update()
            case c.Placed():
                self._its[event.replica, event.its_request] = self._predicted.pop(event.request)
            case c.Of(event=v.Admitted()):
                if not event.event.resumed:
                    self._add_admitted(event.replica, event.event)
            case c.Of(event=v.StepFinished()):
                for row in event.event.tokens:
                    at = self._waiting.pop((event.replica, row.request), None)
                    self.ttft_us += 0 if at is None else event.event.t["end"] - at
            case c.Of(event=v.RequestFinished()):
                self.finished += 1

    def _add_admitted(self, replica: str, event: v.Admitted) -> None:
        routed = self._its.pop((replica, event.request))
        self._waiting[replica, event.request] = routed.t["at"]
        cached = len(event.blocks) * 16
        self.admitted += 1
        self.prompt += routed.prompt
        self.cached += cached
        self.exact += cached == routed.hits.get(replica, 0)


def size_mib(router: Router) -> float:
    """Return the memory of a router: that of a copy of it."""
    tracemalloc.start()
    copied = copy.deepcopy(router)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del copied
    return size / 2**20


def many_replicas(name: str, requests: int, replicas: int = 100) -> dict[str, float]:
    """Serve many short requests, and return what it took."""
    config = EngineConfig(token_budget=2048, max_batch_size=64, max_kv_tokens=4096)
    machine = Cost(50, 0.2)
    workload = Workload(Traffic(requests, per_second=50 * replicas))  # type: ignore[arg-type]
    timed, began = Timed(router_named(name)), time.process_time()
    with tqdm(total=requests, desc=f"{name}, {replicas} replicas", leave=False) as bar:
        log = Tally(bar)
        simulate_cluster(
            workload, config, cost=machine, replicas=replicas, router=timed, log=log, lag_ms=50
        )
    seconds = time.process_time() - began
    assert log.finished == requests
    found = {
        "requests": requests,
        "replicas": replicas,
        "events": log.events,
        "simulated_s": log.last_us / 1e6,
        "cpu_s": seconds,
        "decision_us": timed.decision_us,
        "folding_us_per_request": timed.folding_ns / requests / 1000,
        "router_mib": size_mib(timed.router),
        "process_mib": resident_mib(),
        "hits": log.cached / log.prompt,
        "ttft_ms": log.ttft_us / log.admitted / 1000,
        "exact": log.exact / log.admitted,
    }
    print(
        f"{name}: {requests:,} requests on {replicas} replicas, {log.events:,} events, in "
        f"{seconds:.0f} s of CPU time; a decision {timed.decision_us:.0f} us, folding "
        f"{found['folding_us_per_request']:.0f} us per request, the router {found['router_mib']:.1f} "
        f"MiB; hits {found['hits']:.3f}, mean TTFT {found['ttft_ms']:.0f} ms, predicted = delivered "
        f"{found['exact']:.1%}"
    )
    return found


def main() -> None:
    """Print and save all three."""
    scenes = compare_policies()
    figures: dict[str, object] = {"policies": scenes, "decision_us": decision_costs()}
    figures["many"] = {
        name: many_replicas(name, REQUESTS)
        for name in ("power_of_two", "prefix_tree", "prefix_events")
    }
    plot, row = panels([f"Mean TTFT in ms, {scene}" for scene in scenes], "", width=10)
    for axes, found in zip(row, scenes.values(), strict=True):
        bars(axes, {name: one["ttft_ms"] for name, one in reversed(found.items())})
    save("routing", figures, plot)


if __name__ == "__main__":
    main()
