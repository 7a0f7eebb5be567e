"""The roofline: the highest speed that a machine allows, and the speeds that steps reach.

A step with few FLOPs per byte is limited by memory bandwidth, the sloping part of the roof. A step
with many FLOPs per byte is limited by compute, the flat part.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for
multicore architectures", CACM 52(4), 2009.
"""

import math
from collections.abc import Mapping

import plotly.graph_objects as go

from visualizer.figures.theme import empty_figure, escaped, new_figure, palette_of
from visualizer.reading.summary import three_digits

Points = Mapping[str, tuple[float, float, float]]
# Decades below the lowest dot, which leave room for its label, and decades above the roof.
LABEL_ROOM, ROOF_ROOM = 0.4, 0.15


def roofline(
    points: Points, *, flops_per_s: float, bytes_per_s: float, theme: str | None = None
) -> go.Figure:
    """Draw steps under a machine's roofline, on logarithmic axes.

    points       {name: (FLOPs, bytes, seconds) of a step}
    flops_per_s  peak compute: the flat part of the roof
    bytes_per_s  peak memory bandwidth: the sloping part
    """
    palette = palette_of(theme)
    if not points:
        return empty_figure(palette, "No steps to show", "Pass {name: (FLOPs, bytes, seconds)}.")
    ridge = flops_per_s / bytes_per_s
    curves = {
        name: f"{three_digits(flops / moved)} FLOPs/byte, {_rate(flops / seconds)}"
        for name, (flops, moved, seconds) in points.items()
    }
    title = f"The roof bends at {three_digits(ridge)} FLOPs/byte"
    drawn = new_figure(palette, title, curves, mark="●")
    intensities = [flops / moved for flops, moved, _ in points.values()]
    left, right = min([ridge, *intensities]) / 4, max([ridge, *intensities]) * 6
    drawn.add_scatter(
        x=[left, ridge, right],
        y=[left * bytes_per_s, flops_per_s, flops_per_s],
        name="roof",
        mode="lines",
        line={"color": palette.muted, "width": 3},
        hoverinfo="skip",
    )
    for index, (name, (flops, moved, seconds)) in enumerate(points.items()):
        drawn.add_scatter(
            x=[flops / moved],
            y=[flops / seconds],
            name=escaped(name),
            mode="markers+text",
            text=[escaped(name)],
            textposition="bottom right",
            marker={"color": palette.hue(index), "size": 13},
            hovertemplate=f"{escaped(name)}<br>%{{x:,.3~g}} FLOPs/byte<br>"
            f"{_rate(flops / seconds)}<extra></extra>",
        )
    drawn.update_xaxes(
        title_text="arithmetic intensity (FLOPs/byte, logarithmic)", type="log", dtick=1
    )
    reached = [flops / seconds for flops, _, seconds in points.values()]
    lowest, highest = min(left * bytes_per_s, *reached), max(flops_per_s, *reached)
    low, high = math.log10(lowest) - LABEL_ROOM, math.log10(highest) + ROOF_ROOM
    ticks = _ticks(low, high)
    drawn.update_yaxes(
        title_text="speed (FLOP/s, logarithmic)",
        type="log",
        range=[low, high],
        tickvals=ticks,
        ticktext=[_rate(tick).removesuffix("FLOP/s") for tick in ticks],
    )
    return drawn


def _ticks(low: float, high: float) -> list[float]:
    """Return powers of ten between two logarithms, and 2 and 5 times those if they are few."""
    decades = range(math.floor(low), math.ceil(high) + 1)
    factors = (1, 2, 5) if high - low < 2.5 else (1,)
    ticks = [factor * 10.0**decade for decade in decades for factor in factors]
    return [tick for tick in ticks if low <= math.log10(tick) <= high]


def _rate(flops_per_s: float) -> str:
    """Format a speed, for example "3.34 TFLOP/s"."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if flops_per_s >= size:
            return f"{flops_per_s / size:,.3g} {prefix}FLOP/s"
    return f"{flops_per_s:,.3g} FLOP/s"
