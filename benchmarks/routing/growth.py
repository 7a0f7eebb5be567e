"""The cost of a decision, and how the simulator grows: 100 replicas under load, event by event.

The requests have 1,000 prefixes. The growth is measured by how long it took, what the router cost, and
how often the predicted hit was the delivered one.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from engine import Cost, EngineConfig, SamplingParams, Workload
from engine.cluster import Router, router_named
from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog
from engine.cluster.simulate_cluster import simulate_cluster
from engine.core.log import vocabulary as v
from engine.simulation.workload import Arrival

NAMES = ("power_of_two", "prefix_tree", "prefix_events")


def letters(rng: random.Random, count: int) -> list[int]:
    """Return random tokens."""
    random = rng.random
    return [97 + int(random() * 26) for _ in range(count)]


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
        self._bar = bar
        self._predicted: dict[int, c.Routed] = {}
        self._its: dict[tuple[str, int], c.Routed] = {}

    def append(self, event: c.AnyClusterEvent) -> None:
        """Add to the sums."""
        self.events += 1
        if isinstance(event, c.Of):
            its = event.event
            if isinstance(its, v.Admitted) and not its.resumed:
                self._add_admitted(event.replica, its)
            self.finished += isinstance(its, v.RequestFinished)
        elif isinstance(event, c.Routed):
            self.requests += 1
            self._predicted[event.request] = event
            if self._bar is not None and self.requests % 100 == 0:
                self._bar.update(100)
        elif isinstance(event, c.Placed):
            self._its[event.replica, event.its_request] = self._predicted.pop(event.request)

    def _add_admitted(self, replica: str, event: v.Admitted) -> None:
        routed = self._its.pop((replica, event.request))
        cached = len(event.blocks) * 16
        self.admitted += 1
        self.prompt += routed.prompt
        self.cached += cached
        self.exact += cached == routed.hits.get(replica, 0)


class Stopwatch:
    """Measure the CPU time of a router's methods, in nanoseconds: of each `every`-th call."""

    def __init__(self, router: Router, every: int = 1) -> None:
        self.ns = {"choose": 0, "on_routed": 0, "on_event": 0}
        self.calls = dict.fromkeys(self.ns, 0)
        for name in self.ns:
            self._wrap(router, name, every)

    def _wrap(self, router: Router, name: str, every: int) -> None:
        method = getattr(router, name)

        calls = 0

        def timed(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls % every:
                return method(*arguments)
            begin = time.thread_time_ns()
            result = method(*arguments)
            self.ns[name] += every * (time.thread_time_ns() - begin)
            self.calls[name] = calls
            return result

        setattr(router, name, timed)

    @property
    def decision_us(self) -> float:
        """Mean time of a decision."""
        return (self.ns["choose"] + self.ns["on_routed"]) / self.calls["choose"] / 1000


def decision_costs(decisions: int) -> dict[str, float]:
    """Return the microseconds of a decision for long prompts, by policy and number of replicas."""
    found: dict[str, float] = {}
    config = EngineConfig(max_kv_tokens=4096, token_budget=512)
    for name in NAMES:
        for replicas in (4, 16, 64):
            router = router_named(name)
            watch = Stopwatch(router)
            workload = Workload(Traffic(decisions, 8, prefixes=6, prefix=1000, seed=1))  # type: ignore[arg-type]
            simulate_cluster(
                workload,
                config,
                cost=Cost(10, 0.2),
                router=router,
                replicas=replicas,
                log=Tally(),
            )
            found[f"{name}, {replicas} replicas"] = watch.decision_us
            print(f"a decision of {name} with {replicas} replicas: {watch.decision_us:.0f} us")
    return found


def many_replicas(name: str, requests: int, replicas: int = 100) -> dict[str, float]:
    """Serve many short requests, and return what it took."""
    config = EngineConfig(token_budget=2048, max_batch_size=64, max_kv_tokens=4096)
    machine = Cost(50, 0.2)
    workload = Workload(Traffic(requests, per_second=50 * replicas))  # type: ignore[arg-type]
    router = router_named(name)
    watch, began = Stopwatch(router, every=16), time.process_time()
    with tqdm(total=requests, desc=f"{name}, {replicas} replicas", leave=False) as bar:
        log = Tally(bar)
        simulate_cluster(
            workload, config, cost=machine, replicas=replicas, router=router, log=log, lag_ms=50
        )
    seconds = time.process_time() - began
    assert log.finished == requests
    found = {
        "requests": requests,
        "replicas": replicas,
        "events": log.events,
        "cpu_s": seconds,
        "decision_us": watch.decision_us,
        "folding_us_per_request": watch.ns["on_event"] / requests / 1000,
        "hits": log.cached / log.prompt,
        "exact": log.exact / log.admitted,
    }
    print(
        f"{name}: {requests:,} requests on {replicas} replicas, {log.events:,} events, in "
        f"{seconds:.0f} s of CPU time; a decision {watch.decision_us:.0f} us, folding "
        f"{found['folding_us_per_request']:.0f} us per request; hits {found['hits']:.3f}, predicted = "
        f"delivered {found['exact']:.1%}"
    )
    return found
