"""The look of the figures: the board's colours and font as a plotly layout.

A figure has no legend. Its title states the result, and below the title each curve has its own line
with a colour swatch and its numbers.
"""

import html
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import plotly.graph_objects as go

from visualizer.logs import Logs, logs_by_name
from visualizer.reading.knowledge import part_words
from visualizer.reading.waterfall.picture import HUES

FONT = "Arial, 'Liberation Sans', sans-serif"
HEIGHT = 380
TITLE_WIDTH, LINE_WIDTH = 44, 56  # characters that fit in a column 360 pixels wide
TITLE_PX, LINE_PX = 15, 12
REMOVED_BUTTONS = ["sendChartToCloud", "select2d", "lasso2d"]  # the first one uploads the chart
NAME_LENGTH = 24
MAX_POINTS = 1500  # points of a curve; more would not be visible on a screen
NO_STEP = "This log has no step with a time yet: run a step, then draw the figure again."


@dataclass(frozen=True)
class Palette:
    """The colours of a theme. Logs get the `hues` in order; `neutral` is the same for every log."""

    background: str
    ink: str
    muted: str
    rule: str
    neutral: str
    label: str  # background of hover labels
    hues: tuple[str, ...]

    def hue(self, index: int) -> str:
        """Return the colour of the log with this index."""
        return self.hues[index % len(self.hues)]


PALETTES = {
    "light": Palette(
        "#ffffff", "#16181d", "#5a606b", "#d9dce2", "#969ca8", "#f5f6f8",
        HUES[0],
    ),
    "dark": Palette(
        "#14161a", "#eceef2", "#a5abb6", "#33373f", "#6b727e", "#1f2228",
        HUES[1],
    ),
    # For an unknown background: 4.2:1 is the best contrast possible on both white and #14161a.
    None: Palette(
        "rgba(0,0,0,0)", "#757c88", "#757c88", "rgba(128,135,147,0.35)", "#808793", "#16181d",
        ("#1f78b2", "#cf7f22", "#9b79fd", "#0ea493", "#de3460", "#836900"),
    ),
}  # fmt: skip


def palette_of(theme: str | None) -> Palette:
    """Return the colours of a theme. Raises ValueError for an unknown theme."""
    if theme not in PALETTES:
        raise ValueError(f'theme must be "light", "dark" or None, got {theme!r}')
    return PALETTES[theme]


def short_name(name: object) -> str:
    """Return the name on one line, cut in the middle if it is long: names often begin alike."""
    plain = " ".join(str(name).split())
    half = NAME_LENGTH // 2
    return plain if len(plain) <= NAME_LENGTH else f"{plain[:half]}…{plain[1 - half :]}"


def escaped(name: object) -> str:
    """Return the short name with HTML escaped, because plotly interprets markup in its texts."""
    return html.escape(short_name(name), quote=False)


def swatch(colour: str, form: str = "■") -> str:
    """Return a mark for the heading, in the colour and shape of the element that it explains."""
    return f'<span style="color:{colour};font-size:{TITLE_PX}px">{form}</span>'


def new_figure(
    palette: Palette,
    title: str,
    curves: Mapping[str, str] | None = None,
    *,
    mark: str = "■",
    keys: Sequence[tuple[str, str]] = (),
    advice: str = "",
    rows: int = 1,
) -> go.Figure:
    """Return a figure with a heading and no data. Below the title are these texts:

    curves  {name: what to say about the curve}, each on its own line after a `mark` in the curve's
            colour; a single curve may have the name ""
    keys    pairs of a swatch and a text, which share lines
    advice  what to do about an empty figure
    """
    heads = _balanced(title)
    below = _wrapped(advice)
    for index, (name, words) in enumerate((curves or {}).items()):
        first, *more = _wrapped(f"{short_name(name)}: {words}" if name else words)
        below += [f"{swatch(palette.hue(index), mark)} {first}", *more]
    below += _packed(keys)
    heading = "<br>".join(
        [f"<b>{html.escape(head, quote=False)}</b>" for head in heads]
        + [
            f'<span style="font-size:{LINE_PX}px;color:{palette.muted}">{line}</span>'
            for line in below
        ]
    )
    top = 22 + (len(heads) + len(below)) * round(1.3 * TITLE_PX)
    drawn = go.Figure()
    drawn.update_layout(
        title={
            "text": heading, "font": {"size": TITLE_PX, "color": palette.ink},
            "x": 0, "xanchor": "left", "y": 1, "yanchor": "top", "yref": "container",
            "pad": {"l": 12, "t": 22},  # plotly draws several lines 10 px higher than one
        },
        height=HEIGHT - 60 + top + (rows - 1) * 150,
        margin={"l": 58, "r": 18, "t": top, "b": 52},
        font={"family": FONT, "size": LINE_PX, "color": palette.ink},
        paper_bgcolor=palette.background,
        plot_bgcolor=palette.background,
        showlegend=False,
        hovermode="closest",
        hoverlabel={
            "bgcolor": palette.label, "bordercolor": palette.rule,
            "font": {"family": FONT, "color": "#eceef2" if palette.label < "#8" else "#16181d"},
        },
        modebar={
            "bgcolor": "rgba(0,0,0,0)", "color": palette.muted, "activecolor": palette.ink,
            "remove": REMOVED_BUTTONS,
        },
    )  # fmt: skip
    _style_axes(drawn, palette)
    return drawn


def _style_axes(drawn: go.Figure, palette: Palette) -> None:
    axis = {
        "gridcolor": palette.rule, "zeroline": False, "linecolor": palette.muted, "ticks": "outside",
        "tickcolor": palette.rule, "tickfont": {"size": 11, "color": palette.muted},
        "title": {"font": {"size": LINE_PX, "color": palette.muted}},
    }  # fmt: skip
    drawn.update_xaxes(showline=True, showgrid=False, **axis)
    drawn.update_yaxes(showline=False, rangemode="tozero", **axis)


Draw = TypeVar("Draw", bound=Callable[..., go.Figure])


def says_parts(draw: Draw) -> Draw:
    """Make a figure of logs say under its title which of them is only a part of its run."""

    @wraps(draw)
    def drawn_with_parts(logs: Logs, **options: Any) -> go.Figure:
        named = logs_by_name(logs)
        drawn = draw(named if isinstance(logs, Mapping) else named[""], **options)
        parts = [part_words(log, escaped(name) or "The log") for name, log in named.items()]
        lines = [line for words in parts if words for line in textwrap.wrap(words, LINE_WIDTH)]
        if lines:
            more = "".join(
                f'<br><span style="font-size:{LINE_PX}px">{line}</span>' for line in lines
            )
            height = len(lines) * round(1.3 * TITLE_PX)
            drawn.layout.title.text += more
            drawn.update_layout(
                height=drawn.layout.height + height, margin_t=drawn.layout.margin.t + height
            )
        return drawn

    return cast(Draw, drawn_with_parts)


def empty_figure(palette: Palette, title: str, advice: str = NO_STEP) -> go.Figure:
    """Return a figure that explains why there is nothing to show."""
    drawn = new_figure(palette, title, advice=advice)
    drawn.update_layout(height=160, xaxis_visible=False, yaxis_visible=False)
    return drawn


def _balanced(title: str) -> list[str]:
    """Break the title into as few lines as possible, with about equal lengths."""
    lines = textwrap.wrap(title, TITLE_WIDTH)
    narrower = (textwrap.wrap(title, width) for width in range(10, TITLE_WIDTH))
    return next((one for one in narrower if len(one) == len(lines)), lines)


def _wrapped(words: str) -> list[str]:
    return [html.escape(line, quote=False) for line in textwrap.wrap(words, LINE_WIDTH)]


def _packed(keys: Sequence[tuple[str, str]]) -> list[str]:
    """Put the keys side by side, and start a new line when the next key does not fit."""
    lines, length = list[str](), LINE_WIDTH
    for mark, words in keys:
        key = f"{mark} {html.escape(words, quote=False)}" if mark else html.escape(words)
        if length + len(words) + 5 > LINE_WIDTH:
            lines, length = [*lines, key], len(words) + 2
        else:
            lines[-1] += f"&nbsp;&nbsp; {key}"
            length += len(words) + 5
    return lines
