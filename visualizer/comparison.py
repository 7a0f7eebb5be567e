"""Two runs beside each other: what differs in their settings, first decision, latencies and totals.

    from visualizer import compare
    comparison = compare(log, what_if(log, token_budget=32))
    comparison.first_difference     # "Step 3: in A r2 prefills tokens 1 to 40 of 40; in B it ..."
    comparison.requests             # a pandas frame, a row per request

The engine is deterministic, so two runs of one workload align by request and step: requests by prompt,
label and order of arrival, steps by number.

`what_if` replays a measured log on a cost model, and the model has an error. So both runs are timed by
that model, and its error on the measured times is stated beside the comparison.
"""

import base64
import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets
import traitlets

from engine.events import EventLog
from engine.events import vocabulary as v
from engine.events.messages import count
from visualizer.differences import first_difference, pair
from visualizer.html import MODULE, page_of
from visualizer.inputs import input_changes
from visualizer.logs import LogLike, read_log
from visualizer.moments import names_of, plain
from visualizer.pictured import Pictured
from visualizer.same_machine import fitted, model_error, retime
from visualizer.view import AXES, SAVED_BYTES, LogModel

if TYPE_CHECKING:
    import pandas as pd

# Measures of a request, as in `log.requests`, and of a run.
MEASURES = ("ttft_ms", "itl_ms", "e2e_ms", "finished_step", "preemptions", "cached_tokens")
MOST_ROWS = 300  # of requests that a page is given: those that changed most
US_PER_S = 1_000_000


class Comparison(Pictured):
    """Two logs on one cursor. What it says is computed here; the browser draws.

    settings          {name: (in A, in B)}: what the two runs were told differently
    inputs            what came from outside differently (arrivals, priorities), in words
    first_difference  the first decision that differs, in words with both reasons; None: none does
    step              the step in which it is made, or None
    verdict           the same as one sentence, also where nothing differs
    model_error       where one run is the `what_if` of the other: how far its cost model is from the
                      measured times, {"ttft_ms": , "itl_ms": }, the mean over all requests; else None
    note              the same as a sentence, and whose times are shown; else None
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
        axis: str = "steps",
    ) -> None:
        if axis not in AXES:
            raise ValueError(f"axis must be one of {', '.join(AXES)}, got {axis!r}")
        self.axis = axis
        self.names = names
        self.model_error: dict[str, float] | None = None
        self.note: str | None = None
        self._logs = logs = self._on_one_machine(read_log(a), read_log(b))
        self._called = names_of(logs[0]), names_of(logs[1])
        self._pairs = pair(*logs)
        self.settings = _settings(*logs)
        self.inputs = input_changes(*logs, self._pairs, self._called[0])
        self._difference = first_difference(*logs, self._pairs)
        known = set(self._pairs), set(self._pairs.values())
        self._alone = [
            sorted(names.keys() - paired) for names, paired in zip(self._called, known, strict=True)
        ]
        step = self.step
        a_view, b_view = _views(*logs, step)
        super().__init__(a=a_view, b=b_view, facts=self._facts())

    def _on_one_machine(self, a: EventLog, b: EventLog) -> tuple[EventLog, EventLog]:
        """Time a log and its `what_if` by the same model, and note the model's error."""
        if found := fitted(b, a):
            log, replay, name = a, b, self.names[0]
        elif found := fitted(a, b):
            log, replay, name = b, a, self.names[1]
        else:
            return a, b
        timed = retime(log, replay)
        self.model_error = model_error(log, timed)
        labels = {"ttft_ms": "TTFT", "itl_ms": "ITL"}
        errors = [f"{ms:.3g} ms in {labels[key]}" for key, ms in self.model_error.items()]
        error = f"The model's own error on {name}: {' and '.join(errors) or 'unknown'}, on average."
        if found["pinned"] == "time":
            self.note = (
                f"{name} has measured times, and the other run those of a cost model: differences in "
                f'time include its error. {error} Compare with what_if(log, pinned="time") instead.'
            )
            return a, b
        self.note = f"Both runs have the times of the cost model that was fitted to {name}. {error}"
        return (timed, b) if log is a else (a, timed)

    @property
    def step(self) -> int | None:
        """The step of the first decision that differs."""
        return self._difference.step if self._difference else None

    @property
    def unmatched(self) -> tuple[list[str], list[str]]:
        """Requests of A that B does not have, and those of B that A does not."""
        a, b = (
            [names[id_] for id_ in alone]
            for names, alone in zip(self._called, self._alone, strict=True)
        )
        return a, b

    @property
    def first_difference(self) -> str | None:
        """The first decision that differs, with both reasons."""
        if self._difference is None:
            return None
        one, two = self.names
        a, b = (
            plain(words, names)
            for words, names in zip(
                (self._difference.a, self._difference.b), self._called, strict=True
            )
        )
        return f"Step {self._difference.step}: in {one} {a}; in {two} {b}."

    @property
    def verdict(self) -> str:
        """What there is to say in one sentence."""
        if self._difference:
            return str(self.first_difference)
        a, b = self._logs
        if a.deterministic() == b.deterministic():
            return "No difference: the two runs are the same, event by event."
        return "No decision differs: every request is served in the same steps."

    @cached_property
    def _frames(self) -> "list[pd.DataFrame]":
        return [log.requests for log in self._logs]

    @property
    def requests(self) -> "pd.DataFrame":
        """A row per paired request, indexed by its id in A; `id_b` is its id in B.

        Each measure of `log.requests` three times: `ttft_ms_a`, `ttft_ms_b` and `ttft_ms_change`
        (B less A). Times are in ms.
        """
        import pandas as pd

        frames = self._frames
        # A sample that never forked off has a number, and no row.
        known = [
            (one, two)
            for one, two in self._pairs.items()
            if one in frames[0].index and two in frames[1].index
        ]
        others = [two for _, two in known]
        a = frames[0].loc[[one for one, _ in known]]
        b = frames[1].loc[others].set_axis(a.index)
        names = [self._called[0][one] for one, _ in known]
        table = pd.DataFrame({"name": names, "id_b": others}, index=a.index)
        for name in MEASURES:
            table[f"{name}_a"], table[f"{name}_b"] = a[name], b[name]
            table[f"{name}_change"] = b[name] - a[name]
        return table

    @property
    def totals(self) -> "pd.DataFrame":
        """Both runs as wholes: columns `a`, `b` and `change`, a row per measure."""
        import pandas as pd

        a, b = (_totals(log, frame) for log, frame in zip(self._logs, self._frames, strict=True))
        table = pd.DataFrame({"a": a, "b": b})
        return table.assign(change=table["b"] - table["a"])

    def to_html(self, path: str | Path | None = None, *, theme: str | None = None) -> str:
        """The comparison as one page that works from disk; written to `path`, if one is given."""
        other = base64.b64encode(self.b.packed).decode()
        text = page_of(
            self.a.packed,
            {"compare": {"b": other, "facts": self.facts}},
            theme=theme,
            title=f"Underglass: {self.names[0]} and {self.names[1]}",
        )
        if path is not None:
            Path(path).write_text(text, "utf-8")
        return text

    def _facts(self) -> dict[str, Any]:
        """What the page shows in words and numbers."""
        told = self._difference
        table = self.requests.drop(columns="name")
        paired = len(table)
        largest = table["ttft_ms_change"].abs().fillna(0) + table["itl_ms_change"].abs().fillna(0)
        table = table.loc[largest.sort_values(ascending=False, kind="stable").index[:MOST_ROWS]]
        rows = json.loads(table.astype(object).reset_index().to_json(orient="values"))
        return {
            "names": list(self.names),
            "axis": self.axis,
            "settings": [
                [name, _shown(one), _shown(two)] for name, (one, two) in self.settings.items()
            ],
            "inputs": self.inputs,
            "note": self.note,
            "verdict": self.verdict,
            "difference": told
            and {
                "step": told.step,
                "a": told.a,
                "b": told.b,
                "requests": list(told.requests),
            },
            "rows": rows,
            "totals": json.loads(self.totals.astype(object).reset_index().to_json(orient="values")),
            "paired": paired,
            "renumbered": [list(both) for both in self._pairs.items() if both[0] != both[1]],
            "unmatched": self._alone,
        }

    def __repr__(self) -> str:
        runs = ", ".join(
            f"{name}: {count(view.requests, 'request')} in {count(len(view.steps.ends), 'step')}"
            for name, view in zip(self.names, (self.a, self.b), strict=True)
        )
        where = f"first difference in step {self.step}" if self._difference else "no difference"
        return f"Comparison({runs}; {where})"


def compare(
    a: LogLike, b: LogLike, names: tuple[str, str] = ("A", "B"), *, axis: str = "steps"
) -> Comparison:
    """Two logs beside each other: EventLogs, paths to `.jsonl` files, or scenarios' names.

    `axis` is what both timelines and their one cursor begin with: "steps", or "time" for wall time.
    """
    return Comparison(a, b, names, axis=axis)


def _views(a: EventLog, b: EventLog, step: int | None) -> tuple[LogModel, LogModel]:
    """A view of each. Together they save no more than one log does: the longer takes what is left."""

    def view(log: EventLog, room: int) -> LogModel:
        return LogModel(log, None if step is None else _at(log, step), room=room)

    if len(a) > len(b):
        return _views(b, a, step)[::-1]
    shorter = view(a, SAVED_BYTES // 2)
    return shorter, view(b, SAVED_BYTES - len(base64.b64decode(shorter.log)))


def _at(log: EventLog, step: int) -> int | None:
    steps = [event.step for event in log if isinstance(event, v.StepStarted)]
    return min(max(step, steps[0]), steps[-1]) if steps else None


def _settings(a: EventLog, b: EventLog) -> dict[str, tuple[Any, Any]]:
    """Settings and classes that differ; None where a run does not say."""
    one, two = _told(a), _told(b)
    names = [*one, *(name for name in two if name not in one)]
    changed = {name: (one.get(name), two.get(name)) for name in names}
    return {name: both for name, both in changed.items() if both[0] != both[1]}


def _told(log: EventLog) -> dict[str, Any]:
    first = log[0]
    if isinstance(first, v.Keyframe):
        return dict(first.state["settings"])
    assert isinstance(first, v.RunStarted)
    model = first.model.get("name")
    return {**first.settings, **first.classes, **({"model": model} if model else {})}


def _shown(value: Any) -> str:
    return {None: "none", True: "on", False: "off"}.get(value) or str(value)


def _totals(log: EventLog, frame: "pd.DataFrame") -> dict[str, float | None]:
    finished = [event for event in log if isinstance(event, v.StepFinished) and event.t]
    seconds = (finished[-1].t["end"] - finished[0].t["start"]) / US_PER_S if finished else 0.0
    output = int(frame["output_tokens"].sum())
    return {
        "mean TTFT, ms": float(frame["ttft_ms"].mean()),
        "mean ITL, ms": float(frame["itl_ms"].mean()),
        "throughput, tokens/s": output / seconds if seconds else None,
        "time, ms": seconds * 1000 if seconds else None,
        "steps": sum(isinstance(event, v.StepStarted) for event in log),
        "preemptions": sum(isinstance(event, v.Preempted) for event in log),
        "tokens found in the cache": _found(log),
        "output tokens": output,
    }


def _found(log: EventLog) -> int:
    size = int(_told(log)["block_size"])
    return size * sum(len(event.blocks) for event in log if isinstance(event, v.Admitted))
