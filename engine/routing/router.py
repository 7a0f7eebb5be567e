"""The interface of a routing policy.

A router reads no clock and sends nothing: it is told what happened and asked for a decision. Times are
microseconds since the gateway started, and never go back.

Source: Ray Serve's `RequestRouter` has the same hooks (`ray/serve/request_router.py`); SGLang's gateway
calls its policies `LoadBalancingPolicy` (`sgl-router/src/policies/mod.rs`).
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from engine.events.cluster import RoutingReason
from engine.events.vocabulary import Event


class NoReplicaError(RuntimeError):
    """No replica is there to route a request to."""


@dataclass(slots=True)
class Replica:
    """What the gateway knows of a replica. `in_flight` counts requests routed to it and not ended."""

    id: str
    in_flight: int = 0


@dataclass(slots=True)
class Decision:
    """Where a request goes, and why.

    hits    by replica: the prompt tokens that it is predicted to have cached; 0 if it is missing
    scores  by replica: what the policy compared, lower is better; empty if it compared nothing
    """

    replica: str
    reason: RoutingReason
    hits: dict[str, int] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)


class Router:
    """A routing policy. Override `choose`, and of the other methods what the policy has to know.

    A policy with settings is a dataclass: its fields are the options of `router_named`.
    """

    name: ClassVar[str] = ""  # in the cluster log; "" stands for the class's name

    def choose(
        self, request: int, tokens: Sequence[int], replicas: Sequence[Replica], now_us: int
    ) -> Decision:
        """Return where a request goes. `replicas` are those that are alive, at least one.

        tokens  the prompt's token ids; empty if the gateway has none
        """
        raise NotImplementedError

    def on_routed(self, request: int, tokens: Sequence[int], replica: str, now_us: int) -> None:
        """A request goes to `replica`: the one chosen, unless the request was pinned."""

    def on_first_token(self, request: int, now_us: int) -> None:
        """The first token of a request passed through the gateway."""

    def on_ended(self, request: int, now_us: int) -> None:
        """A request left its replica: it finished, was aborted, or its replica died."""

    def on_event(self, replica: str, event: Event, now_us: int) -> None:
        """An event of a replica's log reached the gateway. The first is run_started or a keyframe."""

    def on_joined(self, replica: str, block_size: int) -> None:
        """A replica is ready. `block_size` is its token slots per KV block."""

    def on_left(self, replica: str) -> None:
        """A replica is gone, with everything that it had cached."""


def option_names(kind: type[Router]) -> list[str]:
    """Return the names of a policy's options: the fields that its constructor takes."""
    if not dataclasses.is_dataclass(kind):
        return []
    return [one.name for one in dataclasses.fields(kind) if one.init]


def described(router: Router) -> tuple[str, dict[str, Any]]:
    """Return a router's name and options, for the log."""
    name = router.name or type(router).__name__
    return name, {option: getattr(router, option) for option in option_names(type(router))}
