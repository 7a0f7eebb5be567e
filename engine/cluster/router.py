"""The interface of a routing policy.

A router reads no clock and sends no messages; the gateway tells it what happened and asks it for
decisions. Times are microseconds since the gateway started, and they never decrease.

Source: Ray Serve's `RequestRouter` has the same hooks (`ray/serve/request_router.py`); SGLang's gateway
calls its policies `LoadBalancingPolicy` (`sgl-router/src/policies/mod.rs`).
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from engine.cluster.events import RoutingReason
from engine.core.log.vocabulary import Event


class NoReplicaError(RuntimeError):
    """No live replica can take a request."""


@dataclass(slots=True)
class Replica:
    """What the gateway knows of a replica. `in_flight` counts its requests that have not ended."""

    id: str
    in_flight: int = 0


@dataclass(slots=True)
class Decision:
    """Where a request goes, and why.

    hits    how many prompt tokens each replica is predicted to have cached; a missing replica has 0
    scores  what the policy compared, by replica; lower is better; empty if it compared nothing
    terms   the summands of a replica's score, by name; empty if the score is one number
    ties    what it compared next among those with the best score: `Routed` describes it
    """

    replica: str
    reason: RoutingReason
    hits: dict[str, int] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    terms: dict[str, dict[str, float]] = field(default_factory=dict)
    ties: dict[str, dict[str, float]] = field(default_factory=dict)


def best(
    scores: dict[str, float], compare: Callable[[str], dict[str, float]]
) -> tuple[str, dict[str, dict[str, float]]]:
    """Return the replica with the lowest score, and the ties if several replicas have it.

    compare  what to compare among these, by name; larger is better. If all is equal, the first one of
             `scores` wins
    """
    lowest = min(scores.values())
    ties = {replica: compare(replica) for replica, score in scores.items() if score == lowest}
    replica = max(ties, key=lambda one: tuple(ties[one].values()))
    return replica, ties if len(ties) > 1 else {}


class Router:
    """A routing policy. Override `choose` and those of the other methods that the policy needs.

    A policy with settings is a dataclass: its fields are the options of `router_named`.
    """

    name: ClassVar[str] = ""  # the name in the cluster log; "" means the class's name

    def choose(
        self, request: int, tokens: Sequence[int], replicas: Sequence[Replica], now_us: int
    ) -> Decision:
        """Return where a request goes. `replicas` are the live ones to choose from, at least one.

        tokens  the prompt's token ids; empty if the gateway has none
        """
        raise NotImplementedError

    def on_routed(self, request: int, tokens: Sequence[int], replica: str, now_us: int) -> None:
        """Note that a request goes to `replica`.

        `choose` returned this replica, unless the request was pinned to it.
        """

    def on_first_token(self, request: int, now_us: int) -> None:
        """Note that the first token of a request passed through the gateway."""

    def on_ended(self, request: int, now_us: int) -> None:
        """Note that a request finished or was aborted, or that its replica died."""

    def on_event(self, replica: str, event: Event, now_us: int) -> None:
        """Note an event of a replica's log. The first one is run_started or a keyframe."""

    def on_joined(self, replica: str, block_size: int) -> None:
        """Note that a replica is ready. `block_size` is its number of token slots per KV block."""

    def on_left(self, replica: str) -> None:
        """Note that a replica is gone, with everything that it had cached."""


def option_names(kind: type[Router]) -> list[str]:
    """Return the names of a policy's options: the fields that its constructor takes."""
    if not dataclasses.is_dataclass(kind):
        return []
    return [option.name for option in dataclasses.fields(kind) if option.init]


def described(router: Router) -> tuple[str, dict[str, Any]]:
    """Return a router's name and options, for the log."""
    name = router.name or type(router).__name__
    return name, {option: getattr(router, option) for option in option_names(type(router))}
