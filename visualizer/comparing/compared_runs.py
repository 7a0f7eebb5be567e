"""Compare two runs: settings, first differing decision, latencies and totals. Needs no widgets.

`visualizer.compare` shows the comparison in a notebook. `underglass open A B`, `/compare` of a server
and the static site draw its `page_facts`.

The engine is deterministic, so two runs of the same workload can be aligned: requests by prompt,
label and arrival order, and steps by number.

`what_if` replays a measured log on a cost model, and that model is not exact. Both runs therefore get
their times from the model, and the comparison reports the model's error against the measured times.
Times of two measured runs vary; `accuracy.py` says how large a difference must be to mean something.
"""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import EventLog, LogError
from engine.core.log import vocabulary as v
from engine.simulation.facts import Fact
from engine.simulation.latencies import US_PER_MS, PausedTime
from visualizer import read
from visualizer.comparing.accuracy import accuracy
from visualizer.comparing.compared import Compared
from visualizer.comparing.compared_clusters import ComparedClusters
from visualizer.comparing.differences import differing_steps, first_difference, pair
from visualizer.comparing.engines import engines_note, is_foreign
from visualizer.comparing.inputs import input_changes
from visualizer.comparing.run_totals import ADOPTED, HELD, is_better, run_totals
from visualizer.comparing.same_machine import fit_record, fitted, model_errors, retime
from visualizer.comparing.tour import tour_of_comparison
from visualizer.logs import (
    AXES,
    LogLike,
    StepIndex,
    count_requests,
    read_any,
    read_log,
    settings_of,
)
from visualizer.reading.frames import import_pandas
from visualizer.reading.knowledge import part_words
from visualizer.reading.messages import count
from visualizer.reading.rows import RequestRow
from visualizer.reading.story import names_of, plain
from visualizer.reading.tour import Tour

if TYPE_CHECKING:
    import pandas as pd

# The fields of `read(log).request_rows` to compare.
MEASURES = ("ttft_ms", "itl_ms", "e2e_ms", "finished_step", "preemptions", "cached_tokens")
MOST_EVENTS = 1_000_000  # of both logs; comparing takes 0.2 ms for each
_COUNTS = ("finished_step", "preemptions", "cached_tokens")
MAX_ROWS = 300  # the page lists only the requests that changed most
_DIGITS = 10  # decimal places of a number in `page_facts`


class ComparedRuns(Compared):
    """The comparison of two logs.

    settings          {name: (in A, in B)} for the settings and classes that differ
    inputs            one line for each input that differs (arrivals, priorities)
    difference        the first decision that differs, or None
    first_difference  the same in words, with the reason in each run, or None
    step              the step of that decision, or None
    verdict           the result in one sentence
    note              what to know about the times: the model's error, or how much they vary, or None
    """

    logs: tuple[EventLog, EventLog]

    def __init__(
        self,
        a: LogLike,
        b: LogLike,
        names: tuple[str, str] = ("A", "B"),
        *,
        axis: str = "time",
        study: dict[str, Any] | None = None,
    ) -> None:
        if axis not in AXES:
            raise ValueError(f"axis must be one of {', '.join(AXES)}, got {axis!r}")
        self.axis = axis
        self._study = study
        self.names = names
        self._error_ms: dict[str, float] = {}  # the model's mean error in the times that are shown
        self.note: str | None = None
        self.logs = logs = self._with_comparable_times(read_log(a), read_log(b))
        self._names_of = names_of(logs[0]), names_of(logs[1])
        self._pairs = pair(*logs)
        self.settings = _changed_settings(*logs)
        # If requests arrive at the recorded times, they may arrive before a different step although
        # the input is the same.
        by_time = all((found := fitted(log)) and found["pinned"] == "time" for log in logs)
        self.inputs = [] if by_time else input_changes(*logs, self._pairs, self._names_of[0])
        self.difference = first_difference(*logs, self._pairs)
        self._differing = differing_steps(*logs, self._pairs) if self.difference else []
        paired = self._pairs.keys(), set(self._pairs.values())
        self._accuracy = accuracy(*logs, self.step, names, self._error_ms)
        self.note = self.note or self._accuracy.words
        said = [
            words for log, name in zip(logs, names, strict=True) if (words := part_words(log, name))
        ]
        notes = [f"{words}." for words in said] + ([self.note] if self.note else [])
        if is_foreign(*logs) and study is None:  # a study names the engines itself
            notes.insert(0, engines_note(*logs, names))
        self.note = " ".join(notes) or None
        self._unmatched = [sorted(self._names_of[run].keys() - paired[run]) for run in (0, 1)]

    def _with_comparable_times(self, a: EventLog, b: EventLog) -> tuple[EventLog, EventLog]:
        """Give a log and its `what_if` times from the same cost model, and record the model's error."""
        if record := fit_record(b, a):
            log, replay, name = a, b, self.names[0]
        elif record := fit_record(a, b):
            log, replay, name = b, a, self.names[1]
        else:
            return a, b
        timed = retime(log, replay)
        self._error_ms = found = model_errors(log, timed)
        errors = [f"{found[name]:.3g} ms in {name.upper()}" for name in found if name != "e2e"]
        error = f"The model's mean error on {name}: {' and '.join(errors) or 'unknown'}."
        if held_back := record.get("held_back"):
            error += f" {held_back['text']}."
        if record["pinned"] == "time":
            self.note = (
                f"{name} has measured times, but the times of the other run come from a cost model, so "
                f"differences in time include the model's error. {error} Compare with "
                f'what_if(log, pinned="time") instead of the measured log.'
            )
            return a, b
        self.note = f"The times of both runs come from a cost model fitted to {name}. {error}"
        return (timed, b) if log is a else (a, timed)

    @property
    def step(self) -> int | None:
        """The step of the first decision that differs, or None."""
        return self.difference.step if self.difference else None

    @property
    def first_difference(self) -> str | None:
        """The first decision that differs, with the reason in each run, or None."""
        found = self.difference
        if found is None:
            return None
        a, b = plain(found.a, self._names_of[0]), plain(found.b, self._names_of[1])
        return f"Step {found.step}: in {self.names[0]} {a}; in {self.names[1]} {b}."

    @property
    def verdict(self) -> str:
        """The result of the comparison in one sentence."""
        if self.difference:
            return str(self.first_difference)
        if (lacking := self._without_decisions) is not None:
            missing = read(lacking).knowledge.missing("scheduled_tokens")
            return f"No decision can be compared. {missing}"
        a, b = self.logs
        if a.deterministic() == b.deterministic():
            return "No difference: the two runs are identical, event by event."
        return "No decision differs: both runs serve every request in the same steps."

    @property
    def _without_decisions(self) -> EventLog | None:
        """The first log that does not record what its steps computed."""
        return next(
            (log for log in self.logs if read(log).knowledge.lacks("scheduled_tokens")), None
        )

    @cached_property
    def _rows(self) -> tuple[dict[int, RequestRow], dict[int, RequestRow]]:
        a, b = ({row.request: row for row in _unpaused_rows(log)} for log in self.logs)
        return a, b

    def names_of(self, run: int) -> dict[int, str]:
        """Return the names of the requests of run 0 or 1."""
        return self._names_of[run]

    @property
    def tour(self) -> Tour:
        """Which run took longer, where they part, and what limited each: see `reading/tour`."""
        return tour_of_comparison(self)

    @property
    def better_busy(self) -> str:
        """The run with less busy time: "a", "b", "noise", "unknown" or "", as in `is_better`."""
        busy = self.total_values.get("busy time, ms", (None, None))
        return is_better("busy time, ms", *busy, self._accuracy)

    @property
    def paired_rows(self) -> list[tuple[RequestRow, RequestRow]]:
        """The rows of the paired requests. A sample that was never forked has an id but no row."""
        a, b = self._rows
        return [(a[one], b[two]) for one, two in self._pairs.items() if one in a and two in b]

    @property
    def requests(self) -> "pd.DataFrame":
        """One row per paired request, indexed by its id in A; `id_b` is its id in B.

        Each measure has three columns: `ttft_ms_a`, `ttft_ms_b` and `ttft_ms_change` (B minus A).
        """
        pd = import_pandas("Comparison.requests")
        rows = self.paired_rows
        names = [self._names_of[0][one.request] for one, _ in rows]
        index = pd.Index([one.request for one, _ in rows], name="request")
        table = pd.DataFrame({"name": names, "id_b": [two.request for _, two in rows]}, index)
        for name in MEASURES:
            dtype = "Int64" if name in _COUNTS else "float64"
            for at, of in enumerate(("a", "b", "change")):
                values = [_values(*both, name)[at] for both in rows]
                table[f"{name}_{of}"] = pd.Series(values, index, dtype)
        return table

    @cached_property
    def total_values(self) -> dict[str, tuple[float | None, float | None]]:
        """Measures of the runs as a whole: name -> (in A, in B)."""
        a, b = (
            run_totals(log, list(rows.values()))
            for log, rows in zip(self.logs, self._rows, strict=True)
        )
        # A percentile is left out if one of the runs has too few values for it.
        names = [
            name for name in a if name in b and (name not in (ADOPTED, HELD) or a[name] or b[name])
        ]
        return {name: (a[name], b[name]) for name in names}

    @property
    def totals(self) -> "pd.DataFrame":
        """`total_values` as a table with the columns `a`, `b` and `change`."""
        pd = import_pandas("Comparison.totals")
        table = pd.DataFrame.from_dict(
            self.total_values, orient="index", columns=["a", "b"], dtype="float64"
        )
        return table.assign(change=table["b"] - table["a"])

    def page_options(self) -> dict[str, Any]:
        """Return `page_facts`."""
        return {"facts": self.page_facts()}

    def page_facts(self, *, with_tour: bool = True) -> dict[str, Any]:
        """Return the texts and numbers that the page shows, as JSON values."""
        found = self.difference
        rows = self.paired_rows
        moved = sorted(rows, key=_movement, reverse=True)[:MAX_ROWS]
        return {
            "names": list(self.names),
            "axis": self.axis,
            "settings": [[name, *map(_value_text, both)] for name, both in self.settings.items()],
            "inputs": self.inputs or self._unknown_inputs(),
            "note": self.note,
            "verdict": self.verdict,
            "tour": self.tour.as_dict()["scenes"] if with_tour else [],
            "difference": found
            and {name: getattr(found, name) for name in ("step", "a", "b", "requests")},
            "differing": self._differing,
            "rows": [
                [a.request, b.request, *(one for name in MEASURES for one in _values(a, b, name))]
                for a, b in moved
            ],
            "study": self._study,
            "totals": [
                [name, *_with_change(*both), is_better(name, *both, self._accuracy)]
                for name, both in self.total_values.items()
            ],
            "end_noise": {"share": self._accuracy.share, "ms": self._accuracy.ms.get("e2e", 0.0)},
            "paired": len(rows),
            "renumbered": [list(both) for both in self._pairs.items() if both[0] != both[1]],
            "unmatched": self._unmatched,
        }

    def _unknown_inputs(self) -> list[str]:
        """Return a sentence for each kind of input that one of the logs does not record."""
        kinds: tuple[Fact, ...] = ("settings", "arrivals")
        lacking = {
            fact: log for log in self.logs for fact in kinds if read(log).knowledge.lacks(fact)
        }
        return [read(log).knowledge.missing(fact) for fact, log in lacking.items()]

    def __repr__(self) -> str:
        runs = ", ".join(
            f"{name}: {count(count_requests(log), 'request')} "
            f"in {count(len(StepIndex(log).ends), 'step')}"
            for name, log in zip(self.names, self.logs, strict=True)
        )
        where = f"first difference in step {self.step}" if self.difference else "no difference"
        if not self.difference and self._without_decisions:
            where = "no decision can be compared"
        return f"{type(self).__name__}({runs}; {where})"


def compare_logs(
    a: LogLike | ClusterLog,
    b: LogLike | ClusterLog,
    names: tuple[str, str] = ("A", "B"),
    *,
    axis: str = "time",
) -> ComparedRuns | ComparedClusters:
    """Compare two logs of engines or two of clusters.

    Raises TypeError for one of each kind, and LogError for logs that are too long.
    """
    one, two = read_any(a), read_any(b)
    if (events := len(one) + len(two)) > MOST_EVENTS:
        raise LogError(
            f"{' and '.join(names)} have {events:,} events, and at most {MOST_EVENTS:,} are compared: "
            "`underglass open` compares their ends with --last 20"
        )
    if isinstance(one, EventLog) and isinstance(two, EventLog):
        return ComparedRuns(one, two, names, axis=axis)
    return ComparedClusters(one, two, names)


def _unpaused_rows(log: EventLog) -> list[RequestRow]:
    """Return `request_rows`, whose `e2e_ms` leave out the time in which the engine was paused, too."""
    paused, rows = PausedTime(), read(log).request_rows
    for event in log:
        paused.note(event)
    if not paused.intervals:
        return rows
    unpaused = []
    for row in rows:
        e2e, begin = row.e2e_ms, row.arrived_ms
        if e2e is not None and begin is not None:
            held = paused.between(*(round(ms * US_PER_MS) for ms in (begin, begin + e2e)))
            unpaused.append(msgspec.structs.replace(row, e2e_ms=e2e - held / US_PER_MS))
        else:
            unpaused.append(row)
    return unpaused


def _changed_settings(a: EventLog, b: EventLog) -> dict[str, tuple[Any, Any]]:
    """Return the settings and classes that differ, with None for one that a run lacks.

    For different engines, only settings that both have are compared. The classes of the radix tree are
    left out if the prefix caches are of different kinds.
    """
    if is_foreign(a, b):
        one, two = settings_of(a), settings_of(b)
        known = not any(read(log).knowledge.lacks("settings") for log in (a, b))
        names = [name for name in one if name in two and known]
    else:
        one, two = _settings_and_classes(a), _settings_and_classes(b)
        names = list(one | two)
    different = [name for name in names if one.get(name) != two.get(name)]
    if "prefix_cache" in different:
        different = [name for name in different if name not in ("tree", "eviction")]
    return {name: (one.get(name), two.get(name)) for name in different}


def _settings_and_classes(log: EventLog) -> dict[str, Any]:
    settings, first = dict(settings_of(log)), log[0]
    if isinstance(first, v.RunStarted):
        model = first.model.get("name")
        settings |= first.classes | ({"model": model} if model else {})
    return settings


def _values(a: RequestRow, b: RequestRow, name: str) -> list[float | None]:
    """Return a measure in A, in B, and its change."""
    return _with_change(getattr(a, name), getattr(b, name))


def _with_change(a: float | None, b: float | None) -> list[float | None]:
    change = None if a is None or b is None else b - a
    return [one if one is None else round(one, _DIGITS) for one in (a, b, change)]


def _movement(both: tuple[RequestRow, RequestRow]) -> float:
    """Return by how much a request's TTFT and ITL changed together, in ms."""
    changes = (_values(*both, name)[2] for name in ("ttft_ms", "itl_ms"))
    return sum(abs(change or 0) for change in changes)


def _value_text(value: Any) -> str:
    return {None: "none", True: "on", False: "off"}.get(value) or str(value)
