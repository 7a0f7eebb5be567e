"""One step of a model on several devices: a lane for each, with what it computes, sends and awaits."""

from typing import Any

import plotly.graph_objects as go

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from visualizer.figures.theme import (
    NO_STEP,
    empty_figure,
    new_figure,
    palette_of,
    says_parts,
    swatch,
)
from visualizer.logs import Logs, logs_by_name
from visualizer.reading.durations import duration

US_PER_MS = 1000
BAR = 0.72  # height of a lane, as a fraction of its row
# Kind of a span in the log -> how it is drawn. `engine/parallel/links.py` explains the kinds.
_DRAWN = {
    "compute": "computes",
    "wait": "waits for another device",
    "sent": "waits for another device",
    "send": "sends or receives",
    "recv": "sends or receives",
    "all_reduce": "sends or receives",
    "gather": "sends or receives",
    "all_gather": "sends or receives",
    "all_to_all": "sends or receives",
}


@says_parts
def lanes(logs: Logs, *, step: int | None = None, theme: str | None = None) -> go.Figure:
    """Draw what each device did in one step of a single log.

    step  its number; None: the last step that has lanes

    Only `Engine.load(..., parallel=...)` records lanes. Raises ValueError for several logs, and for a
    step without lanes.
    """
    palette = palette_of(theme)
    if len(by_name := logs_by_name(logs)) != 1:
        raise ValueError(f"lanes draws one step of one log, got {len(by_name)} logs")
    [log] = by_name.values()
    found = _step(log, step)
    if found is None:
        if step is not None:
            raise ValueError(f"step {step} has no lanes: its model ran on one device")
        return empty_figure(palette, "No step on several devices to show yet", NO_STEP)
    step, devices, tokens = found
    end = max(lane[-1][2] for lane in devices)
    spent = dict.fromkeys(_DRAWN.values(), 0)
    for lane in devices:
        for kind, start, until, _ in lane:
            spent[_DRAWN[kind]] += until - start
    shares = {kind: time / (end * len(devices)) for kind, time in spent.items()}
    colours = dict(zip(spent, (palette.hue(0), palette.rule, palette.hue(1)), strict=True))
    keys = [(swatch(colours[kind]), f"{kind} ({share:.0%})") for kind, share in shares.items()]
    computing = shares["computes"]
    drawn = new_figure(
        palette,
        f"Step {step:,}: {tokens:,} token{'' if tokens == 1 else 's'} in {duration(end / US_PER_MS)}; "
        f"the devices compute {computing:.0%} of the time",
        keys=keys,
    )
    for kind, colour in colours.items():
        spans = [
            (device, *span)
            for device, lane in enumerate(devices)
            for span in lane
            if _DRAWN[span[0]] == kind
        ]
        drawn.add_bar(
            orientation="h",
            base=[start / US_PER_MS for _, _, start, _, _ in spans],
            x=[(until - start) / US_PER_MS for _, _, start, until, _ in spans],
            y=[device for device, *_ in spans],
            width=BAR,
            name=kind,
            marker={"color": colour, "line": {"width": 0}},
            customdata=[
                [name, until / US_PER_MS, f", {size:,} bytes" if size else ""]
                for _, name, _, until, size in spans
            ],
            hovertemplate="%{customdata[0]}%{customdata[2]}<br>%{base:,.4~g} to "
            "%{customdata[1]:,.4~g} ms<extra>device %{y}</extra>",
        )
    drawn.update_layout(
        height=drawn.layout.margin.t + 70 + 44 * len(devices), barmode="overlay", bargap=0
    )
    drawn.update_xaxes(title_text="ms since the forward pass began", range=[0, end / US_PER_MS])
    drawn.update_yaxes(
        title_text="device", tickvals=[*range(len(devices))], range=[len(devices) - 0.4, -0.6],
        showgrid=False, ticks="",
    )  # fmt: skip
    return drawn


def _step(log: EventLog, step: int | None) -> tuple[int, list[list[Any]], int] | None:
    """Return a step's number, its lanes and how many tokens it computed."""
    tokens = dict[int, int]()
    current, found = 0, None
    for event in log:
        match event:
            case v.StepStarted():
                current = event.step
            case v.StepScheduled():
                tokens[current] = sum(row.count for row in event.rows)
            case v.StepFinished() if event.t.get("devices") and step in (None, event.step):
                found = event.step, event.t["devices"], tokens.get(event.step, 0)
    return found
