"""Compare two runs: their settings, first differing decision, latencies and totals.

    from visualizer import compare
    comparison = compare(log, what_if(log, token_budget=32))
    comparison.first_difference     # "Step 3: in A r2 prefills tokens 1 to 40 of 40; in B it ..."
    comparison.requests             # a pandas DataFrame with one row per request

The engine is deterministic, so two runs of the same workload can be aligned: requests by prompt,
label and arrival order, and steps by number.

`what_if` replays a measured log on a cost model, and that model is not exact. Both runs therefore get
their times from the model, and the comparison reports the model's error against the measured times.
Times of two measured runs vary; `accuracy.py` says how large a difference must be to mean something.
"""

import base64
import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import ipywidgets
import traitlets

from engine.events import EventLog
from engine.events import vocabulary as v
from engine.events.cluster_log import ClusterLog
from engine.events.facts import Fact
from engine.events.messages import count
from visualizer.comparing.accuracy import accuracy
from visualizer.comparing.clusters import ClusterComparison
from visualizer.comparing.differences import differing_steps, first_difference, pair
from visualizer.comparing.engines import engines_note, is_foreign
from visualizer.comparing.inputs import input_changes
from visualizer.comparing.run_totals import ADOPTED, is_better, run_totals
from visualizer.comparing.same_machine import end_error, fit_record, fitted, model_error, retime
from visualizer.html import MODULE, write_page
from visualizer.logs import LogLike, read_any, read_log, settings_of
from visualizer.moments import names_of, plain
from visualizer.widgets.log_model import AXES, SAVED_BYTES, LogModel
from visualizer.widgets.picture import PictureWidget

if TYPE_CHECKING:
    import pandas as pd

# The columns of `log.requests` to compare.
MEASURES = ("ttft_ms", "itl_ms", "e2e_ms", "finished_step", "preemptions", "cached_tokens")
MAX_ROWS = 300  # the page lists only the requests that changed most


class Comparison(PictureWidget):
    """Two logs in one picture, with one current step. Python compares them; the browser draws them.

    settings          {name: (in A, in B)} for the settings and classes that differ
    inputs            one line for each input that differs (arrivals, priorities)
    first_difference  the first decision that differs, with the reason in each run, or None
    step              the step of that decision, or None
    verdict           the result in one sentence
    model_error       {"ttft_ms": ..., "itl_ms": ...}: the cost model's mean error over all requests
                      if one run is a `what_if` of the other, otherwise None
    note              what to know about the times: the model's error, or how much they vary, or None
    """

    _esm = MODULE
    kind = traitlets.Unicode("compare").tag(sync=True)
    a = traitlets.Instance(LogModel).tag(sync=True, **ipywidgets.widget_serialization)
    b = traitlets.Instance(LogModel).tag(sync=True, **ipywidgets.widget_serialization)
    facts = traitlets.Dict().tag(sync=True)

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
        self.model_error: dict[str, float] | None = None
        self._error_ms: dict[str, float] = {}  # of the times that are shown
        self.note: str | None = None
        self._logs = logs = self._with_comparable_times(read_log(a), read_log(b))
        self._names_of = names_of(logs[0]), names_of(logs[1])
        self._pairs = pair(*logs)
        self.settings = _changed_settings(*logs)
        # At the recorded times, an arrival may come before another step without being another input.
        by_time = all((found := fitted(log)) and found["pinned"] == "time" for log in logs)
        self.inputs = [] if by_time else input_changes(*logs, self._pairs, self._names_of[0])
        self._difference = first_difference(*logs, self._pairs)
        self._differing = differing_steps(*logs, self._pairs) if self._difference else []
        paired = self._pairs.keys(), set(self._pairs.values())
        self._accuracy = accuracy(*logs, self.step, names, self._error_ms)
        self.note = self.note or self._accuracy.words
        if is_foreign(*logs) and study is None:  # which says it already
            said = [engines_note(*logs, names), self.note]
            self.note = " ".join(filter(None, said))
        self._unmatched = [sorted(self._names_of[run].keys() - paired[run]) for run in (0, 1)]
        model_a, model_b = _models(*logs, self.step)
        if self._difference is not None:  # as the page opens
            model_a.selected, model_b.selected = self._difference.requests
        super().__init__(a=model_a, b=model_b, facts=self._facts())

    def _with_comparable_times(self, a: EventLog, b: EventLog) -> tuple[EventLog, EventLog]:
        """Give a log and its `what_if` times from the same cost model, and record the model's error."""
        if record := fit_record(b, a):
            log, replay, name = a, b, self.names[0]
        elif record := fit_record(a, b):
            log, replay, name = b, a, self.names[1]
        else:
            return a, b
        timed = retime(log, replay)
        self.model_error = model_error(log, timed)
        self._error_ms = end_error(log, timed) | {
            name.removesuffix("_ms"): ms for name, ms in self.model_error.items()
        }
        labels = {"ttft_ms": "TTFT", "itl_ms": "ITL"}
        errors = [f"{ms:.3g} ms in {labels[key]}" for key, ms in self.model_error.items()]
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
        return self._difference.step if self._difference else None

    @property
    def unmatched(self) -> tuple[list[str], list[str]]:
        """Names of the requests that only A has, and of those that only B has."""
        (names_a, names_b), (only_a, only_b) = self._names_of, self._unmatched
        return [names_a[id_] for id_ in only_a], [names_b[id_] for id_ in only_b]

    @property
    def first_difference(self) -> str | None:
        """The first decision that differs, with the reason in each run, or None."""
        found = self._difference
        if found is None:
            return None
        a, b = plain(found.a, self._names_of[0]), plain(found.b, self._names_of[1])
        return f"Step {found.step}: in {self.names[0]} {a}; in {self.names[1]} {b}."

    @property
    def verdict(self) -> str:
        """The result of the comparison in one sentence."""
        if self._difference:
            return str(self.first_difference)
        if (lacking := self._without_decisions) is not None:
            return f"No decision can be compared. {lacking.knowledge.missing('scheduled_tokens')}"
        a, b = self._logs
        if a.deterministic() == b.deterministic():
            return "No difference: the two runs are identical, event by event."
        return "No decision differs: both runs serve every request in the same steps."

    @property
    def _without_decisions(self) -> EventLog | None:
        """The first log that does not know what its steps computed."""
        return next((log for log in self._logs if log.knowledge.lacks("scheduled_tokens")), None)

    @cached_property
    def _frames(self) -> "list[pd.DataFrame]":
        return [log.requests for log in self._logs]

    @property
    def requests(self) -> "pd.DataFrame":
        """One row per paired request, indexed by its id in A; `id_b` is its id in B.

        Each measure has three columns: `ttft_ms_a`, `ttft_ms_b` and `ttft_ms_change` (B minus A).
        """
        import pandas as pd

        a, b = self._frames
        # A sample that was never forked has an id but no row.
        known = {one: two for one, two in self._pairs.items() if one in a.index and two in b.index}
        a = a.loc[list(known)]
        b = b.loc[list(known.values())].set_axis(a.index)
        names = [self._names_of[0][one] for one in known]
        table = pd.DataFrame({"name": names, "id_b": known.values()}, index=a.index)
        for name in MEASURES:
            table[f"{name}_a"], table[f"{name}_b"] = a[name], b[name]
            table[f"{name}_change"] = b[name] - a[name]
        return table

    @property
    def totals(self) -> "pd.DataFrame":
        """Measures of each run as a whole, in the columns `a`, `b` and `change`."""
        import pandas as pd

        a, b = (run_totals(log, frame) for log, frame in zip(self._logs, self._frames, strict=True))
        # A percentile is left out for the run that has too few values for it.
        names = [name for name in a if name in b and (name != ADOPTED or a[name] or b[name])]
        table = pd.DataFrame({"a": a, "b": b}).loc[names]
        return table.assign(change=table["b"] - table["a"])

    def to_html(self, path: str | Path | None = None, *, theme: str | None = None) -> str:
        """Return the comparison as a self-contained page, and write it to `path` if one is given."""
        other = base64.b64encode(self.b.packed).decode()
        options = {"compare": {"b": other, "facts": self.facts}}
        title = f"Underglass: {self.names[0]} and {self.names[1]}"
        return write_page(self.a.packed, options, path, theme=theme, title=title)

    def _facts(self) -> dict[str, Any]:
        """Return the texts and numbers that the page shows."""
        found = self._difference
        table = self.requests.drop(columns="name")
        paired = len(table)
        largest = table["ttft_ms_change"].abs().fillna(0) + table["itl_ms_change"].abs().fillna(0)
        table = table.loc[largest.sort_values(ascending=False, kind="stable").index[:MAX_ROWS]]
        return {
            "names": list(self.names),
            "axis": self.axis,
            "settings": [[name, *map(_value_text, both)] for name, both in self.settings.items()],
            "inputs": self.inputs or self._unknown_inputs(),
            "note": self.note,
            "verdict": self.verdict,
            "difference": found
            and {name: getattr(found, name) for name in ("step", "a", "b", "requests")},
            "differing": self._differing,
            "rows": _rows(table),
            "study": self._study,
            "totals": [
                [*row, is_better(row[0], row[1], row[2], self._accuracy)]
                for row in _rows(self.totals)
            ],
            "end_noise": {"share": self._accuracy.share, "ms": self._accuracy.ms.get("e2e", 0.0)},
            "paired": paired,
            "renumbered": [list(both) for both in self._pairs.items() if both[0] != both[1]],
            "unmatched": self._unmatched,
        }

    def _unknown_inputs(self) -> list[str]:
        """Return a sentence for each kind of input that a log does not know."""
        kinds: tuple[Fact, ...] = ("settings", "arrivals")
        lacking = {fact: log for log in self._logs for fact in kinds if log.knowledge.lacks(fact)}
        return [log.knowledge.missing(fact) for fact, log in lacking.items()]

    def __repr__(self) -> str:
        runs = ", ".join(
            f"{name}: {count(model.num_requests, 'request')} in {count(len(model.steps.ends), 'step')}"
            for name, model in zip(self.names, (self.a, self.b), strict=True)
        )
        where = f"first difference in step {self.step}" if self._difference else "no difference"
        if not self._difference and self._without_decisions:
            where = "no decision can be compared"
        return f"Comparison({runs}; {where})"


@overload
def compare(
    a: ClusterLog, b: ClusterLog, names: tuple[str, str] = ("A", "B")
) -> ClusterComparison: ...
@overload
def compare(
    a: LogLike, b: LogLike, names: tuple[str, str] = ("A", "B"), *, axis: str = "time"
) -> Comparison: ...
@overload
def compare(
    a: LogLike | ClusterLog, b: LogLike | ClusterLog, names: tuple[str, str] = ("A", "B")
) -> Comparison | ClusterComparison: ...
def compare(
    a: LogLike | ClusterLog,
    b: LogLike | ClusterLog,
    names: tuple[str, str] = ("A", "B"),
    *,
    axis: str = "time",
) -> Comparison | ClusterComparison:
    """Compare two logs: EventLogs, paths to `.jsonl` files, or names of scenarios.

    `axis` is the initial unit of the picture: "time" for wall time, or "steps". Logs without times
    are drawn by steps. Two cluster logs of one workload, or paths to them, are compared by request.
    """
    one, two = read_any(a), read_any(b)
    if isinstance(one, EventLog) and isinstance(two, EventLog):
        return Comparison(one, two, names, axis=axis)
    return ClusterComparison(one, two, names)  # type: ignore[arg-type]  # it says what is wrong


def _models(a: EventLog, b: EventLog, step: int | None) -> tuple[LogModel, LogModel]:
    """Return a model of each log. Together they save no more bytes than a single log may."""

    def model(log: EventLog, max_saved: int) -> LogModel:
        return LogModel(log, None if step is None else _nearest(log, step), max_saved=max_saved)

    if len(a) > len(b):
        return _models(b, a, step)[::-1]
    shorter = model(a, SAVED_BYTES // 2)
    return shorter, model(b, SAVED_BYTES - len(base64.b64decode(shorter.log)))


def _nearest(log: EventLog, step: int) -> int | None:
    """Return the step of the log that is nearest to `step`, or None if the log has no steps."""
    steps = [event.step for event in log.of(v.StepStarted)]
    return min(max(step, steps[0]), steps[-1]) if steps else None


def _changed_settings(a: EventLog, b: EventLog) -> dict[str, tuple[Any, Any]]:
    """Return the settings and classes that differ, with None for one that a run lacks.

    Of different engines, only settings that both have are compared. Parts of the radix tree are left
    out if only one of the runs has one.
    """
    if is_foreign(a, b):
        one, two = settings_of(a), settings_of(b)
        known = not any(log.knowledge.lacks("settings") for log in (a, b))
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


def _rows(table: "pd.DataFrame") -> list[Any]:
    """Return the rows as JSON values, each after its index."""
    return list(json.loads(table.astype(object).reset_index().to_json(orient="values")))


def _value_text(value: Any) -> str:
    return {None: "none", True: "on", False: "off"}.get(value) or str(value)
