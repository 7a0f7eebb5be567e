"""Pack a log and the options of its board for the front end. Needs no notebook packages."""

import gzip
from dataclasses import asdict
from typing import Any, NamedTuple

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import EventLog
from visualizer import read
from visualizer.comparing.saved import savings
from visualizer.logs import ClusterLogLike, LogLike, Select, StepIndex, read_any
from visualizer.reading.opening import opening
from visualizer.reading.without_text import log_without_text
from visualizer.scenario import find_scenario

# Compressing 40 MB of events takes 0.7 s, compared with 2.3 s at level 9, and the result is only 6%
# larger.
GZIP_LEVEL = 6
_LARGE_LOG = 20_000_000  # bytes before packing


class PackedLog(NamedTuple):
    """The gzipped lines of a log, the options for `mount`, and whether it is a cluster's log.

    An option may be bytes, such as the second log of a comparison.
    """

    log: bytes
    options: dict[str, Any]
    is_cluster: bool


def pack(log: EventLog | ClusterLog) -> bytes:
    """Return the log's lines, gzipped.

    A large log is compressed quickly: it is sent only once, usually to a browser on this machine, and
    compressing it well would take longer than sending it.
    """
    data = log.to_bytes()
    return gzip.compress(data, GZIP_LEVEL if len(data) < _LARGE_LOG else 1, mtime=0)


def run_in_words(log: EventLog | ClusterLog) -> dict[str, Any]:
    """Return what a page says of a whole run: what limited it and, of one engine, what ideas saved."""
    said = read(log).regimes.as_dict()
    if isinstance(log, ClusterLog):
        return said
    return said | {"saved": [asdict(saving) for saving in savings(log)]}


def cluster_options(log: ClusterLog, at_ms: float | None, select: Select) -> dict[str, object]:
    """Return what the front end shows first: the cursor in microseconds, and the selected request.

    Raises ValueError for a request that is not in the log.
    """
    options: dict[str, object] = {"run": run_in_words(log)}
    if at_ms is not None:
        options["at"] = round(1000 * at_ms)
    if select != "auto":
        if select is not None and select not in {row.request for row in read(log).decision_rows}:
            raise ValueError(f"select must be the number of a routed request or None, got {select}")
        options["selected"] = select
    return options


def packed_log(
    log: LogLike | ClusterLogLike,
    *,
    step: int | None = None,
    at_ms: float | None = None,
    select: Select = "auto",
    text: bool = True,
) -> PackedLog:
    """Pack a log. The parameters are those of `to_html`."""
    events = read_any(log)
    if not text:
        events = log_without_text(events)
    if isinstance(events, ClusterLog):
        if step is not None:
            raise ValueError(f"step must be None for a cluster log, got {step}: use at_ms")
        return PackedLog(pack(events), cluster_options(events, at_ms, select), True)
    if at_ms is not None:
        raise ValueError(f"at_ms must be None for the log of one engine, got {at_ms}: use step")
    regimes = read(events).regimes
    options: dict[str, Any] = {"run": run_in_words(events)}
    if (scenario := find_scenario(log)) is not None:
        options |= {"step": scenario.step, "selected": scenario.select, "about": scenario.about}
    elif step is None and regimes.worst is not None:
        options["step"], options["selected"] = opening(events, StepIndex(events), regimes)
    if step is not None:
        options["step"] = step
    if select != "auto":
        options["selected"] = select
    return PackedLog(gzip.compress(events.to_bytes(), GZIP_LEVEL, mtime=0), options, False)
