"""Sweep the arrival rate of a load over a target, and read off how much the target can take.

    found = sweep(simulated(EngineConfig(), cost=Cost(10, 0.25)), Load(), slo="ttft<1s, itl<50ms")
    print(found)
    found.save("sweep.jsonl")

The rates are found automatically: see `rates.py`. The loop is open: requests are sent at their
scheduled times, whatever has been answered by then.
"""

from collections.abc import Callable, Iterable
from typing import Any

from engine.simulation.capacity.curve import Header, Sweep, SweepError
from engine.simulation.capacity.load import Load
from engine.simulation.capacity.point import Point
from engine.simulation.capacity.rates import next_rate
from engine.simulation.capacity.simulated import Serve
from engine.simulation.capacity.slo import Slo


def sweep(
    serve: Serve,
    load: Load,
    *,
    rates: Iterable[float] | None = None,
    slo: str | Slo = "",
    share: float = 0.99,
    name: str = "",
    load_words: dict[str, Any] | None = None,
    progress: Callable[["Sweep", Point], object] = lambda *_: None,
) -> Sweep:
    """Measure a target at rising rates until it is past saturation.

    serve     the target: `simulated(...)`, or `server.load.endpoint(url)`
    rates     requests per second; None: found automatically
    slo       goals such as "ttft<1s, itl<50ms"
    share     of the requests that have to meet all goals
    load_words  says in the file's header what the load is
    progress  called with the sweep so far and its new point

    Ctrl-C ends the sweep and returns the points measured so far. Raises SweepError if an undisturbed
    request gets no answer, and what the target raises.
    """
    goals = Slo.parse(slo, share) if isinstance(slo, str) else slo
    alone_ms = _alone_ms(serve, load)
    found = Sweep(Header(name=name, slo=goals, alone_ms=alone_ms, load=load_words or {}))
    given = None if rates is None else iter(sorted(rates))
    try:
        while True:
            rate = next(given, None) if given else next_rate(found.points, found.header.alone_ms)
            if rate is None:
                break
            progress(found, found.add(rate, serve(load.at(rate), rate)))
    except KeyboardInterrupt:
        if not found.points:
            raise
        found.was_interrupted = True
    return found


def _alone_ms(serve: Serve, load: Load) -> float:
    """Return how long an undisturbed request takes; the first one only warms up the target."""
    for _ in range(2):
        (row,) = serve(load.at(1.0, requests=1), 1.0)
    if not row.is_complete:
        raise SweepError(f"a request that was sent alone got no answer: {row.error}")
    return row.latency("e2e")
