"""How many users fit: the memory of a device, its weights and one cell per user, drawn to scale."""

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from visualizer.figures.theme import (
    empty_figure,
    escaped,
    new_figure,
    palette_of,
    short_name,
    swatch,
)

ROW_PX = 30
GB = 1e9
# A cell narrower than this part of the axis has no gap beside it: the gaps would hide the cells.
NARROWEST = 0.006


def users(fits: Mapping[str, Any], *, theme: str | None = None) -> go.Figure:
    """Draw one bar per model: what a device holds, with the weights first and then each user's KV.

    fits  {name: a `Fit` of `kv_sizes(entries).fit(device_bytes, context)`}

    A model on several devices is drawn as one of them: its share of the weights and of each user.
    """
    palette = palette_of(theme)
    if not fits:
        return empty_figure(palette, "No models to show", "Pass {name: kv_sizes(config).fit(...)}.")
    longest = max(fit.context for fit in fits.values())
    equal = [name for name in fits if fits[name].context == longest]
    fewest, most = (pick(equal, key=lambda name: fits[name].users) for pick in (min, max))
    title = f"Users with {longest:,} tokens: {fits[fewest].users:,} on {short_name(fewest)}"
    if most != fewest:
        title += f", {fits[most].users:,} on {short_name(most)}"
    keys = [
        (swatch(palette.neutral), "weights"),
        (swatch(palette.hue(0)), "the KV of one user, or of many where cells touch"),
    ]
    drawn = new_figure(palette, title, keys=keys)
    widest = max(fit.device_bytes for fit in fits.values()) / GB
    names = list(fits)
    for row, (name, fit) in enumerate(fits.items()):
        weights = min(fit.weights, fit.device_bytes) / GB
        where = "" if fit.devices == 1 else f", on each of {fit.devices} devices"
        for kind, colour, xs in (
            ("weights", palette.neutral, [(0.0, weights)]),
            ("users", palette.hue(0), _cells(fit, weights, widest * NARROWEST)),
        ):
            drawn.add_scatter(
                x=[x for a, b in xs for x in (a, b, b, a, a, None)],
                y=[y for _ in xs for y in (*_box(row), None)],
                name=f"{escaped(name)}: {kind}",
                mode="lines",
                line={"width": 0},
                fill="toself",
                fillcolor=colour,
                hoveron="fills",
                text=f"{escaped(name)}: {fit.users:,} users with {fit.context:,} tokens, "
                f"{fit.user_bytes / GB:.3g} GB each{where}",
                hoverinfo="text",
            )
        drawn.add_annotation(
            x=1, xref="paper", xanchor="left", y=row, text=f"<b>{fit.users:,}</b>",
            showarrow=False, font={"color": palette.ink},
        )  # fmt: skip
    drawn.update_layout(
        height=drawn.layout.margin.t + 52 + ROW_PX * len(fits), margin={"l": 142, "r": 52}
    )
    drawn.update_xaxes(title_text="GB of one device that the model may use", range=[0, widest])
    labels = [
        escaped(name)
        + (f" ×{fit.devices}" if fit.devices > 1 else "")
        + (f", {fit.context:,} tokens" if fit.context < longest else "")
        for name, fit in fits.items()
    ]
    drawn.update_yaxes(
        tickvals=list(range(len(names))), ticktext=labels, range=[len(names) - 0.5, -0.5],
        rangemode="normal", showgrid=False, ticks="",
    )  # fmt: skip
    return drawn


def _box(row: int) -> tuple[float, float, float, float, float]:
    top, bottom = row - 0.34, row + 0.34
    return top, top, bottom, bottom, top


def _cells(fit: Any, start: float, narrowest: float) -> list[tuple[float, float]]:
    """Return the left and right end of each user's cell, or of all of them where they are narrow."""
    width = fit.user_bytes / GB
    if width < narrowest:
        return [(start, start + fit.users * width)] if fit.users else []
    gap = min(width * 0.16, narrowest / 3)
    return [(start + n * width, start + (n + 1) * width - gap) for n in range(fit.users)]
