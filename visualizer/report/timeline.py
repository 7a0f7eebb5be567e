"""The run over time as SVG: how many requests wait and why, the seats, the KV blocks, preemptions."""

import html
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from visualizer.indexed.known import Known
from visualizer.reading.regimes import Regimes
from visualizer.reading.waterfall.causes import CAUSES
from visualizer.reading.waterfall.picture import COLOURS, svg_key
from visualizer.reading.waterfall.words import in_words

_LEFT, _LANE, _GAP, _TOP = 92, 74, 20, 34
_PARTS = 400  # of the run's time
_TICK = 12  # height of the mark of a preemption, which leaves the blocks below it in sight
_OWN = {"seats": ("#424f7c", "#849eca"), "blocks": ("#0b7a75", "#4fb3a9")}


class _Part(NamedTuple):
    """Sums over a part of the run's time, weighted by how long each step of it took."""

    waiting: defaultdict[str, float]
    level: defaultdict[str, float]  # seats and blocks
    preempted: list[int]  # the steps


def timeline(
    regimes: Regimes, known: Known, ends: Sequence[float], widths: Sequence[int]
) -> list[str]:
    """Return the picture of a log with times, in each width; its last line names the regimes.

    ends  when each step ended
    """
    steps = regimes.columns.steps
    began = ends[0] - steps.busy[0]
    span = max(1, ends[-1] - began) / _PARTS
    parts = _parts(regimes, known, ends, began, span)
    begins = [
        (ends[steps.number.index(one.first)] - began) / span * bool(at)
        for at, one in enumerate(regimes)
    ]
    length = in_words(int(ends[-1] - began), "us")
    return [_drawn(regimes, parts, begins, length, width) for width in widths]


def _parts(
    regimes: Regimes, known: Known, ends: Sequence[float], began: float, span: float
) -> list[_Part]:
    """Divide the steps among the parts of the run's time, which take `span` each."""
    steps = regimes.columns.steps
    used = array("q", (blocks for one in known.plans for blocks in one.used))
    parts = [_Part(defaultdict(float), defaultdict(float), []) for _ in range(_PARTS)]
    for index, (end, busy) in enumerate(zip(ends, steps.busy, strict=True)):
        level = {"seats": steps.seats[index], "blocks": used[index]}
        first = end - began - busy
        for at in range(int(first / span), min(_PARTS - 1, int((end - began) / span)) + 1):
            share = (min(end - began, (at + 1) * span) - max(first, at * span)) / span
            for name, count in regimes.columns.amounts(index).items():
                parts[at].waiting[name] += count * share
            for name, count in level.items():
                parts[at].level[name] += count * share
        if steps.preempted[index]:
            at = min(_PARTS - 1, int((end - began) / span))
            parts[at].preempted.append(steps.number[index])
    return parts


def _drawn(
    regimes: Regimes, parts: Sequence[_Part], begins: Sequence[float], length: str, width: int
) -> str:
    """Draw the parts; regimes begin at `begins`, in parts."""
    settings = regimes.columns.settings
    causes = [one for one in CAUSES if any(part.waiting[one] for part in parts)]
    highest = max(1, *(sum(part.waiting.values()) for part in parts))
    waiting = [[part.waiting[cause] for part in parts] for cause in causes]
    seats, blocks = ([part.level[name] for part in parts] for name in ("seats", "blocks"))
    lane = partial(_lane, width)
    lanes = [
        lane(0, "waiting", highest, dict(zip(causes, waiting, strict=True))),
        lane(1, "seats", settings["max_batch_size"], {"seats": seats}),
        lane(2, "blocks", settings["num_blocks"], {"blocks": blocks}),
        *_preemptions(parts, width),
        *_regimes(regimes, begins, width),
    ]
    bottom = _TOP + 3 * (_LANE + _GAP)
    key, rows = svg_key(causes, _LEFT, bottom + 22, width)
    axis = (
        f'<text x="{_LEFT}" y="{bottom}">0</text>'
        f'<text x="{width}" y="{bottom}" text-anchor="end">{length}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 12 + 18 * rows}" '
        f'width="{width}" role="img" aria-label="The run over time">{_style(causes)}'
        f"{''.join(lanes)}{axis}{key}</svg>"
    )


def _x(part: float, width: int) -> float:
    return _LEFT + part * (width - _LEFT) / _PARTS


def _lane(width: int, row: int, name: str, most: float, shown: dict[str, list[float]]) -> str:
    """Areas on top of each other, in a lane from 0 to `most`."""
    base = _TOP + row * (_LANE + _GAP) + _LANE
    below, areas = [0.0] * _PARTS, []
    for one, values in shown.items():
        above = [low + value for low, value in zip(below, values, strict=True)]
        upper = list(_edge(above, most, base, width))
        lower = reversed(list(_edge(below, most, base, width)))
        areas.append(f'<path class="{one}" d="M{"L".join([*upper, *lower])}Z"/>')
        below = above
    line = f'<path class="line" d="M{_LEFT} {base}H{width}M{_LEFT} {base - _LANE}H{width}"/>'
    words = (
        f'<text x="0" y="{base - _LANE // 2 + 4}">{name}</text>'
        f'<text x="{_LEFT - 6}" y="{base - _LANE + 10}" text-anchor="end">{most:,.0f}</text>'
        f'<text x="{_LEFT - 6}" y="{base}" text-anchor="end">0</text>'
    )
    return "".join(areas) + line + words


def _edge(values: Sequence[float], most: float, base: int, width: int) -> Iterator[str]:
    """The points of a line from left to right, two for each part."""
    for at, value in enumerate(values):
        y = base - min(1, value / most) * _LANE
        yield f"{_x(at, width):.1f} {y:.1f}"
        yield f"{_x(at + 1, width):.1f} {y:.1f}"


def _preemptions(parts: Sequence[_Part], width: int) -> Iterator[str]:
    top = _TOP + 2 * (_LANE + _GAP)
    for at, part in enumerate(parts):
        if part.preempted:
            tip = f"<title>preempted in step {', '.join(map(str, part.preempted[:9]))}</title>"
            yield f'<path class="moment" d="M{_x(at + 0.5, width):.1f} {top}v{_TICK}">{tip}</path>'


def _regimes(regimes: Regimes, begins: Sequence[float], width: int) -> Iterator[str]:
    """A line where each regime begins, and its kind above where there is room, the costlier first."""
    bottom, named = _TOP + 3 * (_LANE + _GAP) - _GAP, list[tuple[float, float]]()
    both = zip(regimes, begins, strict=True)
    for one, begin in sorted(both, key=lambda pair: -pair[0].waited_in_all):
        at = _x(begin, width)
        yield f'<path class="regime" d="M{at:.1f} {_TOP - 22}V{bottom}"/>'
        end = at + 7 * len(one.kind) + 8
        if end <= width and all(end < other or at > last for other, last in named):
            named.append((at, end))
            yield f'<text x="{at + 4:.1f}" y="{_TOP - 12}">{html.escape(one.kind)}</text>'


def _style(causes: Sequence[str]) -> str:
    def rules(theme: int, ink: str) -> str:
        colours = {one: COLOURS[one][theme] for one in causes}
        colours |= {name: both[theme] for name, both in _OWN.items()}
        fills = "".join(f".{name}{{fill:{colour}}}" for name, colour in colours.items())
        lost = f".moment{{stroke:{COLOURS['preempted'][theme]}}}"
        return f"{fills}{lost}text{{fill:{ink}}}.line,.regime{{stroke:{ink}}}"

    return (
        "<style>text{font:12px Arial,'Liberation Sans',sans-serif}.moment{stroke-width:2}"
        ".line{stroke-opacity:.25;fill:none}.regime{stroke-opacity:.5;stroke-dasharray:2 3}"
        f"{rules(0, '#16181d')}@media(prefers-color-scheme:dark){{{rules(1, '#eceef2')}}}</style>"
    )
