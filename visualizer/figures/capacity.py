"""Throughput and latency against the arrival rate: how much a server can take.

The upper half shows complete requests per second, and the part of them that met the SLO. The lower
half shows the time to first token on a logarithmic axis, because it grows without limit past
saturation. A ring marks the knee, and a line the limit of the SLO.
"""

import math
from collections.abc import Mapping

import plotly.graph_objects as go

from engine.simulation.capacity.curve import Sweep
from visualizer.figures.theme import empty_figure, escaped, new_figure, palette_of, short_name
from visualizer.reading.durations import duration
from visualizer.reading.summary import three_digits

ADVICE = "Measure some rates first, for example with sweep(simulated(), Load())."


def capacity(sweeps: Sweep | Mapping[str, Sweep], *, theme: str | None = None) -> go.Figure:
    """Draw one sweep, or several by name on one scale."""
    palette = palette_of(theme)
    named = {"": sweeps} if isinstance(sweeps, Sweep) else dict(sweeps)
    named = {name: one for name, one in named.items() if one.points}
    if not named:
        return empty_figure(palette, "No rate was measured", ADVICE)
    limited = any(one.header.slo.limits for one in named.values())
    drawn = new_figure(
        palette,
        _title(named),
        {name: _words(one) for name, one in named.items()},
        keys=[
            ("○", "knee"),
            ("━", "answered, TTFT p50"),
            ("┅", "TTFT p99"),
            *([("┈", "goodput: within the SLO")] if limited else []),
        ],
        rows=2,
    )
    across, up = drawn.layout.xaxis.to_plotly_json(), drawn.layout.yaxis.to_plotly_json()
    drawn.set_subplots(2, 1, shared_xaxes=True, vertical_spacing=0.07)
    drawn.update_xaxes(**across)
    drawn.update_yaxes(**up)
    for index, (name, one) in enumerate(named.items()):
        _draw(drawn, one, escaped(name), palette.hue(index), palette.background)
    if (
        limit := next((one.header.slo.limits.get("ttft") for one in named.values()), None)
    ) is not None:
        drawn.add_hline(
            limit, row=2, col=1, line={"color": palette.muted, "width": 1, "dash": "dot"},
            annotation={
                "text": f"SLO {duration(limit)}", "font": {"color": palette.muted, "size": 11},
                "xanchor": "left", "x": 0, "yanchor": "bottom", "y": math.log10(limit),
            },
        )  # fmt: skip
    drawn.update_xaxes(type="log", **_ticks(named))
    drawn.update_xaxes(title_text="requests per second offered (logarithmic)", row=2)
    drawn.update_yaxes(title_text="requests/s answered", row=1)
    drawn.update_yaxes(
        title_text="TTFT (ms, logarithmic)", type="log", dtick=1, tickformat=",", row=2
    )
    return drawn


def _draw(drawn: go.Figure, found: Sweep, name: str, colour: str, background: str) -> None:
    rates = [point.rate for point in found.points]
    said = f"{name}<br>" if name else ""
    drawn.add_scatter(
        x=rates, y=[point.requests_per_s for point in found.points], name=f"{name} answered".strip(),
        mode="lines+markers", line={"color": colour, "width": 2.5}, marker={"size": 5},
        hovertemplate=said + "%{x:.3~g}/s offered, %{y:.3~g}/s answered<extra></extra>",
        row=1, col=1,
    )  # fmt: skip
    if found.header.slo.limits:
        drawn.add_scatter(
            x=rates, y=[point.goodput for point in found.points], name=f"{name} goodput".strip(),
            mode="lines", line={"color": colour, "width": 2, "dash": "dot"},
            hovertemplate=said + "%{x:.3~g}/s offered, %{y:.3~g}/s within the SLO<extra></extra>",
            row=1, col=1,
        )  # fmt: skip
    for share, dash in ((0.5, "solid"), (0.99, "dash")):
        drawn.add_scatter(
            x=rates, y=[point.percentile("ttft", share) for point in found.points],
            name=f"{name} TTFT p{100 * share:.0f}".strip(), mode="lines",
            line={"color": colour, "width": 2.5 if share == 0.5 else 2, "dash": dash},
            hovertemplate=said + f"%{{x:.3~g}}/s offered, TTFT p{100 * share:.0f} "
            "%{y:,.3~g} ms<extra></extra>",
            row=2, col=1,
        )  # fmt: skip
    if (bend := found.knee) is not None:
        for row, height in ((1, bend.requests_per_s), (2, bend.percentile("ttft", 0.99))):
            drawn.add_scatter(
                x=[bend.rate], y=[height], name=f"{name} knee".strip(), mode="markers",
                hoverinfo="skip", row=row, col=1,
                marker={
                    "size": 12, "color": background, "line": {"color": colour, "width": 2.5},
                },
            )  # fmt: skip


def _ticks(named: Mapping[str, Sweep]) -> dict[str, list[float] | list[str]]:
    """Return ticks: round numbers, fewer of them over several decades."""
    rates = [point.rate for one in named.values() for point in one.points]
    low, high = min(rates), max(rates)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high > 20 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)
    ticks = [factor * 10.0**decade for decade in decades for factor in factors]
    return {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _title(named: Mapping[str, Sweep]) -> str:
    best = max(named, key=lambda name: getattr(named[name].nominal, "requests_per_s", 0.0))
    found = named[best]
    who = f"{short_name(best)}:" if best else "Capacity:"
    highest = found.nominal
    assert highest is not None
    return f"{who} up to {three_digits(highest.requests_per_s)} requests/s"


def _words(found: Sweep) -> str:
    words = []
    if (bend := found.knee) is not None:
        words.append(f"knee at {three_digits(bend.rate)}/s")
    if found.header.slo.limits:
        best = found.usable
        words.append(f"SLO met up to {three_digits(best.rate)}/s" if best else "SLO never met")
    return ", ".join(words) or "no request was answered"
