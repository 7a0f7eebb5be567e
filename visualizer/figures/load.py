"""Latency against load: what happens to waiting times as more requests come."""

import math
from collections.abc import Mapping

import pandas as pd
import plotly.graph_objects as go

from engine.events import EventLog
from visualizer.durations import duration
from visualizer.figures.logs import named
from visualizer.figures.theme import figure, look_of, nothing, short, swatch, text
from visualizer.logs import LogLike
from visualizer.summary import ENOUGH, number

Runs = Mapping[float, LogLike]
MEASURES = {"ttft": "TTFT", "itl": "ITL", "e2e": "time to the last token"}


def latency_vs_load(
    runs: Runs | Mapping[str, Runs], *, measure: str = "ttft", theme: str | None = None
) -> go.Figure:
    """The median and 95th percentile of a latency against requests per second.

    runs     {requests per second: the log of that run}, or several such, by name
    measure  "ttft", "itl" (over all tokens) or "e2e" (arrival to last token)
    """
    look = look_of(theme)
    if measure not in MEASURES:
        raise ValueError(f'measure must be "ttft", "itl" or "e2e", got {measure!r}')
    is_one = not isinstance(runs, Mapping) or all(isinstance(load, int | float) for load in runs)
    named_runs = {"": runs} if is_one else runs
    sweeps = {str(name): _sweep(sweep, measure) for name, sweep in named_runs.items()}
    sweeps = {name: frame for name, frame in sweeps.items() if len(frame)}
    if not sweeps:
        advice = "No run has a token with a time: give {requests per second: log}."
        return nothing(look, "No latency to show yet", advice)
    measured = MEASURES[measure]
    lines = [(swatch(look.hue(place)), short(name)) for place, name in enumerate(sweeps) if name]
    keys = [(swatch(look.muted, "●"), "median of a run")]
    if any(frame.p95.notna().any() for frame in sweeps.values()):
        keys.append((swatch(look.muted, "○"), "its 95th percentile"))
    drawn = figure(look, _title(measured, sweeps), lines, keys)
    for place, (name, frame) in enumerate(sweeps.items()):
        for column, dash, symbol in (("median", "solid", "circle"), ("p95", "dot", "circle-open")):
            drawn.add_scatter(
                x=frame.index,
                y=frame[column],
                name=f"{text(name)} {column}".strip(),
                mode="lines+markers",
                line={"color": look.hue(place), "width": 2, "dash": dash},
                marker={"color": look.hue(place), "symbol": symbol, "size": 9},
                customdata=frame["count"],
                hovertemplate=(f"{text(name)}<br>" if name else "")
                + f"{column} {measured} %{{y:,.4~g}} ms<br>at %{{x:,.4~g}} requests/s"
                + "<br>%{customdata:,} values<extra></extra>",
            )
    values = pd.concat([frame[["median", "p95"]].stack() for frame in sweeps.values()])
    wide = values.min() > 0 and values.max() > 20 * values.min()
    drawn.update_xaxes(title_text="load (requests/s)", rangemode="tozero")
    drawn.update_yaxes(
        title_text=f"{measured} (ms{', logarithmic' if wide else ''})",
        type="log" if wide else "linear",
        **({"dtick": "D2"} if wide else {}),
    )
    return drawn


def _sweep(runs: object, measure: str) -> pd.DataFrame:
    """Load -> count, median and p95 of a run's values; p95 only where it says something."""
    if not isinstance(runs, Mapping):
        raise TypeError("runs: give {requests per second: log}, or {name: {requests/s: log}}")
    rows = {}
    for load in sorted(runs):
        (log,) = named(runs[load]).values()
        values = _values(log, measure).dropna()
        if len(values):
            p95 = values.quantile(0.95) if len(values) >= ENOUGH["p95"] else math.nan
            rows[float(load)] = {"count": len(values), "median": values.median(), "p95": p95}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["count", "median", "p95"])


def _values(log: EventLog, measure: str) -> pd.Series:
    return log.tokens.gap_ms if measure == "itl" else log.requests[f"{measure}_ms"]


def _title(measured: str, sweeps: dict[str, pd.DataFrame]) -> str:
    """How much the median grows from the smallest load to the largest."""
    if len(sweeps) == 1:
        (frame,) = sweeps.values()
        ends = frame.iloc[[0, -1]] if len(frame) > 1 else frame
        at = (f"{duration(row['median'])} at {number(load)}/s" for load, row in ends.iterrows())
        return f"Median {measured}: {', '.join(at)}"
    ends = (
        f"{duration(frame['median'].iloc[-1])} in {short(name)}" for name, frame in sweeps.items()
    )
    return f"Median {measured} at the largest load: {', '.join(ends)}"
