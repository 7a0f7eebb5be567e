"""Read a log in any of its forms, and index its steps."""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import Event, EventLog, LogError, State
from engine.core.log import vocabulary as v
from visualizer.indexed.beside import index_of, is_index
from visualizer.indexed.index_file import IndexFile
from visualizer.indexed.indexed_log import log_of
from visualizer.indexed.part import end_of
from visualizer.scenario import find_scenario
from visualizer.sources import read_source
from visualizer.sources.limits import LAST
from visualizer.sources.window import left_out

LogLike = EventLog | str | bytes | Path
ClusterLogLike = ClusterLog | str | bytes | Path
Logs = LogLike | Mapping[str, LogLike]  # one log, or several by name
_AT_ONCE = 512  # events
AXES = ("steps", "time")  # the units of a timeline
LEVELS = ("lanes", "memory", "all")  # how much a board shows
# The request to select: its id or label, None for no request, or "auto" for the one that the step is
# about.
Select = int | str | None


def check_level(level: str) -> str:
    """Return the level of a board if there is one of this name. Otherwise raise a ValueError."""
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, got {level!r}")
    return level


def read_any(log: LogLike | ClusterLog) -> EventLog | ClusterLog:
    """Return a log, or read a file of any kind in `visualizer.sources`, or such a file's content.

    A name may also be that of a scenario. Raises LogError for an invalid log, FileNotFoundError for a
    path without a file, UnknownScenarioError for a name that is neither a file nor a scenario, and
    TypeError for any other type. All events of an index are read; of another file longer than 50 MB,
    only the last ones are kept, with a warning. They are read from its index, if it has one.
    """
    match log:
        case EventLog() | ClusterLog():
            return log
        case str() if log.lstrip().startswith(("{", "[")) or not log.strip():
            return read_source(log.encode())
        case bytes() | str() | Path():
            scenario = find_scenario(log)
            if scenario is None and not isinstance(log, bytes) and is_index(Path(log)):
                return log_of(IndexFile(Path(log)))
            if scenario is not None:
                return scenario.log
            if not isinstance(log, bytes) and (end := _indexed_end(Path(log))) is not None:
                return end
            return read_source(log, LAST, tell=_warn, tell_damage=_warn_of_damage)
    kind = type(log).__name__
    raise TypeError(f"log must be an EventLog, a path to a log, or JSON Lines, got {kind}")


def _indexed_end(path: Path) -> EventLog | ClusterLog | None:
    """Return the end of a long log, read from its index; None for any other log."""
    size = path.stat().st_size
    if size <= LAST or (index := index_of(path)) is None:
        return None
    log, begin = end_of(log_of(index), LAST / size)
    _warn(left_out(begin))
    return log


def _warn(note: str) -> None:
    warnings.warn(
        f"the log is long: {note}. To keep all events, use read_source(path)", stacklevel=4
    )


def _warn_of_damage(note: str) -> None:
    warnings.warn(f"a part of the log cannot be read: {note}", stacklevel=4)


def read_log(log: LogLike) -> EventLog:
    """Read the log of one engine; see `read_any`. Raises LogError for the log of a cluster."""
    events = read_any(log)
    if isinstance(events, ClusterLog):
        raise LogError("this is the log of a cluster; the log of one engine is needed")
    return events


def logs_by_name(logs: Logs) -> dict[str, EventLog]:
    """Return {name: log} in the given order. A single log gets the name ""."""
    if isinstance(logs, Mapping):
        if not logs:
            raise ValueError("logs must not be empty: pass one log, or several as {name: log}")
        return {str(name): read_log(log) for name, log in logs.items()}
    return {"": read_log(logs)}


class StepIndex:
    """Where each step's events are in a log, and which steps have a preemption or a cache hit.

    A step ends with the last event of its commit. Arrivals, aborts and cache clears between two steps
    belong to the later step, even if it has not started yet.
    """

    def __init__(self, log: EventLog) -> None:
        self.ends: dict[int, int] = {}  # step -> index after its last event
        self.preempted: dict[int, int] = {}  # step -> first request preempted
        self.hits: dict[int, int] = {}  # step -> first request with a cache hit
        step = log[0].state.step if len(log) and isinstance(log[0], v.Keyframe) else 0
        committed, started, is_async = True, step, settings_of(log).get("async_scheduling", False)
        for index, event in enumerate(log):
            if type(event) not in _INDEXED:
                continue
            begun = step
            if isinstance(event, v.StepStarted):
                begun = started = event.step
                committed = False
            elif committed and _between_steps(event):
                begun, committed = step + 1, False
            elif isinstance(event, v.StepFinished):
                committed = step == started
            elif isinstance(event, v.StepScheduled) and is_async:
                committed = True  # the previous step is committed in the same call
            if begun != step:
                if step:
                    self.ends[step] = index
                step = begun
            self._index_request(event, step)
        if step:
            self.ends[step] = len(log)

    def _index_request(self, event: Event, step: int) -> None:
        if isinstance(event, v.Preempted):
            self.preempted.setdefault(step, event.request)
        elif isinstance(event, v.Admitted) and event.blocks:
            self.hits.setdefault(step, event.request)

    def notable_request(self, step: int) -> int | None:
        """Return the first request preempted in the step, else the first one with a cache hit."""
        return self.preempted.get(step, self.hits.get(step))


def count_requests(log: EventLog) -> int:
    """Return the number of requests in the log, counting each sample."""
    first = log[0] if len(log) else None
    known = len(first.state.requests) if isinstance(first, v.Keyframe) else 0
    return known + sum(event.n for event in log.each(v.RequestArrived))


def settings_of(log: EventLog) -> dict[str, Any]:
    """Return the fields of EngineConfig and `num_blocks`, or an empty dict for an empty log."""
    match log[0] if len(log) else None:
        case v.RunStarted(settings=settings):
            return settings
        case v.Keyframe(state=state):
            return state.settings
    return {}


def state_before(log: EventLog, index: int) -> State:
    """Return the state before the event with this index in the log."""
    return log.state(log.next_seq - len(log) + index - 1) if index else State()


def events_between(log: EventLog, begin: int, end: int) -> Iterator[Event]:
    """Yield log[begin:end], of which a long log has too much for memory."""
    for at in range(begin, end, _AT_ONCE):
        yield from log[at : min(end, at + _AT_ONCE)]


def state_at(log: EventLog, steps: StepIndex, step: int) -> dict[str, Any]:
    """Return the state after `step`, as plain values (see `State.core`)."""
    return state_before(log, steps.ends[step]).core()


def part_of(log: EventLog, begin: int, end: int) -> EventLog:
    """Return the events log[begin:end], after a keyframe that replaces the earlier ones."""
    part = EventLog()
    if begin:
        part.append(state_before(log, begin).keyframe())
    for event in log[begin:end]:
        part.append(event)
    return part


# The index does not need the other event types, which make up two thirds of a log.
_INDEXED = {
    v.StepStarted,
    v.StepScheduled,
    v.StepFinished,
    v.RequestArrived,
    v.RequestFinished,
    v.Admitted,
    v.Preempted,
    v.RadixEvicted,
    v.BlockEvicted,
}


def _between_steps(event: Event) -> bool:
    return (
        isinstance(event, v.RequestArrived)
        or (isinstance(event, v.RequestFinished) and event.reason == "abort")
        or (isinstance(event, v.RadixEvicted | v.BlockEvicted) and event.reason == "cleared")
    )
