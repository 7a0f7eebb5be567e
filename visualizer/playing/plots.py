"""Two runs as four small figures on common axes: the run before dashed, this one solid.

Each is plotly's JSON for the notebook to draw, because a figure widget would carry all of plotly.js.
Colours of text and grid are left to the page's style sheet, which knows the theme.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd

from engine.events import EventLog

MIME = "application/vnd.plotly.v1+json"
NOW, BEFORE = "#4f63e8", "#8a8f99"  # at least 3:1 on white and on the dark ground
WINDOWS = 30  # of the longer run, over which throughput is averaged


class Curve(NamedTuple):
    """Points of a line, and its shape: straight, or a step at each point."""

    x: list[float]
    y: list[float]
    shape: str = "linear"


def plots(now: EventLog, before: EventLog | None) -> list[dict[str, Any]]:
    """Mime bundles of the four figures."""
    width = max(_length_ms(log) for log in (now, before) if log is not None) / WINDOWS
    ours = list(_curves(now, width))
    theirs = [None] * len(ours) if before is None else list(_curves(before, width))
    return [
        _figure(title, unit, curve, past)
        for (title, unit), curve, past in zip(_TITLES, ours, theirs, strict=True)
    ]


_TITLES = (
    ("TTFT: requests that have waited no longer", "ms"),
    ("ITL: tokens that took no longer", "ms"),
    ("Throughput, tokens/s", "s"),
    ("Memory in use, blocks", "s"),
)


def _curves(log: EventLog, width: float) -> Iterator[Curve]:
    """The four lines of a run; throughput is averaged over windows of `width` ms."""
    requests, steps, tokens = log.requests, log.steps, log.tokens
    yield _share(requests.ttft_ms)
    yield _share(tokens.gap_ms)
    start = float(steps.start_ms.iloc[0])
    counts = ((tokens.time_ms - start) // width).value_counts()
    windows = range(int(counts.index.max()) + 1)
    yield Curve(
        [(window + 0.5) * width / 1000 for window in windows],
        [float(counts.get(window, 0)) / width * 1000 for window in windows],
    )
    seconds = ((steps.start_ms - start) / 1000).tolist()
    yield Curve(seconds, steps.used_blocks.astype(float).tolist(), "hv")


def _length_ms(log: EventLog) -> float:
    steps = log.steps
    last = steps.iloc[-1]
    return float(last.start_ms + last.duration_ms - steps.start_ms.iloc[0])


def _share(values: "pd.Series[float]") -> Curve:
    """For each value the percentage that is not larger."""
    ordered = sorted(values.dropna())
    return Curve(
        [0.0, *ordered], [100 * (place) / len(ordered) for place in range(len(ordered) + 1)], "hv"
    )


def _figure(title: str, unit: str, now: Curve, before: Curve | None) -> dict[str, Any]:
    lines = [] if before is None else [_line(before, BEFORE, "dash", "the run before")]
    lines.append(_line(now, NOW, "solid", "this run"))
    percent = "%" if "no longer" in title else ""
    axis = {"rangemode": "tozero", "zeroline": False, "fixedrange": True, "nticks": 5}
    layout = {
        "title": {"text": title, "font": {"size": 12}, "x": 0, "xref": "paper", "y": 0.97},
        "margin": {"l": 44, "r": 10, "t": 30, "b": 26},
        "height": 190,
        "showlegend": False,
        "hovermode": "x unified",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 11, "family": "Arial, Liberation Sans, sans-serif"},
        "xaxis": axis | {"ticksuffix": f" {unit}", "showgrid": False},
        "yaxis": axis | {"ticksuffix": percent},
    }
    figure = {
        "data": lines,
        "layout": layout,
        "config": {"displayModeBar": False, "responsive": True},
    }
    words = f"{title}: {len(now.x)} points"
    return {MIME: figure, "text/plain": words}


def _line(curve: Curve, colour: str, dash: str, name: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": curve.x,
        "y": curve.y,
        "name": name,
        "line": {"color": colour, "dash": dash, "width": 2, "shape": curve.shape},
    }
