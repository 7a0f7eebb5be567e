"""Four figures that compare two runs, as plotly JSON for the notebook to draw.

A FigureWidget would load its own copy of plotly.js, which the notebook already has.
"""

import json
from typing import Any

from engine.events import EventLog
from visualizer import figures

MIME = "application/vnd.plotly.v1+json"
FIGURES = (figures.ttft, figures.itl, figures.throughput, figures.memory)


def plots(now: EventLog, before: EventLog | None) -> list[dict[str, Any]]:
    """Return the figures' MIME bundles. This run comes first to keep its colour constant."""
    logs = {"this run": now} if before is None else {"this run": now, "the run before": before}
    bundles = []
    for figure in FIGURES:
        drawn = json.loads(figure(logs).to_json())
        drawn["config"] = {"displayModeBar": False, "responsive": True}
        bundles.append({MIME: drawn, "text/plain": figure.__name__})
    return bundles
