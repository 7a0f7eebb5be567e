"""Pack a cluster log for a page: several replicas behind one router."""

import gzip

from engine.cluster.cluster_log import ClusterLog
from visualizer import read
from visualizer.logs import Select


def pack(log: ClusterLog) -> bytes:
    """Return the log's lines, gzipped."""
    return gzip.compress(log.to_bytes(), 6, mtime=0)


def opening_options(log: ClusterLog, at_ms: float | None, select: Select) -> dict[str, object]:
    """Return what the front end shows first: the cursor in microseconds, and the selected request.

    Raises ValueError for a request that is not in the log.
    """
    options: dict[str, object] = {}
    if at_ms is not None:
        options["at"] = round(1000 * at_ms)
    if select != "auto":
        if select is not None and select not in {row.request for row in read(log).decision_rows}:
            raise ValueError(f"select must be the number of a routed request or None, got {select}")
        options["selected"] = select
    return options
