"""Routers: every policy on nine workloads, simulated and served; the price of a decision; growth.

1. Simulated: every policy on every workload, with several numbers of replicas and several seeds.
2. Served: the same workloads on two real replicas of this machine. Compare the policies, not the times.
3. The price of a decision for prompts of about 1,000 tokens: CPU time of `choose` and `on_routed`.
4. Growth: 100 simulated replicas, event by event; how long it takes, and what the router costs.

What is simulated is the same on every machine, except for the CPU times.
"""

from collections.abc import Callable
from statistics import mean
from typing import Annotated

import typer

from benchmarks.harness import save
from benchmarks.routing.growth import decision_costs, many_replicas
from benchmarks.routing.played import Result, served, simulated, two_servers
from benchmarks.routing.traces import WORKLOADS
from engine.cluster import ROUTERS

DEFAULT = "prefix_events"
PLACES: dict[str, Callable[[Result], float]] = {  # smaller is better
    "hits": lambda one: -one.hits,
    "TTFT mean": lambda one: one.ttft_ms,
    "TTFT p99": lambda one: one.ttft_p99_ms,
}


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",") if one]


def _compared(
    title: str, names: list[str], play: Callable[[str], dict[str, list[Result]]]
) -> dict[str, list[dict[str, float]]]:
    """Print each policy's means on each workload, and the default's place among all policies.

    play  returns the results of a workload, by policy
    """
    figures = dict[str, list[dict[str, float]]]()
    for name in names:
        print(f"{title}, {name}")
        results = dict[str, Result]()
        for router, played in play(name).items():
            rows = [result.figures() for result in played]
            figures[f"{name}, {router}"] = rows
            results[router] = Result(**{key: mean(row[key] for row in rows) for key in rows[0]})
            print(f"  {router:14} {results[router]}")
        places = {
            what: 1 + sum(key(one) < key(results[DEFAULT]) for one in results.values())
            for what, key in PLACES.items()
        }
        seats = ", ".join(f"{place} in {what}" for what, place in places.items())
        print(f"  {DEFAULT} is {seats}", flush=True)
    return figures


def main(
    replicas: Annotated[str, typer.Option(help="numbers of simulated replicas")] = "2,8",
    seeds: Annotated[str, typer.Option(help="of the workloads")] = "1,2",
    workloads: Annotated[str, typer.Option(help="some of them; all if empty")] = "",
    seconds: Annotated[float, typer.Option(help="of each served workload; 0: none")] = 8,
    requests: Annotated[
        int, typer.Option(help="on 100 replicas; 0: none, and no price of a decision")
    ] = 10_000,
) -> None:
    """Print and save all four."""
    names = workloads.split(",") if workloads else list(WORKLOADS)
    draws, figures = _numbers(seeds), dict[str, object]()
    for count in _numbers(replicas):

        def play(name: str, count: int = count) -> dict[str, list[Result]]:
            return {
                router: [simulated(router, name, count, seed) for seed in draws]
                for router in ROUTERS
            }

        title = f"{count} simulated replicas"
        figures[f"simulated on {count}"] = _compared(title, names, play)
    if seconds:
        with two_servers() as servers:
            figures["served on 2"] = _compared(
                "2 real replicas", names, lambda name: served(name, draws[0], servers, seconds)
            )
    if requests:
        figures["decision_us"] = decision_costs(120)
        figures["many"] = {
            name: many_replicas(name, requests) for name in ("power_of_two", "prefix_tree", DEFAULT)
        }
    save("routing", figures)
