"""Compare two runs in a notebook.

from visualizer import compare
comparison = compare(log, what_if(log, token_budget=32))
comparison.first_difference     # "Step 3: in A r2 prefills tokens 1 to 40 of 40; in B it ..."
comparison.requests             # a pandas DataFrame with one row per request
"""

import base64
from typing import Any, overload

import ipywidgets
import traitlets

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from visualizer.comparing.compared_clusters import ComparedClusters
from visualizer.comparing.compared_runs import ComparedRuns
from visualizer.front_end import with_board
from visualizer.html import CLUSTER_MODULE
from visualizer.logs import ClusterLogLike, LogLike, read_any
from visualizer.packed import pack
from visualizer.widgets.log_model import SAVED_BYTES, LogModel
from visualizer.widgets.picture import PictureWidget


class Comparison(ComparedRuns, PictureWidget):
    """Two logs in one picture, with one current step. Python compares them; the browser draws them."""

    _esm = with_board("compare.js")
    kind = traitlets.Unicode("compare").tag(sync=True)
    a = traitlets.Instance(LogModel).tag(sync=True, **ipywidgets.widget_serialization)
    b = traitlets.Instance(LogModel).tag(sync=True, **ipywidgets.widget_serialization)
    facts = traitlets.Dict().tag(sync=True)

    def __init__(
        self, a: LogLike, b: LogLike, names: tuple[str, str] = ("A", "B"), **options: Any
    ) -> None:
        ComparedRuns.__init__(self, a, b, names, **options)
        model_a, model_b = _models(*self.logs, self.step)
        if self.difference is not None:  # the page opens with this selection
            model_a.selected, model_b.selected = self.difference.requests
        PictureWidget.__init__(self, a=model_a, b=model_b, facts=self.page_facts())


class ClusterComparison(ComparedClusters, PictureWidget):
    """Two cluster logs: their totals, and the requests that changed most.

    A button opens the board of either run.
    """

    _esm = CLUSTER_MODULE
    kind = traitlets.Unicode("compare").tag(sync=True)
    a = traitlets.Unicode().tag(sync=True)  # the packed log in base64
    b = traitlets.Unicode().tag(sync=True)
    names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    scenes = traitlets.List(traitlets.Dict()).tag(sync=True)  # of the tour

    def __init__(
        self, a: ClusterLogLike, b: ClusterLogLike, names: tuple[str, str] = ("A", "B")
    ) -> None:
        ComparedClusters.__init__(self, a, b, names)
        packed = [base64.b64encode(pack(log)).decode() for log in self.logs]
        PictureWidget.__init__(self, a=packed[0], b=packed[1], **self.page_options())


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
    return ClusterComparison(one, two, names)  # type: ignore[arg-type]  # it rejects other types


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
