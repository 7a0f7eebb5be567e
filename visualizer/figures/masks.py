"""The share of the model's probability that a grammar's masks allowed, token by token."""

import plotly.graph_objects as go

from engine.core.log import EventLog
from visualizer import read
from visualizer.figures.theme import empty_figure, new_figure, palette_of, swatch

MAX_TOKENS = 80
NO_MASK = "Give a request a shape (SamplingParams.structured), and run it."


def masks(log: EventLog, *, request: int | None = None, theme: str | None = None) -> go.Figure:
    """Draw a bar for each token that was sampled under a mask: the probability of the allowed tokens.

    request  the id of a request, of which the first 80 tokens are drawn; by default the first request
             that has masks
    """
    palette = palette_of(theme)
    rows = [row for row in read(log).token_rows if row.mass is not None]
    rows = [row for row in rows if row.request == (request or rows[0].request)][:MAX_TOKENS]
    if not rows:
        return empty_figure(palette, "No mask to show yet", NO_MASK)
    overruled = sum(row.wanted is not None for row in rows)
    drawn = new_figure(
        palette,
        f"The mask forbids the model's first choice at {overruled} of {len(rows)} tokens",
        keys=[
            (swatch(palette.hue(0)), "probability of the allowed tokens"),
            (swatch(palette.rule), "removed"),
        ],
    )
    kept = [row.mass or 0.0 for row in rows]
    words = [
        f"{row.allowed:,} allowed, {kept:.2%} of the probability"
        + (
            f"<br>the model wanted {_shown(row.wanted_text or '')}"
            if row.wanted is not None
            else ""
        )
        for row, kept in zip(rows, kept, strict=True)
    ]
    for name, values, colour in (
        ("allowed", kept, palette.hue(0)),
        ("removed", [1 - one for one in kept], palette.rule),
    ):
        drawn.add_bar(
            x=list(range(len(rows))), y=values, name=name,
            marker={"color": colour, "line": {"width": 0}},
            customdata=words,
            hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    drawn.update_layout(barmode="stack", bargap=0.25)
    drawn.update_xaxes(
        tickvals=list(range(len(rows))), ticktext=[_shown(row.text or "") for row in rows],
        title_text="token of the answer", tickangle=0, ticks="",
    )  # fmt: skip
    drawn.update_yaxes(
        title_text="probability", tickvals=[0, 0.5, 1], ticktext=["0%", "50%", "100%"], range=[0, 1]
    )
    return drawn


def _shown(text: str) -> str:
    return text.replace(" ", "␣").replace("<", "&lt;") or "end"
