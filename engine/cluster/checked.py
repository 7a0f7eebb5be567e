"""Turn the mistakes of a learner's router into errors that name the class and the method.

As with the parts of an engine (`engine/core/parts.py`), the built-in routers are called directly.
"""

from collections.abc import Sequence
from math import isclose
from types import UnionType
from typing import cast, get_args

from engine.cluster import router_named
from engine.cluster.events import RoutingReason
from engine.cluster.router import Decision, Replica, Router
from engine.core.part_errors import CheckedPart, PartError, PartMethod, Role, is_own

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
    return router if is_own(router) else cast(Router, CheckedPart(router, _ROLE))


def _choose(
    method: PartMethod,
    request: int,
    tokens: Sequence[int],
    replicas: Sequence[Replica],
    now_us: int,
) -> Decision:
    decision = method.ask(request, tokens, replicas, now_us)
    if not isinstance(decision, Decision):
        raise method.wrong(f"must return a Decision(replica, reason), got {decision!r}")
    alive = [replica.id for replica in replicas]
    if decision.replica not in alive:
        raise method.wrong(
            f"must choose one of the replicas {', '.join(alive)}, got {decision.replica!r}"
        )
    if decision.reason not in _REASONS:
        raise method.wrong(
            f"must give one of the reasons {', '.join(_REASONS)}, got {decision.reason!r}"
        )
    _check_numbers(method, "hits", decision.hits, int)
    _check_numbers(method, "scores", decision.scores)
    for field, rows in (("terms", decision.terms), ("ties", decision.ties)):
        if not isinstance(rows, dict):
            raise method.wrong(f": {field} must be a dict from replica ids to dicts, got {rows!r}")
        for replica, numbers in rows.items():
            _check_numbers(method, f"{field}[{replica!r}]", numbers)
    for replica, terms in decision.terms.items():
        total, score = sum(terms.values()), decision.scores.get(replica)
        if score is None or not isclose(total, score):
            raise method.wrong(
                f": terms[{replica!r}] must add up to the replica's score, {score}, got {total}"
            )
    return decision


def _check_numbers(
    method: PartMethod, field: str, values: object, kind: type | UnionType = int | float
) -> None:
    if not isinstance(values, dict) or not all(
        isinstance(name, str) and isinstance(value, kind) for name, value in values.items()
    ):
        raise method.wrong(f": {field} must be a dict from ids or names to numbers, got {values!r}")


_ROLE = Role("choose", Router, RouterError, {"choose": _choose})
