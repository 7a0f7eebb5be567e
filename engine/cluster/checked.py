"""Turn the mistakes of a learner's router into errors that name the class and the method.

As with the parts of an engine (`engine/core/parts.py`), the built-in routers are called directly.
"""

from collections.abc import Sequence
from typing import get_args

from engine.cluster.events import RoutingReason
from engine.cluster.named import ROUTERS, router_named
from engine.cluster.router import Decision, Replica, Router
from engine.core.log.vocabulary import Event
from engine.core.part_errors import PartError, ask, named

_REASONS = get_args(RoutingReason)


class RouterError(PartError):
    """A router raised an exception, or its decision was invalid."""


def checked_router(router: Router | str) -> Router:
    """Return a built-in router, given itself or its name; wrap any other router.

    Raises ValueError for an object that is not a router.
    """
    if isinstance(router, str):
        return router_named(router)
    if isinstance(router, type) and issubclass(router, Router):
        raise ValueError(f"router must be an object, got the class: write {router.__name__}()")
    if not isinstance(router, Router):
        raise ValueError(f"router must be a name or a Router, got {router!r}")
    return router if type(router) in ROUTERS.values() else _CheckedRouter(router)


class _CheckedRouter(Router):
    """A learner's router. Raises RouterError for its mistakes."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def choose(
        self, request: int, tokens: Sequence[int], replicas: Sequence[Replica], now_us: int
    ) -> Decision:
        decision = ask(RouterError, self._router.choose, request, tokens, replicas, now_us)
        name = named(self._router, "choose")
        if not isinstance(decision, Decision):
            raise RouterError(f"{name} must return a Decision(replica, reason), got {decision!r}")
        alive = [replica.id for replica in replicas]
        if decision.replica not in alive:
            raise RouterError(
                f"{name} must choose one of the replicas {', '.join(alive)}, got {decision.replica!r}"
            )
        if decision.reason not in _REASONS:
            raise RouterError(
                f"{name} must give one of the reasons {', '.join(_REASONS)}, got {decision.reason!r}"
            )
        _check_numbers(f"{name}: hits", decision.hits, int)
        _check_numbers(f"{name}: scores", decision.scores, int | float)
        return decision

    def on_routed(self, request: int, tokens: Sequence[int], replica: str, now_us: int) -> None:
        ask(RouterError, self._router.on_routed, request, tokens, replica, now_us)

    def on_first_token(self, request: int, now_us: int) -> None:
        ask(RouterError, self._router.on_first_token, request, now_us)

    def on_ended(self, request: int, now_us: int) -> None:
        ask(RouterError, self._router.on_ended, request, now_us)

    def on_event(self, replica: str, event: Event, now_us: int) -> None:
        ask(RouterError, self._router.on_event, replica, event, now_us)

    def on_joined(self, replica: str, block_size: int) -> None:
        ask(RouterError, self._router.on_joined, replica, block_size)

    def on_left(self, replica: str) -> None:
        ask(RouterError, self._router.on_left, replica)


def _check_numbers(name: str, values: object, kind: object) -> None:
    if not isinstance(values, dict) or not all(
        isinstance(replica, str) and isinstance(value, kind)  # type: ignore[arg-type]
        for replica, value in values.items()
    ):
        raise RouterError(f"{name} must be a dict from replica ids to numbers, got {values!r}")
