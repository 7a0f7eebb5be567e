"""Output tokens per second over the course of a run."""

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from visualizer import read
from visualizer.figures.theme import (
    empty_figure,
    escaped,
    new_figure,
    palette_of,
    says_parts,
    short_name,
)
from visualizer.logs import Logs, logs_by_name
from visualizer.reading.durations import duration
from visualizer.reading.summary import three_digits

WINDOWS = 50  # approximate number of windows in the longest run
MIN_STEPS_PER_WINDOW = 5  # with fewer, a window in which no step ends would look like a pause


@says_parts
def throughput(logs: Logs, *, theme: str | None = None) -> go.Figure:
    """Draw the total output tokens per second of all requests, counted in equal time windows.

    A step's tokens are counted when the step ends. A window spans at least five median steps.
    """
    palette = palette_of(theme)
    frames = {
        name: read(log).steps.dropna(subset="start_ms") for name, log in logs_by_name(logs).items()
    }
    frames = {name: steps for name, steps in frames.items() if len(steps)}
    if not frames:
        return empty_figure(palette, "No throughput to show yet")
    outputs = {name: steps.sampled_tokens + steps.forced_tokens for name, steps in frames.items()}
    first = min(steps.start_ms.min() for steps in frames.values())
    lengths = {name: _end(steps) - steps.start_ms.min() for name, steps in frames.items()}
    longest = max(_end(steps) for steps in frames.values()) - first
    step = max(steps.duration_ms.median() for steps in frames.values())
    window = _round_up(max(longest / WINDOWS, MIN_STEPS_PER_WINDOW * step, 0.001))
    means = {
        name: 1000 * int(tokens.sum()) / lengths[name] if lengths[name] else math.nan
        for name, tokens in outputs.items()
    }
    curves = {
        name: f"{tokens.sum():,} tokens in {duration(lengths[name])}: {three_digits(means[name])}/s"
        for name, tokens in outputs.items()
    }
    drawn = new_figure(palette, _title(means), curves)
    unit, unit_ms = ("s", 1000) if longest > 10_000 else ("ms", 1)
    for index, (name, steps) in enumerate(frames.items()):
        edges, rates = _rates(steps, outputs[name], first, window)
        drawn.add_scatter(
            x=edges / unit_ms,
            y=np.append(rates, rates[-1]),
            name=escaped(name),
            mode="lines",
            line={"color": palette.hue(index), "width": 2, "shape": "hv"},
            hovertemplate=(f"{escaped(name)}<br>" if name else "")
            + f"%{{y:,.4~g}} tokens/s from %{{x:,.4~g}} {unit} on<extra></extra>",
        )
    drawn.update_xaxes(title_text=f"time since the run started ({unit})")
    drawn.update_yaxes(title_text=f"output tokens/s, in windows of {duration(window)}")
    return drawn


def _rates(
    steps: pd.DataFrame, tokens: pd.Series, first: float, window: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of the windows in ms, and the tokens per second in each window.

    A short remainder at the end is merged into the last window. Otherwise, one token in a final
    millisecond would look like a thousand tokens per second.
    """
    end = _end(steps)
    starts = np.arange(first, max(end - window / 2, first + window / 2), window)
    edges = np.append(starts, max(end, starts[-1] + window / 1000))
    counts, _ = np.histogram(steps.start_ms + steps.duration_ms, bins=edges, weights=tokens)
    return edges, 1000 * counts / np.diff(edges)


def _title(means: dict[str, float]) -> str:
    if len(means) == 1:
        (mean,) = means.values()
        return f"Throughput: {three_digits(mean)} output tokens/s on average"
    most, least = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    ratio = means[most] / means[least] if means[least] else math.inf
    if not ratio > 1.005:
        return f"Throughput: {three_digits(means[most])} output tokens/s in each"
    times = "" if math.isinf(ratio) else f", {three_digits(ratio)} times {short_name(least)}'s"
    return f"Throughput: {short_name(most)} makes {three_digits(means[most])} tokens/s{times}"


def _end(steps: pd.DataFrame) -> float:
    return float((steps.start_ms + steps.duration_ms).max())


def _round_up(ms: float) -> float:
    """Round up to 1, 2, 5, 10, 20, ... ms."""
    power = 10.0 ** math.floor(math.log10(ms))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= ms * 0.999)
