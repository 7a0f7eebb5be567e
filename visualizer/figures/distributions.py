"""Distributions of latencies: time to first token (TTFT) and inter-token latency (ITL).

The curve is the empirical cumulative distribution: for each time, the share of values that are no
longer. It needs no bins, and two curves can be compared point by point. If there are at most 200
values, each one is also drawn as a dot. A percentile is shown only if there are enough values,
because the 95th percentile of ten values would simply be their maximum.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from engine.core.log import EventLog
from visualizer import read
from visualizer.figures.theme import (
    MAX_POINTS,
    Palette,
    empty_figure,
    escaped,
    new_figure,
    palette_of,
    says_parts,
    short_name,
)
from visualizer.logs import Logs, logs_by_name
from visualizer.reading.durations import duration
from visualizer.reading.summary import PERCENTILES, percentiles, percentiles_text

MAX_DOTS = 200
HOLLOW = "circle-open"


@says_parts
def ttft(logs: Logs, *, theme: str | None = None) -> go.Figure:
    """Draw the distribution of the time to first token, measured from each request's arrival."""

    def values(log: EventLog) -> tuple[pd.Series, list[str]]:
        frame = read(log).requests
        frame = frame[frame.ttft_ms.notna()].sort_values("ttft_ms")
        names = [f"r{id_} {label}".strip() for id_, label in frame.label.items()]
        return frame.ttft_ms, names

    return _distribution(logs, values, ("TTFT", "request", "first token"), palette_of(theme))


@says_parts
def itl(logs: Logs, *, theme: str | None = None) -> go.Figure:
    """Draw the distribution of the times between consecutive tokens of a request.

    Tokens from the same step (accepted drafts) are 0 ms apart.
    """

    def values(log: EventLog) -> tuple[pd.Series, list[str]]:
        frame = read(log).tokens
        frame = frame[frame.gap_ms.notna()].sort_values("gap_ms")
        names = [
            f"r{request}, token {index + 1}"
            for request, index in zip(
                frame.request[:MAX_DOTS], frame["index"][:MAX_DOTS], strict=True
            )
        ]
        return frame.gap_ms, names

    return _distribution(logs, values, ("ITL", "gap", "next token"), palette_of(theme))


def _distribution(
    logs: Logs,
    values_of: Callable[[EventLog], tuple[pd.Series, list[str]]],
    words: tuple[str, str, str],
    palette: Palette,
) -> go.Figure:
    measure, unit, until = words
    found = {name: values_of(log) for name, log in logs_by_name(logs).items()}
    if not any(len(values) for values, _ in found.values()):
        return empty_figure(palette, f"No {measure} to show yet")
    by_name = {name: values for name, (values, _) in found.items()}
    curves = {name: _describe(values, unit) for name, values in by_name.items()}
    drawn = new_figure(palette, _title(measure, unit, by_name), curves)
    for index, (name, (values, points)) in enumerate(found.items()):
        if len(values):
            # Earlier curves are wider so that later ones do not hide them.
            width = 2 + min(4.5, 1.5 * (len(found) - 1 - index))
            _curve(drawn, name, (values, points), palette.hue(index), width)
    everything = pd.concat(by_name.values())
    wide = everything.min() > 0 and everything.max() > 20 * everything.median()
    drawn.update_xaxes(
        type="log" if wide else "linear",
        title_text=f"ms to the {until}" + " (logarithmic)" * bool(wide),
        **({"dtick": "D2"} if wide else {"rangemode": "tozero"}),
    )
    drawn.update_yaxes(
        title_text=f"share of {unit}s",
        tickvals=[0, 0.25, 0.5, 0.75, 0.95],
        ticktext=["0%", "25%", "50%", "75%", "95%"],
        range=[-0.02, 1.03],
    )
    return drawn


def _title(measure: str, unit: str, found: dict[str, pd.Series]) -> str:
    medians = {name: values.median() for name, values in found.items() if len(values)}
    if len(medians) == 1:
        (median,) = medians.values()
        verb = "wait" if unit == "request" else "are"
        return f"{measure}: half of the {unit}s {verb} {duration(median)} or less"
    least, most = min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__)
    low, high = medians[least], medians[most]
    if duration(low) == duration(high):
        return f"{measure}: the median is {duration(low)} in each"
    ends = f"{duration(low)} in {short_name(least)}, {duration(high)} in {short_name(most)}"
    return f"{measure}: the median is {ends}"


def _describe(values: pd.Series, unit: str) -> str:
    count = f"{len(values):,} {unit}{'' if len(values) == 1 else 's'}"
    return f"{count}; {percentiles_text(values.tolist())}" if len(values) else count


def _curve(
    drawn: go.Figure, name: str, found: tuple[pd.Series, list[str]], colour: str, width: float
) -> None:
    """Add the curve, the percentiles and, if there are few values, a dot for each value."""
    values, points = found
    prefix = f"{escaped(name)}<br>" if name else ""
    x, share = values.to_numpy(), np.arange(1, len(values) + 1) / len(values)
    if len(x) > MAX_POINTS:
        keep = np.unique(np.linspace(0, len(x) - 1, MAX_POINTS).round().astype(int))
        x, share = x[keep], share[keep]
    dots = len(values) <= MAX_DOTS
    drawn.add_scatter(
        x=[x[0], *x],
        y=[0, *share],
        name=escaped(name),
        mode="lines+markers" if dots else "lines",
        line={"color": colour, "width": width, "shape": "hv"},
        marker={"color": colour, "size": [0] + [6] * len(x)} if dots else {},
        customdata=["", *(f"{escaped(point)}<br>" for point in points)] if dots else None,
        hovertemplate=prefix
        + ("%{customdata}" if dots else "")
        + "%{y:.1%} take %{x:.4~g} ms or less<extra></extra>",
    )
    shown = percentiles(values.tolist())
    drawn.add_scatter(
        x=list(shown.values()),
        y=[PERCENTILES[name] for name in shown],
        name=f"{escaped(name)} percentiles".strip(),
        mode="markers",
        marker={"symbol": HOLLOW, "size": 13, "color": colour, "line": {"width": 2}},
        customdata=list(shown),
        hovertemplate=prefix + "<b>%{customdata}</b> %{x:.4~g} ms<extra></extra>",
    )
