"""Simulated clusters for pictures: shared prefixes, evictions, a replica that dies."""

import gzip
import random
from functools import cache
from pathlib import Path

from engine import ClusterLog, Cost, EngineConfig, SamplingParams, Workload, simulate_cluster
from engine.cluster.simulated_roles import Roles
from engine.cluster.transfer import TransferCosts
from engine.core.byte_tokenizer import ByteTokenizer
from engine.simulation.workload import Arrival

_NAMES = (
    "Ada Bo Cleo Dev Eva Finn Gus Hana Ivo Jun Kim Lea Max Noa Oto Pia Quin Rosa Sol Tao Uma Vera "
    "Wim Xena Yan Zoe Amir Bea"
).split()
_TRUNKS = (
    "You are a kind storyteller. Use short words and short sentences.",
    "The town clock stopped on the night of the great snow. The baker",
    "Dear grandmother, today we took the boat to the island. The sea",
    "In the old garden there are nine apple trees, a well and a wall",
)
COST = Cost(8, 0.2)


def speakers(count: int = 28, *, per_second: float = 22, seed: int = 3) -> Workload:
    """Requests on four shared prefixes of 64 tokens, each with a few tokens of its own."""
    rng, tokenizer, at_ms = random.Random(seed), ByteTokenizer(), 0.0
    inputs = []
    for number in range(count):
        at_ms += rng.expovariate(per_second) * 1000
        name = _NAMES[number] if number < len(_NAMES) else ""
        own = "".join(rng.choice("abcdefgh ijklmnop") for _ in range(rng.randint(4, 24)))
        prompt = f"{rng.choices(_TRUNKS, [5, 2, 2, 2])[0]} {name}: {own}"
        params = SamplingParams(max_tokens=rng.randint(5, 18))
        inputs.append(
            Arrival(at_ms=at_ms, prompt=tokenizer.encode(prompt), params=params, label=name)
        )
    return Workload(list(inputs))


def config(blocks: int = 24, seats: int = 4) -> EngineConfig:
    return EngineConfig(
        max_batch_size=seats, token_budget=64, block_size=8, max_kv_tokens=8 * blocks
    )


@cache
def three_replicas() -> ClusterLog:
    """28 requests on three replicas with little memory: some predicted prefixes are evicted."""
    return simulate_cluster(speakers(seed=2), config(), cost=COST, replicas=3, router="prefix_tree")


@cache
def one_dies() -> ClusterLog:
    """28 requests on three replicas, of which one dies: some requests are lost, some sent again."""
    return simulate_cluster(
        speakers(per_second=60), config(), cost=COST, replicas=3, fail={"1": 240.0}
    )


@cache
def crowd(replicas: int = 10) -> ClusterLog:
    """More replicas than a board draws."""
    return simulate_cluster(
        speakers(120, per_second=120), config(), cost=COST, replicas=replicas, router="power_of_two"
    )


@cache
def prefill_and_decode() -> ClusterLog:
    """10 requests, computed on one replica and decoded on another, where their blocks move."""
    roles = Roles(1, 1, TransferCosts(2.0, 0.13, 0.2))
    return simulate_cluster(speakers(10, per_second=15), config(blocks=60), cost=COST, roles=roles)


@cache
def faults() -> dict[str, ClusterLog]:
    """Logs of real faults, by name."""
    folder = Path(__file__).parents[1] / "fixtures" / "cluster_faults"
    return {
        path.name.partition(".")[0]: ClusterLog.from_bytes(gzip.decompress(path.read_bytes()))
        for path in sorted(folder.glob("*.gz"))
    }
