"""The playground as HTML: the question, its meters, the controls, the runs so far and the lanes.

A notebook, the site and a saved notebook show the same HTML; `frontend/src/play/play.ts` moves it.
Elements with `data-part` are replaced after a run, and the controls stay as they are.
"""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visualizer.playing.people import People, Person, joined
from visualizer.playing.questions import Goal, Question, first_token_of
from visualizer.playing.settings import CONTROLS, MAIN, Control
from visualizer.playing.words import cost, hue, moved, sentence
from visualizer.reading.waterfall.causes import LOST, WAITING
from visualizer.reading.waterfall.picture import COLOURS, HUES
from visualizer.reading.waterfall.words import cause_name

_BASE, _HEIGHT = 24, 34  # of a lane: where its bars stand, and its height
_TICKS = 8
_URGENT = ("most urgent", "urgent")  # by priority


@dataclass(frozen=True)
class Ran:
    """A run so far: what was changed for it, and the values of the question's goals."""

    changed: list[str]
    people: People
    settings: Mapping[str, Any]
    values: tuple[float | None, ...]
    left_out: int = 0


def page_html(question: Question, following: int, runs: Sequence[Ran], error: str = "") -> str:
    """Return the playground. `runs` has this run last, and `following` is the next question."""
    message = f"{html.escape(error)} This change was not run." if error else ""
    now, before = runs[-1], runs[-2] if len(runs) > 1 else None
    return (
        f'<div class="ug-play"><style>{style()}</style>'
        f"<header><h1>{html.escape(question.text)}</h1>"
        f'<button type="button" data-question="{following}">Another question</button></header>'
        f'<div class="sides"><div><div data-part="meters">{_meters(question.goals, now, before)}</div>'
        f"{_form(now.settings, before.settings if before else None, len(now.people.all))}"
        f'<p data-part="message" role="alert">{message}</p>'
        '<div data-part="runs" tabindex="0" role="region" aria-label="Runs so far">'
        f"{_table(question.goals, runs)}</div></div>"
        f'<div class="run" data-part="run">{_run(question, now, before)}</div></div></div>'
    )


def _meters(goals: Sequence[Goal], now: Ran, before: Ran | None) -> str:
    past = before.values if before else (None,) * len(goals)
    return "".join(map(_meter, goals, now.values, past))


def _meter(goal: Goal, value: float | None, before: float | None) -> str:
    measure, limit = goal.measure, goal.limit
    known = [one for one in (value, before, limit) if one is not None]
    scale = 1.3 * max(known, default=1) or 1

    def at(one: float) -> str:
        return f"{min(100, 100 * one / scale):.2f}%"

    accepted = line = state = ""
    if limit is not None:
        side = f"left:{at(limit)};right:0" if measure.more else f"left:0;width:{at(limit)}"
        accepted = f'<i class="accepted" style="{side}"></i>'
        words = "at least" if measure.more else "at most"
        line = (
            f'<i class="goal" style="left:{at(limit)}"></i>'
            f'<small style="left:clamp(50px,{at(limit)},100% - 64px)">{words} '
            f"{html.escape(measure.words(limit))}</small>"
        )
        if goal.is_reached(value):
            state = "✓ reached"
        elif value is not None:
            away = measure.words(max(1, abs(value - limit)))
            state = f"{away} short" if measure.more else f"{away} too many"
            if measure.unit == "ms":
                state = f"{away} to go"
    dot = f'<i class="before" style="left:{at(before)}"></i>' if before is not None else ""
    fill = f'<i class="value" style="width:{at(value)}"></i>' if value is not None else ""
    kept = "reached" if goal.is_reached(value) else "missed"
    return (
        f'<div class="meter {kept}"><p><span>{html.escape(measure.label)} '
        f"<b>{html.escape(measure.words(value))}</b></span><span>{state}</span></p>"
        f'<div aria-hidden="true">{fill}{accepted}{line}{dot}</div></div>'
    )


def _form(now: Mapping[str, Any], before: Mapping[str, Any] | None, people: int) -> str:
    def control(name: str) -> str:
        old = before[name] if before and before[name] != now[name] else None
        return _control(CONTROLS[name], now[name], old, now, people)

    rest = [name for name in CONTROLS if name in now and name not in MAIN]
    hints = ", ".join(CONTROLS[name].label for name in rest[:4])
    return (
        f'<form autocomplete="off">{"".join(map(control, MAIN))}<details><summary>More '
        f"<span>{hints} …</span></summary>{''.join(map(control, rest))}</details></form>"
    )


def _control(control: Control, value: Any, before: Any, now: Mapping[str, Any], people: int) -> str:
    name, label = control.name, html.escape(control.label)
    tip = html.escape(control.explanation)
    was = "" if before is None else f"before: {html.escape(control.text(before))}"
    if control.choices:
        if name in MAIN:
            options = "".join(
                f'<label><input type="radio" name="{name}" value="{html.escape(str(choice))}"'
                f"{' checked' if choice == value else ''}><span>{html.escape(words)}</span></label>"
                for words, choice in control.choices
            )
            return (
                f'<fieldset title="{tip}"><legend>{label}</legend><div class="choices">{options}</div>'
                f'<small data-part="{name}">{was}</small></fieldset>'
            )
        options = "".join(
            f'<option value="{html.escape(json.dumps(choice))}"'
            f"{' selected' if choice == value else ''}>"
            f"{html.escape(words)}</option>"
            for words, choice in control.choices
        )
        field = f'<select name="{name}">{options}</select>'
    elif isinstance(value, bool):
        field = f'<input type="checkbox" name="{name}"{" checked" if value else ""}>'
    elif control.limits is None:
        field = f'<input type="number" name="{name}" min="0" max="9999" value="{value}">'
    else:
        return _slider(control, value, before, now, people)
    return (
        f'<label class="row" title="{tip}"><span>{label}</span>{field}'
        f'<small data-part="{name}">{was}</small></label>'
    )


def _slider(control: Control, value: Any, before: Any, now: Mapping[str, Any], people: int) -> str:
    assert control.limits is not None
    least, most, step = control.limits
    if control.name == "max_batch_size":
        most = min(most, max(people, 8))
    least, most = min(least, value), max(most, value)
    if (value - least) % step:
        step = 1
    ghost = ""
    if before is not None:
        part = (before - least) / (most - least)
        if 0 <= part <= 1:
            ghost = f'<i style="left:calc({part:.4f}*(100% - 16px) + 8px)"></i>'
        ghost += f"<small>before: {control.text(before)}</small>"
    more = ""
    if control.name == "max_kv_tokens":
        blocks = value // now["block_size"]
        more = f'<span data-part="blocks"> · {blocks:,} blocks</span>'
    return (
        f'<label class="slider" title="{html.escape(control.explanation)}">'
        f"<span>{html.escape(control.label)}</span><span><output>{value:,g}</output> "
        f'{control.unit}{more}</span><span class="track">'
        f'<input type="range" name="{control.name}" min="{least}" max="{most}" step="{step}" '
        f'value="{value:g}" aria-label="{html.escape(control.label)}">'
        f'<span data-part="{control.name}">{ghost}</span></span></label>'
    )


def _table(goals: Sequence[Goal], runs: Sequence[Ran]) -> str:
    heads = "".join(f'<th scope="col">{html.escape(_short(goal))}</th>' for goal in goals)
    rows = []
    for number, run in enumerate(runs, 1):
        cells = "".join(
            f"<td>{html.escape(goal.measure.words(value))}</td>"
            for goal, value in zip(goals, run.values, strict=True)
        )
        name = html.escape(", ".join(run.changed) or "the start")
        now = ' class="now"' if number == len(runs) else ""
        rows.append(f'<tr{now}><th scope="row">{number}&ensp;{name}</th>{cells}</tr>')
    return (
        f'<table><thead><tr><th scope="col">Runs so far</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows[-8:])}</tbody></table>"
    )


def _short(goal: Goal) -> str:
    return goal.measure.label.removesuffix(" after").removesuffix(" between two tokens")


def _run(question: Question, now: Ran, before: Ran | None) -> str:
    past = before.people if before else None
    people = now.people.all
    end = 1.02 * max([one.end for one in people] + [one.end for one in (past.all if past else [])])
    focus = now.people.named(question.focus)
    lanes = "".join(
        _lane(one, past.named(one.name) if past else None, end, _limit(question, one), one == focus)
        for one in people
    )
    used = {span.cause for one in people for span in one.time.spans}
    keys = "".join(
        f'<span><i class="{cause}"></i>{html.escape(cause_name(cause))}</span>'
        for cause in COLOURS
        if cause in used and cause in (*WAITING, "preempted", "recomputed")
    )
    ghosts = '<span><i class="ghost"></i>the run before</span>' if past else ""
    left = f" {now.left_out} requests were left out to keep the run short." if now.left_out else ""
    paid = f"<p>{cost(now.people, past)}</p>" if past else ""
    return (
        f'<p class="say">{sentence(now.people, past, now.changed, question.focus)}{left}</p>'
        f'<p class="key"><span><i class="prompt"></i>prompt, then answer</span>{keys}{ghosts}</p>'
        f'<div class="lanes">{lanes}{_axis(end)}</div>{paid}'
    )


def _limit(question: Question, person: Person) -> float | None:
    """Return the time by which a goal wants this person's first token."""
    label = first_token_of(person.name).label
    wanted = [goal.limit for goal in question.goals if goal.measure.label == label]
    return person.arrived + wanted[0] if wanted and wanted[0] is not None else None


def _lane(one: Person, past: Person | None, end: float, limit: float | None, is_focus: bool) -> str:

    def at(time: float) -> str:
        return f"{100 * time / end:.2f}%"

    finish = moved(one.end - past.end) if past else f"{one.end:,.0f} ms"
    notes = ""
    if limit is not None:
        notes += f'<i class="by" style="left:{at(limit)}"><small>goal: first token</small></i>'
    if is_focus and one.first_token is not None and one.ttft is not None:
        side = " left" if one.first_token > 0.6 * end else ""
        notes += (
            f'<i class="first{side}" style="left:{at(one.first_token)}">'
            f"<b>first token, {one.ttft:,.0f} ms</b></i>"
        )
    if is_focus and past and past.first_token is not None:
        notes += f'<i class="past" style="left:{at(past.first_token)}"></i>'
    focus = " focus" if is_focus else ""
    urgent = f", {_URGENT[one.priority]}" if one.priority < len(_URGENT) else ""
    return (
        f'<div class="lane{focus}" style="--hue:{hue(one.place)}"><span class="name"><i></i>'
        f"<b>{html.escape(one.name)}</b><br><small>{one.prompt_tokens:,} tokens{urgent}</small></span>"
        f'<span class="time">{_bars(one, past, end)}{notes}</span>'
        f'<span class="end"><small>finishes </small>{finish}</span></div>'
    )


def _bars(one: Person, past: Person | None, end: float) -> str:

    def x(time: float) -> float:
        return 1000 * time / end

    drawn = []
    for span in joined(one.time.spans):
        if span.cause == "between_passes":
            continue
        start, wide = x(span.start / 1000), x(span.duration / 1000)
        is_prompt = span.cause in ("prefill", "recomputed")
        kind = span.cause if span.cause in (*WAITING, "preempted", "recomputed") else "own"
        high = 16 if is_prompt else 8 if kind == "own" else 6
        drawn.append(
            f'<rect class="{kind}" x="{start:.2f}" y="{_BASE - high}" width="{wide:.2f}" '
            f'height="{high}"><title>{html.escape(cause_name(span.cause))}, '
            f"{span.duration / 1000:,.0f} ms</title></rect>"
        )
    if one.place >= 10:  # the hue of another request: a line inside
        begin = x(one.arrived)
        dots = ' stroke-dasharray="2 3"' if one.place < 20 else ""
        drawn.append(f'<path class="line" d="M{begin:.2f} {_BASE - 4}H{x(one.end):.2f}"{dots}/>')
    drawn.append(f'<path class="came" d="M{x(one.arrived):.2f} {_BASE - 12}V{_BASE}"/>')
    if past:
        work = [span for span in past.time.spans if span.cause in ("prefill", "decode")]
        begin = work[0].start / 1000 if work else past.end
        drawn.append(
            f'<path class="waited" d="M{x(past.arrived):.2f} 30H{x(begin):.2f}"/>'
            f'<rect class="ghost" x="{x(begin):.2f}" y="27.5" '
            f'width="{x(past.end - begin):.2f}" height="5"/>'
        )
    return (
        f'<svg viewBox="0 0 1000 {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(drawn)}</svg>"
    )


def _axis(end: float) -> str:
    size = next(
        step * power
        for power in (1, 10, 100, 1000, 10_000, 100_000)
        for step in (1, 2, 5)
        if end / (step * power) <= _TICKS
    )
    ticks = "".join(
        f'<i style="left:{100 * time / end:.2f}%">{time:,}{" ms" if not time else ""}</i>'
        for time in range(0, int(end) + 1, size)
    )
    return f'<div class="lane axis" aria-hidden="true"><span class="time">{ticks}</span></div>'


def style() -> str:
    """Return the style sheet, with the colours of requests and causes in both themes."""
    hues = "".join(
        f"--hue{number}:light-dark({light},{dark});"
        for number, (light, dark) in enumerate(zip(*HUES, strict=True))
    )
    causes = "".join(
        f".ug-play .{cause}{{--cause:light-dark({light},{dark})}}"
        for cause, (light, dark) in COLOURS.items()
        if cause in (*WAITING, *LOST)
    )
    sheet = Path(__file__).with_name("playground.css").read_text("utf-8")
    return f"{sheet}.ug-play{{{hues}}}{causes}"
