"""Two runs in four figures, as plotly's JSON for the notebook to draw.

A figure widget would carry all of plotly.js; the notebook has it already.
"""

import json
from typing import Any

from engine.events import EventLog
from visualizer import figures

MIME = "application/vnd.plotly.v1+json"
SHOWN = (figures.ttft, figures.itl, figures.throughput, figures.memory)


def plots(now: EventLog, before: EventLog | None) -> list[dict[str, Any]]:
    """Mime bundles of the figures. This run comes first, so that its colour stays."""
    logs = {"this run": now} if before is None else {"this run": now, "the run before": before}
    bundles = []
    for figure in SHOWN:
        drawn = json.loads(figure(logs).to_json())
        drawn["config"] = {"displayModeBar": False, "responsive": True}
        bundles.append({MIME: drawn, "text/plain": figure.__name__})
    return bundles
