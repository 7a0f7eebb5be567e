"""KV memory over the steps of a run.

Several logs are drawn one below the other on the same scales.
"""

import pandas as pd
import plotly.graph_objects as go

from visualizer import read
from visualizer.figures.theme import (
    MAX_POINTS,
    Palette,
    empty_figure,
    escaped,
    new_figure,
    palette_of,
    says_parts,
    short_name,
    swatch,
)
from visualizer.logs import Logs, logs_by_name, settings_of

GAP = 0.09  # space between two logs, as a fraction of the height


@says_parts
def memory(logs: Logs, *, theme: str | None = None) -> go.Figure:
    """Draw the KV blocks held by requests, those held only by the prefix cache, and preemptions.

    In a long run, each point stands for several consecutive steps and shows the fullest of them.
    """
    palette = palette_of(theme)
    by_name = logs_by_name(logs)
    frames = {name: read(log).steps for name, log in by_name.items()}
    frames = {name: steps for name, steps in frames.items() if len(steps)}
    if not frames:
        return empty_figure(palette, "No KV blocks to show yet")
    totals = {name: int(settings_of(by_name[name])["num_blocks"]) for name in frames}
    steps_per_point = -(-max(map(len, frames.values())) // MAX_POINTS)
    keys = _keys(frames, totals, steps_per_point, palette)
    drawn = new_figure(palette, _title(frames, totals), keys=keys, rows=len(frames))
    style = drawn.layout.yaxis.to_plotly_json() | {"range": [0, 1.08 * max(totals.values())]}
    style["title"]["text"] = "KV blocks"
    height = (1 + GAP) / len(frames) - GAP
    for row, (name, steps) in enumerate(frames.items()):
        axis = str(row + 1) if row else ""
        top = 1 - row * (height + GAP)
        drawn.update_layout({f"yaxis{axis}": style | {"domain": [max(0, top - height), top]}})
        _add_blocks(drawn, steps, axis, steps_per_point, palette)
        _add_limit_and_preemptions(drawn, steps, axis, totals[name], palette)
        if name:
            drawn.add_annotation(
                text=f"<b>{escaped(name)}</b>", x=0, xref="paper", xanchor="left",
                y=top, yref="paper", yanchor="bottom", showarrow=False,
            )  # fmt: skip
    drawn.update_xaxes(title_text="step", tickformat=",", anchor=f"y{axis}")
    return drawn


def _title(frames: dict[str, pd.DataFrame], totals: dict[str, int]) -> str:
    peaks = {name: steps.used_blocks.max() / totals[name] for name, steps in frames.items()}
    preempted = {name: int(steps.preempted.sum()) for name, steps in frames.items()}
    if len(frames) == 1:
        (peak,), (count,) = peaks.values(), preempted.values()
        ending = f", {count:,} preemption{'' if count == 1 else 's'}" if count else ""
        return f"Memory: requests hold up to {peak:.0%}{ending}"
    if any(preempted.values()):
        counts = (f"{count:,} in {short_name(name)}" for name, count in preempted.items())
        return f"Memory: preemptions: {', '.join(counts)}"
    shares = (f"{peak:.0%} in {short_name(name)}" for name, peak in peaks.items())
    return f"Memory: requests hold up to {', '.join(shares)}"


def _keys(
    frames: dict[str, pd.DataFrame], totals: dict[str, int], steps_per_point: int, palette: Palette
) -> list[tuple[str, str]]:
    keys = [(swatch(palette.neutral), "held by requests")]
    if any(steps.cached_blocks.any() for steps in frames.values()):
        keys.append((swatch(palette.neutral, "▨"), "cached: evicted when needed"))
    limits = set(totals.values())
    total = f": {limits.pop():,}" if len(limits) == 1 else ""
    keys.append((swatch(palette.ink, "―"), f"all blocks{total}"))
    if any(steps.preempted.any() for steps in frames.values()):
        keys.append((swatch(palette.hue(0), "▼"), "preemption"))
    if steps_per_point > 1:
        keys.append(("", f"each point is the fullest of {steps_per_point} steps"))
    return keys


def _add_blocks(
    drawn: go.Figure, steps: pd.DataFrame, axis: str, steps_per_point: int, palette: Palette
) -> None:
    """Add the used and cached blocks of one log, stacked."""
    group = pd.Series(range(len(steps)), index=steps.index) // steps_per_point
    starts = steps.index.to_series().groupby(group).first().tolist()
    fullest = steps.loc[steps.used_blocks.groupby(group).idxmax()]
    for column, words in (("used_blocks", "held by requests"), ("cached_blocks", "cached")):
        heights = fullest[column].tolist()
        hatched = column == "cached_blocks"
        pattern = {"shape": "/", "fgcolor": palette.neutral, "size": 6, "solidity": 0.3}
        drawn.add_scatter(
            x=[*starts, steps.index[-1] + 1],
            y=[*heights, heights[-1]],
            yaxis=f"y{axis}",
            name=words,
            stackgroup=f"stack{axis}",
            mode="lines",
            line={"color": palette.neutral, "width": 0.5, "shape": "hv"},
            fillcolor="rgba(0,0,0,0)" if hatched else palette.neutral,
            fillpattern=pattern if hatched else None,
            hovertemplate=f"{words}: %{{y:,}}<br>step %{{x:,}}<extra></extra>",
        )


def _add_limit_and_preemptions(
    drawn: go.Figure, steps: pd.DataFrame, axis: str, total: int, palette: Palette
) -> None:
    drawn.add_scatter(
        x=[steps.index[0], steps.index[-1] + 1],
        y=[total, total],
        yaxis=f"y{axis}",
        name="all blocks",
        mode="lines",
        line={"color": palette.ink, "width": 1.5},
        hovertemplate=f"all blocks: {total:,}<extra></extra>",
    )
    preempted = steps[steps.preempted > 0]
    drawn.add_scatter(
        x=preempted.index,
        y=[total * 1.04] * len(preempted),
        yaxis=f"y{axis}",
        name="preemptions",
        mode="markers",
        marker={"symbol": "triangle-down", "size": 9, "color": palette.hue(0)},
        customdata=preempted.preempted,
        hovertemplate="preempted: %{customdata}<br>step %{x:,}<extra></extra>",
    )
