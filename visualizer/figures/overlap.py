"""Timelines of the CPU and the device: do they work at the same time, or does one wait?

The CPU schedules a step, and the device computes its forward pass. Without asynchronous scheduling the
two take turns. With it, the CPU schedules a step while the device computes the previous one.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from visualizer.figures.theme import (
    NO_STEP,
    Palette,
    empty_figure,
    escaped,
    new_figure,
    palette_of,
    says_parts,
    short_name,
    swatch,
)
from visualizer.logs import Logs, logs_by_name
from visualizer.reading.durations import duration

MAX_STEPS = 400  # steps of a log to draw; more bars would not be visible on a screen
MAX_NUMBERED = 24  # with more steps, their numbers would not fit into the bars
RED = {"light": 7, "dark": 7, None: 4}  # index of the hue in each theme
ROWS_PER_LOG = 3.4  # one row each for the name, the CPU and the device, and a gap
BAR = 0.8  # height of a bar, as a fraction of a row
US_PER_MS = 1000


class StepTimes(NamedTuple):
    """When the CPU and the device worked on a step, in ms since the run started.

    scheduled  start and end of the scheduling
    computed   start and end of the forward pass, or None if the step had no rows
    rows       number of rows that the pass computed
    admitted   requests that the step admitted
    wasted     requests whose row was computed in vain
    """

    step: int
    scheduled: tuple[float, float]
    computed: tuple[float, float] | None
    rows: int
    admitted: list[int]
    wasted: list[int]


@says_parts
def overlap(logs: Logs, *, select: int | None = None, theme: str | None = None) -> go.Figure:
    """Draw when the CPU scheduled each step, and when the device computed it.

    select  the id of a request; the step that admitted it is marked

    Without asynchronous scheduling, a forward pass is drawn until its tokens are appended. Only the
    first 400 steps of a long run are drawn and counted in the title.
    """
    palette = palette_of(theme)
    red = palette.hue(RED[theme])
    by_name = logs_by_name(logs)
    runs = {name: list(_step_times(log))[:MAX_STEPS] for name, log in by_name.items()}
    runs = {name: run for name, run in runs.items() if any(step.computed for step in run)}
    if not runs:
        return empty_figure(palette, "No forward pass to show yet", NO_STEP)
    drawn = new_figure(palette, _title(runs), keys=_keys(by_name, runs, select, palette, red))
    ticks: dict[float, str] = {}
    for index, (name, run) in enumerate(runs.items()):
        top = -index * ROWS_PER_LOG
        ticks |= {top - 1: "CPU", top - 2: "device"}
        drawn.add_annotation(
            text=f"<b>{escaped(name)}</b> {_describe(run)}".strip(), x=0, xref="paper",
            xanchor="left", y=top, yanchor="middle", showarrow=False, align="left",
        )  # fmt: skip
        _add_bars(drawn, run, top, select, palette)
        _add_wasted(drawn, run, top - 2, by_name[name], red)
    bottom = -len(runs) * ROWS_PER_LOG
    drawn.update_layout(
        height=drawn.layout.margin.t + 70 + round(len(runs) * ROWS_PER_LOG * 34),
        barmode="overlay",
        uniformtext={"mode": "hide", "minsize": 9},
    )
    drawn.update_xaxes(title_text="ms since the run started", rangemode="tozero")
    drawn.update_yaxes(
        title_text="processor", tickvals=list(ticks), ticktext=list(ticks.values()),
        range=[bottom + 0.2, 0.5], showgrid=False, ticks="",
    )  # fmt: skip
    return drawn


def _step_times(log: EventLog) -> Iterator[StepTimes]:
    """Yield the times of each finished step, in order. Steps without times are left out."""
    rows: dict[int, int] = {}
    admitted: dict[int, list[int]] = {}
    step, is_async = 0, False
    for event in log:
        match event:
            case v.RunStarted():
                is_async = bool(event.settings.get("async_scheduling"))
            case v.StepStarted():
                step = event.step
            case v.Admitted():
                admitted.setdefault(step, []).append(event.request)
            case v.StepScheduled():
                rows[step] = len(event.rows)
            case v.StepFinished() if "start" in event.t:
                which, t = event.step, event.t
                began, ended = ("launched", "ready") if is_async else ("scheduled", "end")
                count = rows.pop(which, 0)
                computed = _ms(t, began, ended) if count and began in t else None
                scheduled = _ms(t, "start", "scheduled")
                new = admitted.pop(which, [])
                yield StepTimes(which, scheduled, computed, count, new, event.wasted)


def _ms(t: dict[str, Any], began: str, ended: str) -> tuple[float, float]:
    return t[began] / US_PER_MS, t[ended] / US_PER_MS


def _passes(run: list[StepTimes]) -> list[tuple[float, float]]:
    return [step.computed for step in run if step.computed is not None]


def _lasted(run: list[StepTimes]) -> float:
    return max(end for _, end in _passes(run)) - run[0].scheduled[0]


def _busy(run: list[StepTimes]) -> float:
    """Return the share of the time in which the device computed."""
    return sum(end - start for start, end in _passes(run)) / _lasted(run)


def _title(runs: dict[str, list[StepTimes]]) -> str:
    *rest, last = [f"{_busy(run):.0%}" for run in runs.values()]
    shares = f"{', '.join(rest)} and {last}" if rest else last
    return f"The device is busy {shares} of the time"


def _describe(run: list[StepTimes]) -> str:
    passes = len(_passes(run))
    times = f"{passes:,} forward pass{'' if passes == 1 else 'es'} in {duration(_lasted(run))}"
    return f"{times}, device busy {_busy(run):.0%}"


def _keys(
    by_name: dict[str, EventLog],
    runs: dict[str, list[StepTimes]],
    select: int | None,
    palette: Palette,
    red: str,
) -> list[tuple[str, str]]:
    steps = [step for run in runs.values() for step in run]
    keys = [(swatch(palette.neutral), "the CPU schedules a step")]
    keys.append((swatch(palette.hue(0)), "the device computes it"))
    if any(select in step.admitted for step in steps):
        log = next(log for name, log in by_name.items() if name in runs)
        keys.append((swatch(palette.hue(1)), f"the step that admits {_label(log, select)}"))
    if any(step.wasted for step in steps):
        keys.append((swatch(red, "✕"), "a wasted row"))
    if any(len(run) == MAX_STEPS for run in runs.values()):
        keys.append(("", f"the first {MAX_STEPS} steps"))
    return keys


def _label(log: EventLog, request: int | None) -> str:
    arrivals = (event for event in log.of(v.RequestArrived) if event.request == request)
    label = next((event.label for event in arrivals), "")
    return short_name(label) if label else f"r{request}"


def _add_bars(
    drawn: go.Figure, run: list[StepTimes], top: float, select: int | None, palette: Palette
) -> None:
    """Add a bar for each step in the CPU's row, and one in the device's row."""
    computed = [step for step in run if step.computed is not None]
    lanes = (
        ("schedules", top - 1, palette.neutral, run, [step.scheduled for step in run]),
        ("computes", top - 2, palette.hue(0), computed, _passes(run)),
    )
    for verb, y, colour, steps, spans in lanes:
        marked = [select is not None and select in step.admitted for step in steps]
        drawn.add_bar(
            orientation="h",
            base=[start for start, _ in spans],
            x=[end - start for start, end in spans],
            y=[y] * len(steps),
            width=BAR,
            name=verb,
            marker={
                "color": [palette.hue(1) if one else colour for one in marked],
                "line": {"width": 1, "color": palette.background},
            },
            text=[f"{step.step}" for step in steps] if len(run) <= MAX_NUMBERED else None,
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            customdata=[
                [step.step, step.rows, end] for step, (_, end) in zip(steps, spans, strict=True)
            ],
            hovertemplate=f"{verb} step %{{customdata[0]:,}} (%{{customdata[1]:,}} rows)<br>"
            "%{base:,.6~g} to %{customdata[2]:,.6~g} ms<extra></extra>",
        )


def _add_wasted(
    drawn: go.Figure, run: list[StepTimes], y: float, log: EventLog, colour: str
) -> None:
    """Mark the end of each forward pass that computed a row in vain."""
    wasted = [step for step in run if step.wasted and step.computed is not None]
    if not wasted:
        return
    names = [escaped(", ".join(_label(log, one) for one in step.wasted)) for step in wasted]
    drawn.add_scatter(
        x=[end for _, end in _passes(wasted)],
        y=[y - BAR / 2 - 0.15] * len(wasted),
        name="wasted",
        mode="markers",
        marker={"symbol": "x", "size": 8, "color": colour},
        customdata=[[step.step, name] for step, name in zip(wasted, names, strict=True)],
        hovertemplate="step %{customdata[0]:,}: a wasted row of %{customdata[1]}<extra></extra>",
    )
