"""Policies that do not read the prompt: random, in turn, or the less loaded of two.

They need no state per replica and spread load well. When prompts share prefixes, these policies waste
memory, because each replica ends up caching every prefix.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from engine.cluster.events import RoutingReason
from engine.cluster.router import Decision, Replica, Router, best


@dataclass(eq=False)
class _Drawing(Router):
    """A policy that draws. `seed` fixes what it draws."""

    seed: int = 0
    _rng: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)


@dataclass(eq=False)
class RandomChoice(_Drawing):
    """Choose a random replica."""

    name: ClassVar[str] = "random"

    def choose(
        self, request: int, tokens: Sequence[int], replicas: Sequence[Replica], now_us: int
    ) -> Decision:
        """Return any replica, all with the same probability."""
        return Decision(self._rng.choice(replicas).id, "random")


@dataclass(eq=False)
class RoundRobin(Router):
    """Choose one replica after the other."""

    name: ClassVar[str] = "round_robin"

    _turn: int = field(init=False, default=0, repr=False)

    def choose(
        self, request: int, tokens: Sequence[int], replicas: Sequence[Replica], now_us: int
    ) -> Decision:
        """Return the next replica."""
        self._turn += 1
        return Decision(replicas[(self._turn - 1) % len(replicas)].id, "next_in_turn")


@dataclass(eq=False)
class PowerOfTwo(_Drawing):
    """Draw two replicas and choose the one with fewer requests in flight.

    Comparing two already avoids most of the imbalance of a random choice (Mitzenmacher, IEEE TPDS
    12(10), 2001), and two gateways that see the same loads do not send everything to the same replica.

    Source: Ray Serve's `PowerOfTwoChoicesRequestRouter`; SGLang's `power_of_two`.
    """

    name: ClassVar[str] = "power_of_two"

    def choose(
        self, request: int, tokens: Sequence[int], replicas: Sequence[Replica], now_us: int
    ) -> Decision:
        """Return the less loaded of two replicas; a tie goes to the one that was drawn first."""
        drawn = self._rng.sample(replicas, min(2, len(replicas)))
        scores = {one.id: float(one.in_flight) for one in drawn}
        replica, ties = best(scores, lambda id_: {"drawn_first": float(id_ == drawn[0].id)})
        reason: RoutingReason = "least_loaded" if len(replicas) <= 2 else "less_loaded_of_two"
        return Decision(replica, reason, scores=scores, ties=ties)
