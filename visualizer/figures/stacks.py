"""What a step is made of, step by step: tokens beside the budget, blocks beside the memory.

Several logs stand below each other, on the same scales.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from visualizer.figures.logs import (
    AXES,
    Logs,
    drawable,
    edges,
    groups,
    named,
    sequence,
    shared_points,
    steps_a_point,
)
from visualizer.figures.over_time import NO_STEP
from visualizer.figures.theme import Look, figure, look_of, nothing, short, swatch, text
from visualizer.settings import settings_of

ROOM = 0.09  # of the height, between one log's stack and the next


@dataclass(frozen=True)
class Layer:
    """A column of the steps frame and how it is drawn."""

    column: str
    words: str
    colour: str
    hatched: bool = False


@dataclass(frozen=True)
class Stack:
    """Layers from the bottom up, a line above, and how neighbouring steps become one point."""

    layers: list[Layer]
    line: str  # what the line is called
    limit: str  # the setting that it shows
    unit: str
    pick: str  # "mean" of neighbouring steps, or the "fullest" of them


@dataclass(frozen=True)
class Panel:
    """One log's part of the figure; `axis` is the number of its y axis, "" for the first."""

    steps: pd.DataFrame
    limit: int
    x: str
    axis: str

    @property
    def where(self) -> str:
        """For hover."""
        return "step %{x:,}" if self.x == "step" else "%{x:,.4~g} ms"


def memory(logs: Logs, *, x: str = "step", theme: str | None = None) -> go.Figure:
    """KV blocks that requests hold and that the prefix cache keeps, and preemptions.

    Of a long run a point is the fullest of neighbouring steps.
    """
    look = look_of(theme)
    layers = [
        Layer("used_blocks", "held by requests", look.neutral),
        Layer("cached_blocks", "cached: given up when needed", look.neutral, hatched=True),
    ]

    def title(frames: dict[str, pd.DataFrame], limits: dict[str, int]) -> str:
        full = {n: f.used_blocks.max() / max(1, limits[n]) for n, f in frames.items()}
        preempted = {name: int(frame.preempted.sum()) for name, frame in frames.items()}
        if len(frames) == 1:
            (name,) = frames
            count = preempted[name]
            ending = f", {count:,} preemption{'' if count == 1 else 's'}" if count else ""
            return f"Memory: requests hold up to {full[name]:.0%}{ending}"
        words = (f"{preempted[name]:,} in {short(name)}" for name in frames)
        return (
            f"Memory: preemptions: {', '.join(words)}"
            if any(preempted.values())
            else (
                "Memory: requests hold up to "
                + ", ".join(f"{full[name]:.0%} in {short(name)}" for name in frames)
            )
        )

    stack = Stack(layers, "all blocks", "num_blocks", "KV blocks", "fullest")
    return _draw(logs, stack, title, x, look)


def tokens_per_step(logs: Logs, *, x: str = "step", theme: str | None = None) -> go.Figure:
    """Tokens computed in each step: prefill, catch-up, decode, beside the token budget.

    Of a long run a point is the mean of neighbouring steps.
    """
    look = look_of(theme)
    layers = [
        Layer("decode_tokens", "decode", look.neutral),
        Layer("catchup_tokens", "catch-up: output computed again", look.hue(1)),
        Layer("prefill_tokens", "prefill", look.hue(0)),
    ]

    def title(frames: dict[str, pd.DataFrame], limits: dict[str, int]) -> str:
        used = {n: f.tokens.mean() / max(1, limits[n]) for n, f in frames.items()}
        if len(frames) == 1:
            (share,) = used.values()
            return f"A step computes {share:.0%} of its token budget on average"
        words = (f"{share:.0%} in {short(name)}" for name, share in used.items())
        return f"Of its token budget a step uses {', '.join(words)}"

    stack = Stack(layers, "token budget", "token_budget", "tokens per step", "mean")
    return _draw(logs, stack, title, x, look)


def _draw(
    logs: Logs,
    stack: Stack,
    title: Callable[[dict[str, pd.DataFrame], dict[str, int]], str],
    x: str,
    look: Look,
) -> go.Figure:
    found = named(logs)
    frames = drawable(found, x)
    if not frames:
        return nothing(look, f"No {stack.unit} to show yet", NO_STEP)
    limits = {name: int(settings_of(found[name])[stack.limit]) for name in frames}
    keys = [
        (swatch(layer.colour, "▨" if layer.hatched else "■"), layer.words)
        for layer in stack.layers
        if any(steps[layer.column].any() for steps in frames.values())
    ]
    same = len(set(limits.values())) == 1
    limit = f": {next(iter(limits.values())):,}" if same else ""
    keys.append((swatch(look.ink, "―"), stack.line + limit))
    if stack.pick == "fullest" and any(steps.preempted.any() for steps in frames.values()):
        keys.append((swatch(look.hue(0), "▼"), "preemption"))
    size = steps_a_point(frames)
    keys += shared_points(size, stack.pick)
    drawn = figure(look, title(frames, limits), [], keys, rows=len(frames))
    highest = max(*limits.values(), *(_height(steps, stack) for steps in frames.values()))
    style = drawn.layout.yaxis.to_plotly_json() | {"range": [0, 1.08 * highest]}
    height = (1 + ROOM) / len(frames) - ROOM
    for row, (name, steps) in enumerate(frames.items()):
        axis = str(row + 1) if row else ""
        top = 1 - row * (height + ROOM)
        style["title"]["text"] = stack.unit
        drawn.update_layout({f"yaxis{axis}": style | {"domain": [max(0, top - height), top]}})
        panel = Panel(steps, limits[name], x, axis)
        _stack_up(drawn, stack, panel, size, look)
        if stack.pick == "fullest":
            _mark_preemptions(drawn, panel, look)
        if name:
            drawn.add_annotation(
                text=f"<b>{text(name)}</b>", x=0, xref="paper", xanchor="left",
                y=top, yref="paper", yanchor="bottom", showarrow=False,
            )  # fmt: skip
    drawn.update_xaxes(title_text=AXES[x], tickformat=",", anchor=f"y{axis}")
    return drawn


def _stack_up(drawn: go.Figure, stack: Stack, panel: Panel, size: int, look: Look) -> None:
    """One log's layers and its limit; `size` steps share a point."""
    group = groups(panel.steps, size)
    at = edges(panel.steps, panel.x, group)
    columns = [layer.column for layer in stack.layers]
    if stack.pick == "mean":
        values = panel.steps[columns].groupby(group).mean()
    else:
        values = panel.steps.loc[panel.steps[columns[0]].groupby(group).idxmax(), columns]
    for layer in stack.layers:
        heights = values[layer.column].tolist()
        drawn.add_scatter(
            x=at,
            y=[*heights, heights[-1]],
            yaxis=f"y{panel.axis}",
            name=layer.words,
            stackgroup=f"stack{panel.axis}",
            mode="lines",
            line={"color": layer.colour, "width": 0.5, "shape": "hv"},
            fillcolor="rgba(0,0,0,0)" if layer.hatched else layer.colour,
            fillpattern={"shape": "/", "fgcolor": layer.colour, "size": 6, "solidity": 0.3}
            if layer.hatched
            else None,
            hovertemplate=f"{layer.words.split(':')[0]}: %{{y:,.4~g}}<br>{panel.where}<extra></extra>",
        )
    drawn.add_scatter(
        x=[at[0], at[-1]],
        y=[panel.limit, panel.limit],
        yaxis=f"y{panel.axis}",
        name=stack.line,
        mode="lines",
        line={"color": look.ink, "width": 1.5},
        hovertemplate=f"{stack.line}: {panel.limit:,}<extra></extra>",
    )


def _mark_preemptions(drawn: go.Figure, panel: Panel, look: Look) -> None:
    preempted = panel.steps[panel.steps.preempted > 0]
    drawn.add_scatter(
        x=sequence(preempted, panel.x),
        y=[panel.limit * 1.04] * len(preempted),
        yaxis=f"y{panel.axis}",
        name="preemptions",
        mode="markers",
        marker={"symbol": "triangle-down", "size": 9, "color": look.hue(0)},
        customdata=preempted.preempted,
        hovertemplate=f"preempted: %{{customdata}}<br>{panel.where}<extra></extra>",
    )


def _height(steps: pd.DataFrame, stack: Stack) -> float:
    return float(steps[[layer.column for layer in stack.layers]].sum(axis=1).max())
