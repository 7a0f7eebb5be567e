"""Draw the shape that an answer must have, the current state, and the tokens that may come next.

The upper part is the automaton of the shape. A state with one way in and one way out is left out, so an
arrow carries all the text between two choices. The lower part is the vocabulary: it has a cell for each
token, which is filled if the token is allowed.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from visualizer.figures.theme import Palette, new_figure, palette_of, swatch

COLUMNS = 64
MAX_NAMED = 10  # allowed tokens that the heading names
GRAPH_PX, CELL_PX, GAP_PX = 120, 9, 20
MONO = "'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, monospace"

Moves = Mapping[tuple[int, str], int]


class Edge(NamedTuple):
    """An arrow between two states that are drawn, and the texts that lead along it."""

    start: int
    end: int
    texts: tuple[str, ...]


def shape(
    moves: Moves,
    accepting: Collection[int],
    state: int,
    vocabulary: Sequence[str],
    allowed: Sequence[bool],
    *,
    theme: str | None = None,
) -> go.Figure:
    """Draw an automaton with the current state, above a cell for each token of the vocabulary.

    moves       {(state, character): next state}; the text starts in state 0
    accepting   states in which the text may end
    vocabulary  the text of each token
    allowed     whether each token may come next

    Raises ValueError if the shape allows texts of any length, because the graph cannot draw cycles.
    """
    palette = palette_of(theme)
    count = sum(allowed)
    names = [_quoted(text) for text, one in zip(vocabulary, allowed, strict=True) if one]
    title = f"{count:,} of {len(vocabulary):,} tokens {'is' if count == 1 else 'are'} allowed"
    keys = [(swatch(palette.hue(1), "●"), "the text is in this state")]
    keys.append((swatch(palette.neutral, "◉"), "the text may end here"))
    keys.append((swatch(palette.hue(0)), " ".join(names[:MAX_NAMED])))
    if len(names) > MAX_NAMED:
        keys[-1] = (keys[-1][0], f"{keys[-1][1]} …")
    drawn = new_figure(palette, title, keys=keys)
    rows = -(-len(vocabulary) // COLUMNS)
    body = GRAPH_PX + GAP_PX + rows * CELL_PX
    top = drawn.layout.margin.t
    drawn.update_layout(height=top + body + 14, margin={"l": 14, "r": 14, "b": 14, "t": top})
    _add_vocabulary(drawn, vocabulary, allowed, rows * CELL_PX / body, palette)
    _add_graph(drawn, edges_of(moves, accepting, state), accepting, state, palette)
    drawn.update_layout(yaxis_domain=[1 - GRAPH_PX / body, 1])
    drawn.update_xaxes(visible=False)
    drawn.update_yaxes(visible=False)
    return drawn


def edges_of(moves: Moves, accepting: Collection[int], state: int) -> list[Edge]:
    """Return arrows between the start, choices, meeting points, accepting states and `state`."""
    nexts: dict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    sources: dict[int, set[int]] = defaultdict(set)
    for (before, character), after in moves.items():
        nexts[before][after].append(character)
        sources[after].add(before)
    drawn = {0, state, *accepting}
    drawn |= {one for one, ends in nexts.items() if len(ends) > 1}
    drawn |= {one for one, starts in sources.items() if len(starts) > 1}
    found: dict[tuple[int, int], list[str]] = defaultdict(list)
    for start in sorted(drawn):
        for first, characters in nexts[start].items():
            text, end = _class_of(characters), first
            while end not in drawn:
                [(end, more)] = nexts[end].items()
                text += _class_of(more)
            found[start, end].append(text)
    return [Edge(start, end, tuple(texts)) for (start, end), texts in found.items()]


def _class_of(characters: Collection[str]) -> str:
    """Return "a" for one character, "[0-9]" for several."""
    if len(characters) == 1:
        return next(iter(characters)).replace(" ", "␣")
    codes = sorted(map(ord, characters))
    runs = [
        [code for _, code in run]
        for _, run in groupby(enumerate(codes), lambda one: one[1] - one[0])
    ]
    parts = [
        f"{chr(run[0])}-{chr(run[-1])}" if len(run) > 2 else "".join(map(chr, run)) for run in runs
    ]
    return f"[{''.join(parts)}]"


def _positions(edges: Sequence[Edge]) -> dict[int, float]:
    """Return x of each state: an arrow is as long as its longest text."""
    x = {0: 0.0}
    for _ in range(len(edges) + 1):
        before = dict(x)
        for edge in edges:
            if edge.start in x:
                end = x[edge.start] + max(map(len, edge.texts)) + 3
                x[edge.end] = max(end, x.get(edge.end, 0))
        if x == before:
            return x
    raise ValueError(
        "the shape allows texts of any length, which the graph cannot draw: "
        "give it a limit, such as {1,3} instead of +"
    )


def _add_graph(
    drawn: go.Figure,
    edges: Sequence[Edge],
    accepting: Collection[int],
    state: int,
    palette: Palette,
) -> None:
    x = _positions(edges)
    # A state that an arrow passes is drawn lower, so that the arrow does not cross it.
    passed = {one for one in x if any(x[edge.start] < x[one] < x[edge.end] for edge in edges)}
    y = {one: -1.0 if one in passed else 0.0 for one in x}
    for edge in edges:
        drawn.add_annotation(
            x=x[edge.end], y=y[edge.end], ax=x[edge.start], ay=y[edge.start], xref="x", yref="y",
            axref="x", ayref="y", showarrow=True, arrowhead=2, arrowsize=1, arrowwidth=1.5,
            arrowcolor=palette.neutral, standoff=9, startstandoff=9, text="",
        )  # fmt: skip
        drawn.add_annotation(
            x=(x[edge.start] + x[edge.end]) / 2, y=(y[edge.start] + y[edge.end]) / 2,
            text="<br>".join(_escaped(text) for text in edge.texts), showarrow=False,
            xref="x", yref="y", yanchor="top" if y[edge.start] + y[edge.end] else "bottom",
            font={"family": MONO, "size": 11, "color": palette.ink}, yshift=3,
        )  # fmt: skip
    colours = [palette.hue(1) if one == state else palette.neutral for one in x]
    drawn.add_scatter(
        x=list(x.values()), y=[y[one] for one in x], mode="markers", name="states",
        marker={
            "size": [16 if one == state else 13 for one in x], "color": colours, "opacity": 1,
            "symbol": [
                "circle-open-dot" if one in accepting else "circle" for one in x
            ],
            "line": {"width": [2 if one in accepting else 0 for one in x]},
        },
        customdata=[[one, ": the text may end here" if one in accepting else ""] for one in x],
        hovertemplate="state %{customdata[0]}%{customdata[1]}<extra></extra>",
    )  # fmt: skip
    drawn.update_layout(
        xaxis={"range": [-2, max(x.values()) + 2], "fixedrange": True},
        yaxis={"range": [-1.6, 3.4], "fixedrange": True},
    )


def _add_vocabulary(
    drawn: go.Figure,
    vocabulary: Sequence[str],
    allowed: Sequence[bool],
    share: float,
    palette: Palette,
) -> None:
    """Add the cells of the vocabulary; `share` is the part of the figure's height that they take."""
    rows = -(-len(vocabulary) // COLUMNS)
    cells = np.full(rows * COLUMNS, np.nan)
    cells[: len(vocabulary)] = allowed
    texts = [_quoted(one) if one else "special" for one in vocabulary]
    texts += [""] * (rows * COLUMNS - len(texts))
    custom = np.array(texts, dtype=object).reshape(rows, COLUMNS)
    drawn.add_heatmap(
        z=cells.reshape(rows, COLUMNS), customdata=custom, xgap=1, ygap=1, zmin=0, zmax=1,
        colorscale=[[0, palette.rule], [1, palette.hue(0)]], showscale=False, name="vocabulary",
        hovertemplate="%{customdata}<extra></extra>", xaxis="x2", yaxis="y2",
    )  # fmt: skip
    drawn.update_layout(
        xaxis2={"anchor": "y2", "fixedrange": True, "domain": [0, 1]},
        yaxis2={"anchor": "x2", "autorange": "reversed", "fixedrange": True, "domain": [0, share]},
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _quoted(text: str) -> str:
    """Return a token's text with visible spaces."""
    return f"‹{text.replace(' ', '␣')}›" if text else "end"
