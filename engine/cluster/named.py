"""The built-in routers, by name."""

from typing import Any

from engine.cluster.load import PowerOfTwo, RandomChoice, RoundRobin
from engine.cluster.prefix_events import PrefixEvents
from engine.cluster.prefix_tree import PrefixTree
from engine.cluster.router import Router, option_names

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
