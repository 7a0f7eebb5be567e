"""The waterfall as HTML for a notebook: one bar per request in SVG, with a table's words beside it.

Height and temperature tell the families apart: work is cool, waiting is warm, lost time is red. The
colours are those of the board (`visualizer/frontend/src/drawing/causes.ts`). The ground is transparent,
and the colours follow the notebook's theme.
"""

import html
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from visualizer.reading.waterfall.causes import CAUSES, WAITING
from visualizer.reading.waterfall.words import cause_name, in_words

if TYPE_CHECKING:
    from visualizer.reading.waterfall.spans import Span
    from visualizer.reading.waterfall.waterfall import RequestTime

MOST_ROWS = 40
_WIDTH, _NAME, _END, _PITCH, _BAR = 900, 110, 80, 30, 20
_LEAST = 1  # pixel: narrower bars are drawn as one
_LONGEST = 26  # characters of a name: vLLM's ids are longer
# The hues of requests in light and in dark (`visualizer/frontend/src/drawing/palette.ts`).
HUES = tuple(
    tuple(hues.split())
    for hues in (
        "#293ec1 #cf7f22 #006942 #8b1868 #836900 #0ea493 #9b79fd #de3460 #1f78b2 #92081a",
        "#6374ff #ef9206 #87bd7e #c65b93 #f0e175 #30f6e8 #d4a7ff #e64031 #3ca0bd #feaec6",
    )
)
# cause: colour in light, in dark; the same families as on the board
COLOURS = {
    "prefill": ("#424f7c", "#849eca"),
    "decode": ("#a2aec7", "#4e5e7e"),
    "batch_full": ("#c5b206", "#efd604"),
    "no_free_blocks": ("#773a01", "#ef8c37"),
    "whole_sequence": ("#e1b789", "#f1b690"),
    "reserved_blocks": ("#a24f3f", "#bc6c00"),
    "token_budget": ("#85945d", "#547045"),
    "static_batch": ("#fbdf6e", "#ffff9c"),
    "policy": ("#3c3725", "#faebd4"),
    "adapter_slot": ("#6d4a8f", "#c9a9e6"),
    "expected_tokens": ("#2f7d84", "#63c5cd"),
    "prefill_batch": ("#b08fc0", "#8a5fa0"),
    "awaits_token": ("#7c7c6f", "#9e9e9e"),
    "step_in_progress": ("#dad8c6", "#463b2c"),
    "after_preemption": ("#d39496", "#735059"),
    "preempted": ("#eb3c10", "#da796b"),
    "recomputed": ("#7b4b4f", "#a76e72"),
    "others_prefill": ("#662d49", "#b2290e"),
    "between_passes": ("#cfdbe4", "#313138"),
    "failed_step": ("#16181d", "#eceef2"),
    "paused": ("#666674", "#818193"),
    "unknown": ("#7585a1", "#b4bfd1"),
}
_HEIGHTS = dict.fromkeys((*WAITING, "preempted", "paused"), 9) | {
    "prefill": _BAR,
    "recomputed": _BAR,
}
_HATCH = (
    '<defs><pattern id="ug-again" width="5" height="5" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(-45)"><rect class="stripe" width="3.3" height="5"/></pattern></defs>'
)


def picture(times: Sequence["RequestTime"], count: int, words: str) -> str:
    """Return HTML: the bars of `times` on one scale, and `words` below. `count` is of all requests."""
    shown = times[:MOST_ROWS]
    longest = max((time.total for time in shown), default=0)
    if not longest:
        return f"<pre>{html.escape(words)}</pre>"
    more = f"<p>and {count - len(shown)} more requests</p>" if count > len(shown) else ""
    used = [cause for cause in CAUSES if any(cause in time.by_cause for time in shown)]
    return (
        f'<div class="ug-waterfall"><style>{_style()}</style><p>{"".join(map(_key, used))}</p>'
        f"{_svg(shown, 0)}{more}<pre>{html.escape(words)}</pre></div>"
    )


def bars(times: Sequence["RequestTime"], width: int = _WIDTH) -> str:
    """Return an SVG that stands alone: the bars of `times` on one scale, and a key below them."""
    used = [cause for cause in CAUSES if any(cause in time.by_cause for time in times)]
    key, rows = svg_key(used, 0, _PITCH * len(times) + 22, width)
    more = f"<style>{_style()}</style>{key}"
    return _svg(times, 12 + 18 * rows, more, ' class="ug-waterfall"', width)


def _svg(
    times: Sequence["RequestTime"],
    room: int,
    more: str = "",
    attributes: str = "",
    width: int = _WIDTH,
) -> str:
    """Draw bars, and leave room for something below."""
    longest = max((len(time.name) for time in times), default=0)
    left = max(_NAME, 7 * min(longest, _LONGEST) + 8)
    scale = (width - left - _END) / max([1, *(time.total for time in times)])
    rows = "".join(
        _row(time, index * _PITCH, left, scale, width) for index, time in enumerate(times)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg"{attributes} '
        f'viewBox="0 0 {width} {_PITCH * len(times) + room}" width="{width}" role="img" '
        f'aria-label="Where the time of {len(times)} requests went">{more}{_HATCH}{rows}</svg>'
    )


def svg_key(causes: Sequence[str], left: int, y: int, width: int) -> tuple[str, int]:
    """Return the key of some causes for an SVG, and how many rows of 18 it has."""
    said, x, rows = [], left, 1
    for cause in causes:
        name = cause_name(cause)
        if x + 24 + 7 * len(name) > width:
            x, rows = left, rows + 1
        at = y + 18 * (rows - 1)
        said.append(
            f'<rect class="{cause}" x="{x}" y="{at - 9}" width="12" height="10"/>'
            f'<text x="{x + 17}" y="{at}">{html.escape(name)}</text>'
        )
        x += 31 + 7 * len(name)
    return "".join(said), rows


def _row(time: "RequestTime", top: int, left: int, scale: float, width: int) -> str:
    base = top + _PITCH - 5
    begin = time.spans[0].start if time.spans else 0
    bars = "".join(
        _bar(run, left + (run[0].start - begin) * scale, base, scale, time)
        for run in _runs(time.spans, _LEAST / scale)
    )
    name, total = time.name, in_words(time.total, time.unit)
    name = html.escape(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…")
    first = ""
    if time.first_token is not None and time.arrived is not None:
        x = left + (time.first_token - begin) * scale
        first = f'<circle class="first" cx="{x:.1f}" cy="{base - _BAR - 2}" r="2.5"/>'
    return (
        f'<text x="0" y="{base - 2}">{name}</text>{bars}{first}'
        f'<text x="{width}" y="{base - 2}" text-anchor="end">{total}</text>'
    )


def _runs(spans: Sequence["Span"], least: float) -> list[list["Span"]]:
    """Return the spans, neighbours with one cause together, and also those that take less than `least`.

    A preemption stays alone.
    """
    runs = list[list["Span"]]()
    for (cause, _), group in groupby(spans, key=lambda span: (span.cause, span.about)):
        run = list(group)
        is_alone = not runs or "preempted" in (cause, runs[-1][0].cause)
        if is_alone or max(_length(runs[-1]), _length(run)) >= least:
            runs.append(run)
        else:
            runs[-1] += run
    return runs


def _length(run: list["Span"]) -> int:
    return run[-1].end - run[0].start


def _bar(run: list["Span"], x: float, base: int, scale: float, time: "RequestTime") -> str:
    """Draw a run, which has the look of the cause that takes most of it."""
    times = Counter[str]()
    for span in run:
        times[span.cause] += span.duration
    cause, spent = max(times, key=lambda one: times[one]), _length(run)
    height, width = _HEIGHTS.get(cause, 12), spent * scale
    is_behind = any(span.about is not None for span in run if span.cause == cause)
    behind = ' fill-opacity=".5"' if is_behind and cause in WAITING else ""
    first, last = run[0].step, run[-1].step
    steps = f"step {first}" if len(run) == 1 else f"steps {first} to {last}"
    name = cause_name(cause) + " and others" * (len(times) > 1)
    tip = html.escape(f"{name}, {in_words(spent, time.unit)}, {steps}")
    start = ""
    if cause == "preempted":  # the moment, and the dashes of the wait
        start = f'<path class="moment" d="M{x:.2f} {base - _BAR}V{base}"/>'
    return (
        f'<rect class="{cause}" x="{x:.2f}" y="{base - height}" width="{width:.2f}" '
        f'height="{height}"{behind}><title>{tip}</title></rect>{start}'
    )


def _key(cause: str) -> str:
    return f'<span><i class="{cause}"></i>{html.escape(cause_name(cause))}</span> '


def _style() -> str:
    def rules(theme: int, before: str = "") -> str:
        colours = {cause: both[theme] for cause, both in COLOURS.items()}
        lost, again = colours["preempted"], colours["recomputed"]
        plain = "".join(
            f"{before}.ug-waterfall .{cause}{{fill:{colour};background:{colour}}}"
            for cause, colour in colours.items()
        )
        return (
            f"{plain}{before}.ug-waterfall .stripe{{fill:{again}}}"
            f"{before}.ug-waterfall :is(.moment,rect.preempted){{stroke:{lost}}}"
            f"{before}.ug-waterfall rect.others_prefill{{stroke:{colours['others_prefill']}}}"
            f"{before}.ug-waterfall i.preempted{{background:none;outline:1.5px dashed {lost}}}"
            f"{before}.ug-waterfall i.recomputed{{background:"
            f"repeating-linear-gradient(45deg,{again} 0 3px,transparent 3px 5px)}}"
        )

    jupyter = "body[data-jp-theme-light={}] "
    return (
        ".ug-waterfall:is(svg,:has(svg)){font:12px Arial,'Liberation Sans',sans-serif}"
        ".ug-waterfall svg{max-width:100%;height:auto}"
        ".ug-waterfall pre{font:12px/1.5 Menlo,Consolas,'Liberation Mono',monospace}"
        ".ug-waterfall text,.ug-waterfall .first{fill:currentColor}"
        ".ug-waterfall span{margin-right:12px;font-size:12px;white-space:nowrap}"
        ".ug-waterfall i{display:inline-block;width:14px;height:10px;margin-right:5px}"
        f"{rules(0)}@media (prefers-color-scheme:dark){{{rules(1)}}}"
        f"{rules(0, jupyter.format('true'))}{rules(1, jupyter.format('false'))}"
        ".ug-waterfall .moment{stroke-width:2}"
        "body .ug-waterfall rect.preempted{fill-opacity:0;stroke-dasharray:4 2.5}"
        "body .ug-waterfall rect.others_prefill{fill-opacity:.18}"
        "body .ug-waterfall rect.paused{fill-opacity:.35}"
        "body .ug-waterfall.ug-waterfall rect.recomputed{fill:url(#ug-again)}"
        ".ug-waterfall i.others_prefill{opacity:.4}"
    )
