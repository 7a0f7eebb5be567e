"""How long the wait is, as a distribution: time to first token, time between tokens.

The curve is the empirical distribution: at a time, the share of all values that are at most as long.
It hides nothing, needs no bins, and two curves can be compared point by point. Up to 200 values are
dots as well. A percentile is told only where there are enough values behind it: the 95th of ten
values would be their maximum by another name.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from engine.events import EventLog
from visualizer.durations import duration
from visualizer.figures.logs import POINTS, Logs, named
from visualizer.figures.theme import Look, figure, look_of, nothing, short, swatch, text
from visualizer.summary import ENOUGH, PERCENTILES

DOTS = 200
HOLLOW = "circle-open"


def ttft(logs: Logs, *, theme: str | None = None) -> go.Figure:
    """Time to first token of each request, from its arrival: the distribution, log by log."""

    def values(log: EventLog) -> tuple[pd.Series, list[str]]:
        frame = log.requests
        frame = frame[frame.ttft_ms.notna()].sort_values("ttft_ms")
        names = [f"r{id_} {label}".strip() for id_, label in frame.label.items()]
        return frame.ttft_ms, names

    return _distribution(logs, values, ("TTFT", "request", "first token"), look_of(theme))


def itl(logs: Logs, *, theme: str | None = None) -> go.Figure:
    """Time between consecutive tokens of a request: the distribution over all tokens, log by log.

    Tokens that one step brings together (accepted drafts) are 0 ms apart.
    """

    def values(log: EventLog) -> tuple[pd.Series, list[str]]:
        frame = log.tokens
        frame = frame[frame.gap_ms.notna()].sort_values("gap_ms")
        names = [
            f"r{request}, token {index + 1}"
            for request, index in zip(frame.request[:DOTS], frame["index"][:DOTS], strict=True)
        ]
        return frame.gap_ms, names

    return _distribution(logs, values, ("ITL", "gap", "next token"), look_of(theme))


def _distribution(
    logs: Logs,
    values_of: Callable[[EventLog], tuple[pd.Series, list[str]]],
    words: tuple[str, str, str],
    look: Look,
) -> go.Figure:
    measure, unit, awaited = words
    found = {name: values_of(log) for name, log in named(logs).items()}
    if not any(len(values) for values, _ in found.values()):
        return nothing(
            look,
            f"No {measure} to show yet",
            "No token with a time in this log: let the engine step, then draw again.",
        )
    lines = []
    for place, (name, (values, _)) in enumerate(found.items()):
        mark = swatch(look.hue(place))
        lines.append((mark, f"{short(name)}: " * bool(name) + _told(values, unit)))
    drawn = figure(look, _title(measure, unit, {n: v for n, (v, _) in found.items()}), lines)
    for place, (name, (values, points)) in enumerate(found.items()):
        if len(values):
            # Where curves lie on each other, the first show beside the last.
            width = 2 + min(4.5, 1.5 * (len(found) - 1 - place))
            _curve(drawn, name, (values, points), look.hue(place), width)
    everything = pd.concat([values for values, _ in found.values()])
    wide = everything.min() > 0 and everything.max() > 20 * everything.median()
    drawn.update_xaxes(
        type="log" if wide else "linear",
        title_text=f"ms to the {awaited}" + " (logarithmic)" * bool(wide),
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
    low_there, high_there = (
        f"{duration(low)} in {short(least)}",
        f"{duration(high)} in {short(most)}",
    )
    return f"{measure}: the median is {low_there}, {high_there}"


def _told(values: pd.Series, unit: str) -> str:
    count = f"{len(values):,} {unit}{'' if len(values) == 1 else 's'}"
    if values.empty:
        return count
    told = [
        f"{name} {duration(values.quantile(share))}"
        for name, share in PERCENTILES.items()
        if len(values) >= ENOUGH[name]
    ]
    return f"{count}; {', '.join(told)}, max {duration(values.max())}"


def _curve(
    drawn: go.Figure, name: str, found: tuple[pd.Series, list[str]], colour: str, width: float
) -> None:
    """The steps of the distribution, a dot for each value where they are few, and percentiles."""
    values, points = found
    prefix = f"{text(name)}<br>" if name else ""
    x, share = values.to_numpy(), np.arange(1, len(values) + 1) / len(values)
    if len(x) > POINTS:
        keep = np.unique(np.linspace(0, len(x) - 1, POINTS).round().astype(int))
        x, share = x[keep], share[keep]
    dots = len(values) <= DOTS
    drawn.add_scatter(
        x=[x[0], *x],
        y=[0, *share],
        name=text(name),
        mode="lines+markers" if dots else "lines",
        line={"color": colour, "width": width, "shape": "hv"},
        marker={"color": colour, "size": [0] + [6] * len(x)} if dots else {},
        customdata=["", *(f"{text(point)}<br>" for point in points)] if dots else None,
        hovertemplate=prefix
        + ("%{customdata}" if dots else "")
        + "%{y:.1%} take %{x:.4~g} ms or less<extra></extra>",
    )
    told = [(word, share) for word, share in PERCENTILES.items() if len(values) >= ENOUGH[word]]
    drawn.add_scatter(
        x=[values.quantile(share) for _, share in told],
        y=[share for _, share in told],
        name=f"{text(name)} percentiles".strip(),
        mode="markers",
        marker={"symbol": HOLLOW, "size": 13, "color": colour, "line": {"width": 2}},
        customdata=[word for word, _ in told],
        hovertemplate=prefix + "<b>%{customdata}</b> %{x:.4~g} ms<extra></extra>",
    )
