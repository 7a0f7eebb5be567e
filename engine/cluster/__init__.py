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

from engine.cluster.named import ROUTERS, router_named
from engine.cluster.router import Decision, NoReplicaError, Replica, Router

__all__ = ["ROUTERS", "Decision", "NoReplicaError", "Replica", "Router", "router_named"]
