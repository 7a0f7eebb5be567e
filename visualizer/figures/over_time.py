"""Measures of a run along its time: tokens a second, and the queue."""

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from visualizer.durations import duration
from visualizer.figures.logs import (
    AXES,
    Logs,
    drawable,
    edges,
    groups,
    named,
    shared_points,
    steps_a_point,
)
from visualizer.figures.theme import figure, look_of, nothing, short, swatch, text
from visualizer.summary import number

WINDOWS = 50  # about so many over the longest run
STEPS_A_WINDOW = 5  # at least, or windows without a step's end would look like pauses
NO_STEP = "No step with a time in this log: let the engine step, then draw again."


def throughput(logs: Logs, *, theme: str | None = None) -> go.Figure:
    """Output tokens a second over time, all requests together, counted in equal windows.

    A step's tokens count when it ends. The windows are as long as five steps at least.
    """
    look = look_of(theme)
    ran = drawable(named(logs), "time")
    if not ran:
        return nothing(look, "No throughput to show yet", NO_STEP)
    gained = {name: steps.sampled_tokens + steps.forced_tokens for name, steps in ran.items()}
    first = min(steps.start_ms.min() for steps in ran.values())
    spans = {name: _end(steps) - steps.start_ms.min() for name, steps in ran.items()}
    longest = max(_end(steps) for steps in ran.values()) - first
    median = max(steps.duration_ms.median() for steps in ran.values())
    window = _round_up(max(longest / WINDOWS, STEPS_A_WINDOW * median, 0.001))
    means = {
        name: 1000 * int(tokens.sum()) / spans[name] if spans[name] else math.nan
        for name, tokens in gained.items()
    }
    lines = []
    for place, (name, tokens) in enumerate(gained.items()):
        told = f"{tokens.sum():,} tokens in {duration(spans[name])}"
        words = f"{short(name)}: " * bool(name) + f"{told}: {number(means[name])}/s"
        lines.append((swatch(look.hue(place)), words))
    drawn = figure(look, _title(means), lines)
    seconds = longest > 10_000
    for place, (name, steps) in enumerate(ran.items()):
        # What is left of a window at the end is counted with the one before it: a token in the last
        # millisecond would be a peak of a thousand a second.
        starts = np.arange(first, max(_end(steps) - window / 2, first + window / 2), window)
        ends = np.append(starts[1:], max(_end(steps), starts[-1] + window / 1000))
        done = steps.start_ms + steps.duration_ms
        counts, _ = np.histogram(done, bins=[*starts, ends[-1]], weights=gained[name])
        rates = 1000 * counts / (ends - starts)
        drawn.add_scatter(
            x=np.append(starts, ends[-1]) / (1000 if seconds else 1),
            y=np.append(rates, rates[-1]),
            name=text(name),
            mode="lines",
            line={"color": look.hue(place), "width": 2, "shape": "hv"},
            hovertemplate=(f"{text(name)}<br>" if name else "")
            + "%{y:,.4~g} tokens/s from %{x:,.4~g} "
            + f"{'s' if seconds else 'ms'} on<extra></extra>",
        )
    unit = "s" if seconds else "ms"
    drawn.update_xaxes(title_text=f"time since the run started ({unit})")
    drawn.update_yaxes(title_text=f"output tokens/s, in windows of {duration(window)}")
    return drawn


def queue(logs: Logs, *, x: str = "step", theme: str | None = None) -> go.Figure:
    """How many requests wait, over steps or time; of a log alone also how many run.

    Of a long run a point is the largest of neighbouring steps.
    """
    look = look_of(theme)
    frames = drawable(named(logs), x)
    if not frames:
        return nothing(look, "No queue to show yet", NO_STEP)
    alone, size = len(frames) == 1, steps_a_point(frames)
    lines, shown = [], []
    for place, (name, steps) in enumerate(frames.items()):
        group = groups(steps, size)
        at = edges(steps, x, group)
        columns = {"waiting": look.hue(place)} | ({"running": look.neutral} if alone else {})
        for column, colour in columns.items():
            most = steps[column].max()
            lines.append(
                (swatch(colour), f"{short(name)}: " * bool(name) + f"{column}, at most {most:,}")
            )
            shown.append((name, column, at, steps[column].groupby(group).max().tolist(), colour))
    worst = max(frames, key=lambda name: frames[name].waiting.max())
    most, where = frames[worst].waiting.max(), frames[worst].waiting.idxmax()
    title = f"The queue is longest in step {where:,}: {most:,} wait" if most else "Nobody waits"
    keys = shared_points(size, "largest")
    drawn = figure(look, title + f" in {short(worst)}" * bool(worst and most), lines, keys)
    for name, column, at, values, colour in shown:
        drawn.add_scatter(
            x=at,
            y=[*values, values[-1]],
            name=f"{text(name)} {column}".strip(),
            mode="lines",
            line={"color": colour, "width": 2, "shape": "hv"},
            hovertemplate=(f"{text(name)}<br>" if name else "")
            + f"{column}: %{{y:,}}<br>"
            + ("step %{x:,}" if x == "step" else "%{x:,.4~g} ms")
            + "<extra></extra>",
        )
    drawn.update_xaxes(title_text=AXES[x], tickformat=",")
    drawn.update_yaxes(title_text="requests")
    return drawn


def _title(means: dict[str, float]) -> str:
    if len(means) == 1:
        (mean,) = means.values()
        return f"Throughput: {number(mean)} output tokens/s on average"
    most, least = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    ratio = means[most] / means[least] if means[least] else math.inf
    if not ratio > 1.005:
        return f"Throughput: {number(means[most])} output tokens/s in each"
    times = "" if math.isinf(ratio) else f", {number(ratio)} times {short(least)}'s"
    return f"Throughput: {short(most)} makes {number(means[most])} tokens/s{times}"


def _end(steps: pd.DataFrame) -> float:
    return float((steps.start_ms + steps.duration_ms).max())


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, ... ms."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= value * 0.999)
