"""The time to move KV blocks compared with the time to compute them, by number of blocks.

Moving breaks even where its line crosses that of computing.
"""

from collections.abc import Callable, Mapping

import plotly.graph_objects as go

from visualizer.figures.theme import empty_figure, escaped, new_figure, palette_of

Milliseconds = Callable[[int], float]  # (number of blocks) -> time


def break_even(
    compute_ms: Milliseconds,
    move_ms: Mapping[str, Milliseconds],
    *,
    most: int,
    theme: str | None = None,
) -> go.Figure:
    """Draw the time to compute 1 to `most` blocks, and the time to move them over each link.

    A ring marks the first number of blocks from which moving is cheaper.
    """
    palette = palette_of(theme)
    if most < 1:
        return empty_figure(palette, "No blocks to move", f"most must be at least 1, got {most}")
    numbers = range(1, most + 1)
    computing = [compute_ms(blocks) for blocks in numbers]
    moving = {name: [one(blocks) for blocks in numbers] for name, one in move_ms.items()}
    first = {name: _first_cheaper(times, computing) for name, times in moving.items()}
    words = {
        name: f"cheaper from {_blocks(found + 1)} on" if found is not None else "never cheaper"
        for name, found in first.items()
    }
    drawn = new_figure(palette, _title(words), {"computing": "no move"} | words)
    for index, (name, times) in enumerate(({"computing": computing} | moving).items()):
        drawn.add_scatter(
            x=list(numbers), y=times, name=escaped(name), mode="lines",
            line={"color": palette.hue(index), "width": 2.5},
            hovertemplate=f"{escaped(name)}: %{{x}} blocks, %{{y:,.4~g}} ms<extra></extra>",
        )  # fmt: skip
        if (found := first.get(name)) is not None:
            drawn.add_scatter(
                x=[found + 1], y=[times[found]], name=f"{escaped(name)} breaks even",
                mode="markers", hoverinfo="skip",
                marker={
                    "size": 12, "color": palette.background,
                    "line": {"color": palette.hue(index), "width": 2.5},
                },
            )  # fmt: skip
    drawn.update_xaxes(title_text="blocks", rangemode="tozero")
    drawn.update_yaxes(title_text="ms")
    return drawn


def _first_cheaper(times: list[float], computing: list[float]) -> int | None:
    """Return the index from which moving is always cheaper, or None if it is not at the last one."""
    slower = [move >= compute for move, compute in zip(times, computing, strict=True)]
    first = len(slower) - slower[::-1].index(True) if True in slower else 0
    return first if first < len(slower) else None


def _blocks(number: int) -> str:
    return "1 block" if number == 1 else f"{number:,} blocks"


def _title(words: Mapping[str, str]) -> str:
    if len(words) == 1:
        [said] = words.values()
        return f"Moving is {said}"
    pays = sum(said != "never cheaper" for said in words.values())
    return f"Moving pays off over {pays} of {len(words)} links"
