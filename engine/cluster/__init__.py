"""Routing: which replica gets a request.

A policy is a `Router` in pure Python, without a server and without Ray. The same object decides in the
gateway (`server/gateway/`), in the simulator (`engine/cluster/simulate_cluster.py`) and in a lesson.

- `router`         the interface: `Router`, `Replica`, `Decision`
- `load`           policies that do not read the prompt: random, round_robin, power_of_two
- `block_index`    which replicas have a block: one walk along a prompt finds its hits everywhere
- `prefix_tree`    a policy with an approximate tree of the prompts that were sent to each replica
- `prefix_events`  a policy with each replica's real tree (`replica_tree`), folded from its log, and
                   with guesses about blocks that it will have soon (`guesses`)
- `checked`        turns the mistakes of a learner's policy into errors that name the method
- `dispatcher`     the bookkeeping around a router, and the log of its decisions
"""

from typing import Any

from engine.cluster.load import PowerOfTwo, RandomChoice, RoundRobin
from engine.cluster.prefix_events import PrefixEvents
from engine.cluster.prefix_tree import PrefixTree
from engine.cluster.router import Decision, NoReplicaError, Replica, Router, option_names

__all__ = ["ROUTERS", "Decision", "NoReplicaError", "Replica", "Router", "router_named"]

ROUTERS: dict[str, type[Router]] = {
    kind.name: kind for kind in (RandomChoice, RoundRobin, PowerOfTwo, PrefixTree, PrefixEvents)
}


def router_named(name: str, **options: Any) -> Router:
    """Return a new router. Raises ValueError for an unknown name or option."""
    if name not in ROUTERS:
        raise ValueError(f"router must be one of {', '.join(ROUTERS)}, got {name!r}")
    known = option_names(ROUTERS[name])
    for option in options:
        if option not in known:
            raise ValueError(
                f"{option} is not an option of router {name}, whose options are: "
                f"{', '.join(known) or 'none'}"
            )
    return ROUTERS[name](**options)
