"""The workloads on simulated replicas and on real ones: hits, first tokens, tokens computed.

A simulated replica costs 10 ms a step and 0.2 ms a token. The real ones are servers of this machine
with the bundled model, behind a real gateway; all policies meet the same two servers in turn, each with
tokens of its own, so none finds what another one left. Both have the same small memory.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from zlib import crc32

from benchmarks.load.gateway import serve_over
from benchmarks.routing.traces import workload
from engine import Cost, EngineConfig
from engine.cluster import ROUTERS
from engine.cluster.cluster_log import ClusterLog
from engine.cluster.simulate_cluster import simulate_cluster
from engine.simulation.quantile import quantile
from engine.simulation.workload import Arrival, Workload
from server.load.client import ask
from server.process import BackgroundServer, serve_in_background
from visualizer.reading.rows.decisions import decision_rows

SETTINGS: dict[str, Any] = {"max_kv_tokens": 4096, "token_budget": 512, "max_batch_size": 16}
MACHINE = Cost(10, 0.2)


@dataclass(frozen=True)
class Result:
    """What one policy did with one workload. `hits` is the cached share of the prompt tokens."""

    hits: float
    ttft_ms: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    computed: float

    @classmethod
    def of(cls, log: ClusterLog) -> "Result":
        """Read the result in a log. Raises ValueError if a request has no first token."""
        rows = decision_rows(log)
        ttft = [row.ttft_ms for row in rows if row.ttft_ms is not None]
        cached = sum(row.cached_tokens or 0 for row in rows)
        prompt = sum(row.prompt_tokens for row in rows)
        if len(ttft) < len(rows):
            raise ValueError(f"{len(rows) - len(ttft)} of {len(rows)} requests have no first token")
        mean = sum(ttft) / len(ttft)
        p50, p99 = quantile(ttft, 0.5), quantile(ttft, 0.99)
        return cls(cached / prompt, mean, p50, p99, prompt - cached)

    def __str__(self) -> str:
        return (
            f"hits {self.hits:.3f}  TTFT mean {self.ttft_ms:6.0f} p50 {self.ttft_p50_ms:6.0f} "
            f"p99 {self.ttft_p99_ms:6.0f} ms  computed {self.computed:9,.0f}"
        )

    def figures(self) -> dict[str, float]:
        """Return the numbers for `save`."""
        return asdict(self)


def simulated(router: str, name: str, replicas: int, seed: int) -> Result:
    """Play a workload in the simulator."""
    work = workload(name, replicas, seed)
    config = EngineConfig(**SETTINGS)
    return Result.of(simulate_cluster(work, config, cost=MACHINE, router=router, replicas=replicas))


@contextmanager
def two_servers() -> Iterator[list[BackgroundServer]]:
    """Two servers with the bundled model, one thread each."""
    with (
        serve_in_background(threads=1, **SETTINGS) as one,
        serve_in_background(threads=1, **SETTINGS) as two,
    ):
        yield [one, two]


def served(
    name: str, seed: int, servers: list[BackgroundServer], seconds: float
) -> dict[str, list[Result]]:
    """Send the first seconds of a workload to a gateway over real servers, by policy.

    The policies take turns, once forwards and once backwards, because a machine is never equally fast.
    """
    results: dict[str, list[Result]] = {router: [] for router in ROUTERS}
    for turn, routers in enumerate((list(ROUTERS), list(ROUTERS)[::-1])):
        for router in routers:
            with serve_over(servers, "--router", router) as gateway:
                sent = _send(gateway.url, workload(name, 2, seed), f"{router} {turn}", seconds)
                results[router].append(Result.of(asyncio.run(sent)))
    return results


async def _send(url: str, work: Workload, salt: str, seconds: float) -> ClusterLog:
    loop = asyncio.get_running_loop()
    began = loop.time()
    inputs = [one for one in work.inputs if isinstance(one, Arrival)]

    async def send(one: Arrival) -> None:
        await asyncio.sleep(began + one.at_ms / 1000 - loop.time())
        prompt = [100 + crc32(f"{salt} {token}".encode()) % 1500 for token in one.prompt]
        body = {"prompt": prompt, "max_tokens": one.params.max_tokens, "ignore_eos": True}
        reply = await ask(url, "/v1/completions", body)
        if not reply.complete:
            sys.exit(f"a request failed: {reply.body[-300:].decode()}")

    await asyncio.gather(*(send(one) for one in inputs if one.at_ms < 1000 * seconds))
    return ClusterLog.from_bytes((await ask(url, "/trace")).body)
