"""Compare two runs of the playground: in words, in a table of ten measures and in four figures.

The figures are plotly JSON, which the notebook draws. A FigureWidget would load its own copy of
plotly.js, although the notebook already has one.
"""

import html
import json
import math
from statistics import fmean, median
from typing import Any

from engine.core.log import EventLog
from visualizer import read
from visualizer.playing.rerun import Run
from visualizer.playing.settings import NAMES
from visualizer.reading.durations import duration
from visualizer.reading.messages import count

MIME = "application/vnd.plotly.v1+json"

UNITS = {
    "steps": "",
    "whole run": "s",
    "throughput": "tokens/s",
    "TTFT, median": "ms",
    "TTFT, worst": "ms",
    "ITL, mean": "ms",
    "ITL, worst": "ms",
    "from the cache": "tokens",
    "preemptions": "",
    "memory, peak": "blocks",
}


def numbers(log: EventLog) -> dict[str, float]:
    """Return a run's measures in the units of `UNITS`, with NaN for a measure without a value.

    TTFT is measured per request and ITL over all tokens.
    """
    steps = read(log).step_rows
    start, last, took = steps[0].start_ms, steps[-1].start_ms, steps[-1].duration_ms
    assert start is not None and last is not None and took is not None, (
        "a playground's log has times"
    )
    seconds = (last + took - start) / 1000
    ttft = [row.ttft_ms for row in read(log).request_rows if row.ttft_ms is not None] or [math.nan]
    gaps = [row.gap_ms for row in read(log).token_rows if row.gap_ms is not None] or [math.nan]
    measured = (
        len(steps),
        seconds,
        sum(row.sampled_tokens or 0 for row in steps) / seconds,
        median(ttft),
        max(ttft),
        fmean(gaps),
        max(gaps),
        sum(row.cached_tokens or 0 for row in steps),
        sum(row.preempted or 0 for row in steps),
        max(row.used_blocks or 0 for row in steps),
    )
    return {name: float(value) for name, value in zip(UNITS, measured, strict=True)}


def table(now: dict[str, float], before: dict[str, float] | None) -> str:
    """Return an HTML table with one row per run and one for the change."""
    head = "".join(
        f'<th scope="col">{html.escape(name)}{f" <small>{unit}</small>" if unit else ""}</th>'
        for name, unit in UNITS.items()
    )
    rows = _row("this run", [_three_digits(now[name]) for name in UNITS])
    if before is not None:
        rows = _row("the run before", [_three_digits(before[name]) for name in UNITS]) + rows
        rows += _row("change", [change(before[name], now[name]) for name in UNITS])
    return (
        f'<table class="underglass-numbers"><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def change(before: float, now: float) -> str:
    """Format the change in percent, as a factor if it is large, or as a number if it started at 0."""
    if math.isnan(before) or math.isnan(now) or before == now:
        return "\N{EN DASH}"
    sign = "+" if now > before else "\N{MINUS SIGN}"
    if before == 0:
        return sign + _three_digits(abs(now))
    if now >= 10 * before:
        return f"\N{MULTIPLICATION SIGN}{now / before:,.0f}"
    percent = abs(now - before) / before * 100
    return f"{sign}{percent:.0f} %" if percent >= 10 else f"{sign}{percent:.2g} %"


def _row(name: str, cells: list[str]) -> str:
    return f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _three_digits(value: float) -> str:
    if math.isnan(value):
        return "\N{EN DASH}"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.3g}"


def plots(now: EventLog, before: EventLog | None) -> list[dict[str, Any]]:
    """Return the figures' MIME bundles. This run comes first, so that its colour never changes."""
    from visualizer import figures

    logs = {"this run": now} if before is None else {"this run": now, "the run before": before}
    bundles = []
    for figure in (figures.ttft, figures.itl, figures.throughput, figures.memory):
        drawn = json.loads(figure(logs).to_json())
        drawn["config"] = {"displayModeBar": False, "responsive": True}
        bundles.append({MIME: drawn, "text/plain": figure.__name__})
    return bundles


def changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return the settings that differ, or an empty string."""
    arrow = "\N{RIGHTWARDS ARROW}"
    changed = [
        f"{NAMES.get(name, name)} {_value_text(before[name])} {arrow} {_value_text(new)}"
        for name, new in now.items()
        if before[name] != new
    ]
    return f"Changed: {', '.join(changed)}." if changed else ""


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def description(run: Run, now: dict[str, float]) -> str:
    """Return how many requests and steps a run had, and how long it took."""
    requests, seconds = (
        count(len(read(run.log).request_rows), "request"),
        duration(1000 * run.seconds),
    )
    text = f"{requests} in {now['steps']:.0f} steps; the run took {seconds}."
    if run.left_out:
        text += f" Another {run.left_out} were left out to keep the run short."
    return text
