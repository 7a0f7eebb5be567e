"""The share of prompt tokens that the replicas of a cluster found in their caches, over a run."""

from collections.abc import Mapping
from itertools import accumulate

import plotly.graph_objects as go

from engine.cluster.cluster_log import ClusterLog
from visualizer import read
from visualizer.figures.theme import (
    MAX_POINTS,
    empty_figure,
    escaped,
    new_figure,
    palette_of,
    short_name,
)


def hits(logs: ClusterLog | Mapping[str, ClusterLog], *, theme: str | None = None) -> go.Figure:
    """Draw each router's hit rate: the cached share of all prompt tokens so far.

    A request is counted at the time when it was routed, with the cached prefix that it had when its
    replica admitted it. Requests that were not admitted, or whose prompt the router could not read,
    are left out.
    """
    palette = palette_of(theme)
    by_name = {"": logs} if isinstance(logs, ClusterLog) else dict(logs)
    runs = {
        name: [
            row
            for row in read(log).decision_rows
            if row.prompt_tokens and row.cached_tokens is not None
        ]
        for name, log in by_name.items()
    }
    runs = {name: rows for name, rows in runs.items() if rows}
    if not runs:
        return empty_figure(palette, "No hits to show yet", "No request of this log was admitted.")
    found = {
        name: list(accumulate(row.cached_tokens or 0 for row in rows))
        for name, rows in runs.items()
    }
    asked = {
        name: list(accumulate(row.prompt_tokens + row.output_tokens for row in rows))
        for name, rows in runs.items()
    }
    rates = {name: found[name][-1] / asked[name][-1] for name in runs}
    best = max(rates, key=rates.__getitem__)
    named = f"{short_name(best)} finds" if best else "the caches had"
    drawn = new_figure(
        palette,
        f"Hit rate: {named} {rates[best]:.0%} of the prompt tokens",
        {name: f"{rates[name]:.0%} of {asked[name][-1]:,} prompt tokens" for name in runs},
    )
    for index, (name, rows) in enumerate(runs.items()):
        every = -(-len(rows) // MAX_POINTS)
        drawn.add_scatter(
            x=[(row.routed_ms or 0) / 1000 for row in rows][::every],
            y=[100 * a / b for a, b in zip(found[name], asked[name], strict=True)][::every],
            name=escaped(name),
            mode="lines",
            line={"color": palette.hue(index), "width": 2},
            hovertemplate=(f"{escaped(name)}<br>" if name else "")
            + "%{y:.0f}% of all prompt tokens up to %{x:.1f} s<extra></extra>",
        )
    drawn.update_xaxes(title_text="time since the gateway started (s)", rangemode="tozero")
    drawn.update_yaxes(title_text="cached share of prompt tokens so far (%)", range=[0, 100])
    return drawn
