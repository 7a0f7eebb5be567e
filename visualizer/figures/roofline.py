"""The roofline: how fast a machine could compute, and how fast it does.

A step that does little with each byte it fetches waits for memory: the sloping roof. One that does much
waits for arithmetic: the level roof. Williams, Waterman and Patterson, "Roofline: an insightful visual
performance model for multicore architectures", CACM 52(4), 2009.
"""

import math
from collections.abc import Mapping

import plotly.graph_objects as go

from visualizer.figures.theme import figure, look_of, nothing, short, swatch, text
from visualizer.summary import number

Dots = Mapping[str, tuple[float, float, float]]


def roofline(
    dots: Dots, *, flops_per_s: float, bytes_per_s: float, theme: str | None = None
) -> go.Figure:
    """Steps under the two roofs of a machine, on logarithmic axes.

    dots         {name: (FLOPs, bytes, seconds) of a step}
    flops_per_s  the most that the machine computes: the level roof
    bytes_per_s  the most that it fetches: the sloping roof
    """
    look = look_of(theme)
    if not dots:
        return nothing(look, "No steps to show", "Give {name: (FLOPs, bytes, seconds)}.")
    ridge = flops_per_s / bytes_per_s
    lines = [
        (
            swatch(look.hue(place), "●"),
            f"{short(name)}: {number(flops / moved)} FLOPs/byte, {_rate(flops / seconds)}",
        )
        for place, (name, (flops, moved, seconds)) in enumerate(dots.items())
    ]
    drawn = figure(look, f"The roof bends at {number(ridge)} FLOPs/byte", lines)
    intensities = [flops / moved for flops, moved, _ in dots.values()]
    left, right = min([ridge, *intensities]) / 4, max([ridge, *intensities]) * 6
    drawn.add_scatter(
        x=[left, ridge, right],
        y=[left * bytes_per_s, flops_per_s, flops_per_s],
        name="roof",
        mode="lines",
        line={"color": look.muted, "width": 3},
        hoverinfo="skip",
    )
    for place, (name, (flops, moved, seconds)) in enumerate(dots.items()):
        drawn.add_scatter(
            x=[flops / moved],
            y=[flops / seconds],
            name=text(name),
            mode="markers+text",
            text=[text(name)],
            textposition="bottom right",
            marker={"color": look.hue(place), "size": 13},
            hovertemplate=f"{text(name)}<br>%{{x:,.3~g}} FLOPs/byte<br>"
            f"{_rate(flops / seconds)}<extra></extra>",
        )
    axis = {"type": "log", "rangemode": "normal"}
    drawn.update_xaxes(title_text="arithmetic intensity (FLOPs/byte, logarithmic)", dtick=1, **axis)
    speeds = [left * bytes_per_s, flops_per_s, *(one / taken for one, _, taken in dots.values())]
    decades = range(math.floor(math.log10(min(speeds))), math.ceil(math.log10(max(speeds))) + 1)
    ticks = [10.0**decade for decade in decades]
    drawn.update_yaxes(
        title_text="speed (FLOP/s, logarithmic)",
        tickvals=ticks,
        ticktext=[_rate(tick).removesuffix("FLOP/s") for tick in ticks],
        **axis,
    )
    return drawn


def _rate(flops_per_s: float) -> str:
    """ "3.34 TFLOP/s" """
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if flops_per_s >= size:
            return f"{flops_per_s / size:,.3g} {prefix}FLOP/s"
    return f"{flops_per_s:,.3g} FLOP/s"
