"""Pack a log and the options of its board for the front end. Needs no notebook packages."""

import gzip
from contextlib import suppress
from dataclasses import asdict
from typing import Any, NamedTuple

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import EventLog, LogError
from visualizer import read
from visualizer.comparing.saved import savings
from visualizer.indexed.index_file import index_bytes
from visualizer.indexed.indexed_log import Indexed, IndexedLog, answer_of
from visualizer.indexed.part import begin_of
from visualizer.logs import (
    ClusterLogLike,
    LogLike,
    Select,
    StepIndex,
    check_level,
    part_of,
    read_any,
)
from visualizer.reading.opening import opening
from visualizer.reading.regimes import Regimes
from visualizer.reading.why.find import selected_request
from visualizer.reading.without_text import log_without_text
from visualizer.scenario import find_scenario

# Compressing 40 MB of events takes 0.7 s, compared with 2.3 s at level 9, and the result is only 6%
# larger.
GZIP_LEVEL = 6
_LONG = 20_000  # events; a page draws a shorter log once all of it is read
# Events. A tour takes 0.03 ms for each; a page asks for that of a longer log when it is wanted.
_MOST_TOLD = 10_000
_LARGE_LOG = 20_000_000  # bytes before packing
MOST_IN_PAGE = 256_000_000  # bytes of a packed log: its base64 is one string of the browser


class PackedLog(NamedTuple):
    """A packed log (see `pack`), the options for `mount`, and whether it is a cluster's log.

    An option may be bytes, such as the second log of a comparison.
    """

    log: bytes
    options: dict[str, Any]
    is_cluster: bool


def pack(log: EventLog | ClusterLog, *, index: bool = True) -> bytes:
    """Return the index of a long log, which a page reads in less time and memory, else gzipped lines.

    A log that contradicts itself stays lines, and so do all logs without `index`, because writing it
    takes three times as long as writing lines. A large log is compressed quickly: it is sent only once,
    usually to a browser on this machine, and compressing it well would take longer than sending it.
    Raises LogError for an index that is too large for a page.
    """
    check_fits(log)
    if isinstance(log, Indexed):
        return log.index.path.read_bytes()
    if index and len(log) > _LONG:
        with suppress(LogError):
            return index_bytes(log, has_keyframes=False)
    data = log.to_bytes()
    return gzip.compress(data, GZIP_LEVEL if len(data) < _LARGE_LOG else 1, mtime=0)


def check_fits(log: EventLog | ClusterLog) -> None:
    """Raise LogError for a log whose index is too large for a page."""
    size = log.index.path.stat().st_size if isinstance(log, Indexed) else 0
    if size > MOST_IN_PAGE:
        raise LogError(
            f"a page holds at most {MOST_IN_PAGE // 1_000_000} MB, and the index of this log has "
            f"{size // 1_000_000:,} MB: `underglass open FILE` shows it, and --last 50 keeps its end"
        )


def run_in_words(log: EventLog | ClusterLog, regimes: Regimes | None = None) -> dict[str, Any]:
    """Return what a page says of a whole run at once: what limited it.

    `regimes` are those of the log, if they are known already. `more` says that the log is short enough
    for a page to ask for the rest once it has drawn it.
    """
    return (regimes or read(log).regimes).as_dict() | {"more": len(log) <= _MOST_TOLD}


def told_later(log: EventLog | ClusterLog) -> dict[str, Any]:
    """Return the rest of what a page says of a run: its tour and, of one engine, what ideas saved.

    This takes ten times as long as what limited the run, so showing a log does not wait for it.
    """
    tour = read(log).tour.as_dict()["scenes"]
    if isinstance(log, ClusterLog):
        return {"tour": tour}
    return {"tour": tour, "saved": [asdict(saving) for saving in savings(log)]}


def with_more(run: dict[str, Any], log: EventLog | ClusterLog) -> dict[str, Any]:
    """Return what a page says of a run with the rest, if the log is short enough and it is missing."""
    return run | told_later(log) | {"more": False} if run["more"] else run


def cluster_options(log: ClusterLog, at_ms: float | None, select: Select) -> dict[str, Any]:
    """Return what the front end shows first: the cursor in microseconds, and the selected request.

    Raises ValueError for a request that is not in the log.
    """
    options: dict[str, Any] = {"run": answer_of(log, "run", lambda: run_in_words(log))}
    if at_ms is not None:
        options["at"] = round(1000 * at_ms)
    if select != "auto":
        options["selected"] = selected_request(log, select)
    return options


def packed_log(
    log: LogLike | ClusterLogLike, *, text: bool = True, index: bool = True, **shown: Any
) -> PackedLog:
    """Pack a log. The parameters are those of `to_html`, of `pack` and of `page_options`."""
    events = read_any(log)
    if not text:
        events = log_without_text(events)
    options = page_options(log, events, **shown)
    return PackedLog(pack(events, index=index), options, isinstance(events, ClusterLog))


def page_options(
    name: LogLike | ClusterLogLike,
    log: EventLog | ClusterLog,
    *,
    step: int | None = None,
    at_ms: float | None = None,
    select: Select = "auto",
    asks: bool = True,
    level: str = "all",
) -> dict[str, Any]:
    """Return the options for `mount` of a log; `name` may be that of a scenario.

    A page that `asks` gets the tour and the savings of the run later (see `with_more`).
    """
    shown = {} if check_level(level) == "all" else {"level": level}
    if isinstance(log, ClusterLog):
        if step is not None:
            raise ValueError(f"step must be None for a cluster log, got {step}: use at_ms")
        options = cluster_options(log, at_ms, select) | shown
        if not asks:
            options["run"] = with_more(options["run"], log)
        return options
    if at_ms is not None:
        raise ValueError(f"at_ms must be None for the log of one engine, got {at_ms}: use step")
    options = board_options(log) | shown
    if not asks:
        options["run"] = with_more(options["run"], log)
    if (scenario := find_scenario(name)) is not None:
        options |= {"step": scenario.step, "selected": scenario.select, "about": scenario.about}
    if step is not None:
        options.pop("selected", None)
        options["step"] = step
    if select != "auto":
        options["selected"] = selected_request(log, select)
    return options


def board_options(log: EventLog | ClusterLog) -> dict[str, Any]:
    """Return what the page of a log is told besides the log. An index remembers it."""
    if isinstance(log, ClusterLog):
        return cluster_options(log, None, "auto")
    return dict(answer_of(log, "board", lambda: _options(log)))


def _options(log: EventLog) -> dict[str, Any]:
    regimes = read(log).regimes
    answer_of(log, "why", regimes.__str__)  # an index remembers the words, too
    options: dict[str, Any] = {"run": run_in_words(log, regimes)}
    if regimes.worst is not None:
        near, worst = log, regimes.worst
        if isinstance(log, IndexedLog):  # where each step of a long log begins need not be known
            near = part_of(log, begin_of(log, worst - 2), begin_of(log, worst + 2))
        options["step"], options["selected"] = opening(near, StepIndex(near), regimes)
    return options
