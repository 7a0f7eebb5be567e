"""The records of a log from its index, which knows each step and each request: no event is read."""

from typing import Any, cast

from engine.core.log import EventLog, LogError
from engine.simulation.latencies import PausedTime
from visualizer.indexed import facts
from visualizer.indexed.index_file import IndexFile
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.reading.waterfall.records import (
    DECODE,
    Absence,
    Life,
    Records,
    Step,
    Work,
    infer_others_prefill,
)

_ROWS = {"prefill", "catchup", "decode"}


def records_of(log: EventLog) -> Records:
    """Return the records of a log, from its index if that has all of them."""
    if isinstance(log, IndexedLog):
        try:
            return _IndexedRecords(log.index)
        except LogError:
            pass  # a part is damaged, and the events tell the same
    return Records(log)


class _IndexedRecords(Records):
    """See `Records`. A request's life is made when it is asked for."""

    def __init__(self, index: IndexFile) -> None:
        known = list(index.facts(facts.Finished, facts.Request, facts.Run))
        [run] = [one for one in known if isinstance(one, facts.Run)]
        requests = [one for one in known if isinstance(one, facts.Request)]
        requests.sort(key=lambda one: one.index)
        self.unit = "us" if run.has_times else "steps"
        self.source = run.source
        self.paused = PausedTime()
        self.paused.intervals = cast("list[tuple[int, int]]", run.pauses)
        self.steps = []
        for one in known:
            if isinstance(one, facts.Finished):
                self._add_steps(one)
        infer_others_prefill(self.steps)
        self._requests = {one.id: one for one in requests}
        self.labels = {one.id: one.label for one in requests}

    def _add_steps(self, done: facts.Finished) -> None:
        for i, number in enumerate(done.number):
            at, blocked = len(self.steps), done.blocked[i]
            times: list[Any] = [at, at, at + 1, at + 1]
            if self.unit == "us":
                times = [done.begin[i], done.launched[i], done.ready[i], done.end[i]]
            step = Step(number, *times)
            step.decodes, step.prefills = done.decodes[i], done.prefills[i]
            step.blocked = (blocked.request, blocked.reason) if blocked else None
            step.skipped, step.is_failed = dict(done.skipped[i]), done.failed[i]
            step.is_after_gap = done.is_after_gap[i]
            self.steps.append(step)

    def life(self, request: int) -> Life | None:
        """See `Records`."""
        known = self._requests.get(request)
        if known is None:
            return None
        arrived: Any = known.arrived_at if self.unit == "us" else known.begins_at
        life = Life(
            id=known.id,
            label=known.label,
            prompt_tokens=known.prompt_length,
            arrived=None if known.arrived is None else arrived,
            examined=known.examined,
            begins_at=known.begins_at,
            ends_at=known.ends_at,
            first_token=known.first_token,
            short=known.shortfall,
        )
        if known.forked is not None:
            life.forked, life.parent = known.forked
        if known.finished is not None:
            life.reason = known.finished[1]
        if known.admitted is not None:
            life.admitted, found, tokens, replica = known.admitted
            life.adopted = tokens, replica
            life.found = found if life.admitted else None  # else before the log begins
        for one in (*known.before, *known.segments):
            if one.kind in _ROWS and one.end is not None:
                work = _work(one)
                life.work.update((step, work) for step in range(one.begin, one.end + 1))
            elif one.kind == "preempted":
                until = None if one.end is None else one.end + 1
                life.absences.append(Absence(one.begin, one.by, until))
        return life


def _work(row: facts.Segment) -> Work:
    is_decode = row.kind == "decode"
    in_vain = row.wasted not in ("", "ended")
    if is_decode and not (row.recomputed or in_vain):
        return DECODE
    new = (1 if is_decode else row.count) - row.recomputed
    is_prefill = not (row.reaches_output or (is_decode and new))
    return Work(row.recomputed, new, is_prefill, is_decode, in_vain)
