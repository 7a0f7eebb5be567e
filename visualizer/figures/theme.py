"""How figures look: the board's palette and type, as a plotly layout.

There is no legend: a figure's heading states what is seen, and below it stands one line for each thing
that is drawn, with its swatch and its numbers.
"""

import html
import textwrap
from dataclasses import dataclass

import plotly.graph_objects as go

FONT = "Arial, 'Liberation Sans', sans-serif"
HEIGHT = 380
TITLE_WIDTH, LINE_WIDTH = 44, 56  # letters that fit into a column of 360 pixels
TITLE_PX, LINE_PX = 15, 12
UNWANTED = [
    "sendChartToCloud",
    "select2d",
    "lasso2d",
]  # the first uploads the chart; no data leaves
NAME_LENGTH = 24


@dataclass(frozen=True)
class Look:
    """Colours of a theme. `hues` are for logs, by order; forms of one log are neutral."""

    ground: str
    ink: str
    muted: str
    rule: str
    neutral: str
    label: str  # ground of what is told while the mouse is there
    hues: tuple[str, ...]

    def hue(self, index: int) -> str:
        """The colour of the log at a place."""
        return self.hues[index % len(self.hues)]


_ON_BOTH = ("#1f78b2", "#cf7f22", "#9b79fd", "#0ea493", "#de3460", "#836900")
LOOKS = {
    "light": Look(
        "#ffffff", "#16181d", "#5a606b", "#d9dce2", "#969ca8", "#f5f6f8",
        ("#293ec1", "#cf7f22", "#006942", "#8b1868", "#836900",
         "#0ea493", "#9b79fd", "#de3460", "#1f78b2", "#92081a"),
    ),
    "dark": Look(
        "#14161a", "#eceef2", "#a5abb6", "#33373f", "#6b727e", "#1f2228",
        ("#6374ff", "#ef9206", "#87bd7e", "#c65b93", "#f0e175",
         "#30f6e8", "#d4a7ff", "#e64031", "#3ca0bd", "#feaec6"),
    ),
    # For a page whose ground is not known: 4.2:1 on white and on #14161a, the most there is for both.
    None: Look(
        "rgba(0,0,0,0)", "#757c88", "#757c88", "rgba(128,135,147,0.35)", "#808793", "#16181d",
        _ON_BOTH,
    ),
}  # fmt: skip


def look_of(theme: str | None) -> Look:
    """The colours of a theme. Raises ValueError for one that does not exist."""
    if theme not in LOOKS:
        raise ValueError(f'theme must be "light", "dark" or None, got {theme!r}')
    return LOOKS[theme]


def short(name: object) -> str:
    """A name on one line, cut if it is long."""
    plain = " ".join(str(name).split())
    return plain if len(plain) <= NAME_LENGTH else plain[: NAME_LENGTH - 1] + "…"


def text(name: object) -> str:
    """The same for plotly, which reads markup in all it writes. `figure` does it for a heading."""
    return html.escape(short(name), quote=False)


def swatch(colour: str, form: str = "■") -> str:
    """A mark in the heading that looks like what it stands for."""
    return f'<span style="color:{colour};font-size:{TITLE_PX}px">{form}</span>'


def figure(
    look: Look,
    title: str,
    lines: list[tuple[str, str]],
    keys: list[tuple[str, str]] | None = None,
    *,
    rows: int = 1,
) -> go.Figure:
    """An empty figure with a heading.

    Below the title stands a line for each of `lines`, then all `keys` behind each other; both are
    (swatch, words).
    """
    heads = _balanced(title)
    below = [line for mark, words in lines for line in _wrapped(mark, words)] + _packed(keys or [])
    heading = "<br>".join(
        [f"<b>{html.escape(head, quote=False)}</b>" for head in heads]
        + [
            f'<span style="font-size:{LINE_PX}px;color:{look.muted}">{line}</span>'
            for line in below
        ]
    )
    top = 22 + (len(heads) + len(below)) * round(1.3 * TITLE_PX)
    drawn = go.Figure()
    drawn.update_layout(
        title={
            "text": heading, "font": {"size": TITLE_PX, "color": look.ink},
            "x": 0, "xanchor": "left", "y": 1, "yanchor": "top", "yref": "container",
            "pad": {"l": 12, "t": 12},
        },
        height=HEIGHT - 60 + top + (rows - 1) * 150,
        margin={"l": 58, "r": 18, "t": top, "b": 52},
        font={"family": FONT, "size": LINE_PX, "color": look.ink},
        paper_bgcolor=look.ground,
        plot_bgcolor=look.ground,
        showlegend=False,
        hovermode="closest",
        hoverlabel={
            "bgcolor": look.label, "bordercolor": look.rule,
            "font": {"family": FONT, "color": "#eceef2" if look.label < "#8" else "#16181d"},
        },
        modebar={
            "bgcolor": "rgba(0,0,0,0)", "color": look.muted, "activecolor": look.ink,
            "remove": UNWANTED,
        },
    )  # fmt: skip
    axis = {
        "gridcolor": look.rule, "zeroline": False, "linecolor": look.muted, "ticks": "outside",
        "tickcolor": look.rule, "tickfont": {"size": 11, "color": look.muted},
        "title": {"font": {"size": LINE_PX, "color": look.muted}},
    }  # fmt: skip
    drawn.update_xaxes(showline=True, showgrid=False, **axis)
    drawn.update_yaxes(showline=False, rangemode="tozero", **axis)
    return drawn


def nothing(look: Look, what: str, advice: str) -> go.Figure:
    """A figure of a log that has nothing to show yet says so."""
    drawn = figure(look, what, [("", advice)])
    drawn.update_layout(height=160, xaxis_visible=False, yaxis_visible=False)
    return drawn


def _balanced(title: str) -> list[str]:
    """The title on as few lines as it needs, all about equally long."""
    lines = textwrap.wrap(title, TITLE_WIDTH)
    narrower = (textwrap.wrap(title, width) for width in range(10, TITLE_WIDTH))
    return next((one for one in narrower if len(one) == len(lines)), lines)


def _wrapped(mark: str, words: str) -> list[str]:
    lines = [html.escape(line, quote=False) for line in textwrap.wrap(words, LINE_WIDTH)]
    return [f"{mark} {lines[0]}" if mark else lines[0], *lines[1:]]


def _packed(keys: list[tuple[str, str]]) -> list[str]:
    """Keys behind each other, on a new line where the next does not fit."""
    lines, length = list[str](), LINE_WIDTH
    for mark, words in keys:
        key = f"{mark} {html.escape(words, quote=False)}" if mark else html.escape(words)
        if length + len(words) + 5 > LINE_WIDTH:
            lines, length = [*lines, key], len(words) + 2
        else:
            lines[-1] += f"&nbsp;&nbsp; {key}"
            length += len(words) + 5
    return lines
