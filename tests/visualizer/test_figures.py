"""The figures show the frames' numbers, state the result, and are legible in light and dark."""

import html
import json
import re
from itertools import pairwise
from typing import Any

import msgspec
import plotly.graph_objects as go
import pytest

from engine import Cost, EngineConfig, EventLog, Load, Sweep, Workload, simulate, simulated, sweep
from engine.core.log import vocabulary as v
from engine.models.configurations import CONFIGURATIONS
from engine.models.kv_sizes import kv_sizes
from engine.simulation.capacity.curve import Header
from engine.simulation.scenarios import scenario
from engine.simulation.workload import lognormal, poisson
from tests.engine.workloads import random_log
from tests.facts import assert_names
from visualizer import compare, figures, show
from visualizer.figures.theme import LINE_WIDTH, PALETTES
from visualizer.logs import StepIndex, part_of
from visualizer.reading.summary import summary

THEMES = ("light", "dark", None)


def served(per_second: float, requests: int = 120, **settings: Any) -> EventLog:
    workload = Workload.generate(
        requests, arrivals=poisson(per_second), prompt=lognormal(60, 0.6, 200),
        output=lognormal(30, 0.8, 80), groups=4, shared_tokens=48, seed=3,
    )  # fmt: skip
    defaults = dict(token_budget=128, max_batch_size=16, max_kv_tokens=1024, block_size=16)
    return simulate(workload, EngineConfig(**(defaults | settings)), cost=Cost(6, 0.08))


@pytest.fixture(scope="module")
def busy():
    return served(25)


def heading(figure: go.Figure) -> list[str]:
    lines = figure.layout.title.text.split("<br>")
    return [html.unescape(re.sub("<[^>]*>", "", line)) for line in lines]


def drawn(figure: go.Figure, name: str) -> go.Scatter:
    (found,) = [trace for trace in figure.data if trace.name == name]
    return found


def test_a_log_without_its_beginning_says_so_wherever_its_totals_are_shown(busy):
    ends = StepIndex(busy).ends
    last, cut = max(ends), part_of(busy, ends[40], len(busy))
    drawn = figures.overlap({"whole": busy, "cut": cut})
    assert_names(" ".join(heading(drawn)[-2:]), "cut", 40)
    assert len(heading(figures.overlap(busy))) < len(heading(figures.overlap(cut)))
    assert_names(summary(cut).splitlines()[0], 41, last, 40)
    assert not summary(busy).startswith("part")
    assert_names(show(cut), last)
    assert_names(compare(busy, cut).note, "B", 40)


def twelve(cpu_ms: float = 5, **settings: Any) -> EventLog:
    """Return lesson 04's twelve requests, on a machine that needs CPU time to schedule."""
    story = scenario("continuous_batching")
    config = msgspec.structs.replace(story.config, **settings)
    return simulate(story.workload, config, cost=Cost(10, 0.25, cpu_ms=cpu_ms))


def bars(figure: go.Figure, verb: str) -> list[list[tuple[float, float]]]:
    """Return (start, end) of a lane's bars, for each log."""
    lanes = [trace for trace in figure.data if trace.name == verb]
    return [
        [(start, start + length) for start, length in zip(one.base, one.x, strict=True)]
        for one in lanes
    ]


def test_overlap_shows_gaps_where_the_device_waits_and_none_one_step_ahead():
    figure = figures.overlap({"waits": twelve(), "ahead": twelve(async_scheduling=True)})
    (cpu_waits, cpu_ahead), (waits, ahead) = bars(figure, "schedules"), bars(figure, "computes")
    assert (len(waits), len(ahead)) == (40, 43)
    assert len(cpu_ahead) == 44  # the last finds no row to schedule
    gaps = [start - end for (_, end), (start, _) in pairwise(waits)]
    assert gaps == [5.0] * 39
    assert [start - end for (_, end), (start, _) in pairwise(ahead)] == [0.0] * 42
    assert all(cpu[1] == run[0] for cpu, run in zip(cpu_waits, waits, strict=True))
    assert all(
        before[0] <= cpu[0] < before[1]
        for cpu, before in zip(cpu_ahead[2:], ahead[1:], strict=True)
    )
    assert_names(" ".join(heading(figure)), "69%", "99%")
    notes = [note.text for note in figure.layout.annotations]
    assert_names(notes[0], "waits", 40, "653 ms", "69%")
    assert_names(notes[1], "ahead", 43, "488 ms", "99%")
    # The step that admits a chosen request is marked.
    logs = {"waits": twelve(), "ahead": twelve(async_scheduling=True)}
    figure = figures.overlap(logs, select=5, theme="light")
    marked = [
        [row[0] for row, colour in zip(one.customdata, one.marker.color, strict=True)
         if colour == PALETTES["light"].hue(1)]
        for one in figure.data
    ]  # fmt: skip
    assert marked == [[5], [5], [6], [6]]
    assert_names(" ".join(heading(figure)), "Eva")


def test_lanes_draw_each_span_of_one_step_once():
    """And the shares in the heading are those of the spans."""
    spans = [
        [["compute", 0, 40, 0], ["wait", 40, 60, 0], ["all_reduce", 60, 80, 768]],
        [["compute", 0, 60, 0], ["all_reduce", 60, 80, 768], ["compute", 80, 100, 0]],
    ]
    log = EventLog()
    log.append(v.StepStarted(3))
    log.append(v.StepScheduled([v.ScheduledRow(1, 0, 5), v.ScheduledRow(2, 9, 1)], []))
    log.append(v.StepFinished([], 3, t={"devices": spans}))
    log.append(v.StepStarted(4))
    log.append(v.StepFinished([], 4, t={"devices": []}))
    figure = figures.lanes(log)
    assert_names(" ".join(heading(figure)), "Step 3", "6 tokens", "60%", "10%", "20%")
    bars = {
        (lane, start, start + length)
        for trace in figure.data
        for lane, start, length in zip(trace.y, trace.base, trace.x, strict=True)
    }
    assert len(bars) == sum(map(len, spans))
    for lane, own in enumerate(spans):
        assert {(lane, start / 1000, end / 1000) for _, start, end, _ in own} <= bars
    with pytest.raises(ValueError, match="step 4"):
        figures.lanes(log, step=4)
    assert_names(" ".join(heading(figures.lanes(EventLog()))), "several devices")


def test_a_step_stands_under_the_roof_that_holds_it_back():
    steps = {"decode": (2e9, 2e9, 4e-2), "prefill": (1e12, 2e9, 2.0)}
    figure = figures.roofline(steps, flops_per_s=1e12, bytes_per_s=1e11)
    roof, decode, prefill = figure.data
    assert (roof.x[1], roof.y[1:]) == (10, (1e12, 1e12))
    assert roof.y[0] == roof.x[0] * 1e11
    assert (decode.x[0], decode.y[0]) == (1, 5e10)
    assert (prefill.x[0], prefill.y[0]) == (500, 5e11)
    title, *lines = heading(figure)
    assert_names(title, 10, "FLOPs/byte")
    assert_names(lines[0], "decode", 1, 50, "GFLOP/s")
    assert_names(lines[1], "prefill", 500, "GFLOP/s")
    assert heading(figures.roofline({}, flops_per_s=1, bytes_per_s=1))[0]


def test_each_user_is_a_cell_of_its_size_beside_the_weights():
    llama = kv_sizes(CONFIGURATIONS["Llama 3.1 8B"].entries)
    few, many = llama.fit(80e9, 8192), llama.fit(80e9, 64)
    figure = figures.users({"few": few, "many": many})
    cells, row = drawn(figure, "few: users"), drawn(figure, "few: weights")
    starts = list(cells.x[::6])
    assert len(starts) == few.users and row.x[1] == starts[0] == few.weights / 1e9
    assert starts[1] - starts[0] == pytest.approx(few.user_bytes / 1e9)
    assert max(x for x in cells.x if x is not None) <= few.device_bytes / 1e9
    one_box = drawn(figure, "many: users").x
    assert len(one_box) == 6
    assert one_box[1] - one_box[0] == pytest.approx(many.users * many.user_bytes / 1e9)
    assert_names(heading(figure)[0], "8,192", few.users)
    assert heading(figures.users({}))[0]


def test_a_log_with_nothing_to_show_says_so(log):
    empty = EventLog()
    empty.append(log[0])
    for nothing in (EventLog(), empty):
        figure = figures.overlap(nothing)
        assert len(figure.data) == 0
        assert heading(figure)[0], "the figure says why it is empty"
    assert len(figures.overlap({"one": empty, "other": log}).data) > 0
    with pytest.raises(ValueError):
        figures.overlap({})


def test_any_log_can_be_drawn(first_seed):
    for seed in range(first_seed, first_seed + 6):
        one = random_log(seed, EventLog(window=None if seed % 2 else 40))
        figure = figures.overlap({"this": one, "bare": EventLog.from_bytes(bare(one))})
        assert "NaN" not in json.dumps(json.loads(figure.to_json()))
        assert max(map(len, heading(figure))) <= LINE_WIDTH + 8


def bare(log: EventLog) -> bytes:
    return b"".join(line + b"\n" for line in log.deterministic())


def test_names_are_text_and_never_markup(log):
    evil = '<b>x</b><a href="http://e">'
    figure = figures.overlap({evil: log, "a & b " + "very " * 20: log})
    written = json.loads(figure.to_json())
    texts = list(strings(written))
    assert any("&lt;b&gt;x" in text for text in texts)
    assert not any("<b>x" in text or "<a" in text for text in texts)
    assert not any("very " * 6 in text for text in texts)


def strings(value: Any) -> Any:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


def line(fixed: float, each: float):
    return lambda blocks: fixed + each * blocks


def test_a_ring_marks_the_first_number_of_blocks_from_which_moving_is_cheaper():
    def window(blocks: int) -> float:  # cheaper for a few blocks only
        return 1 if blocks < 3 else 100

    links = {"fast": line(9, 1), "slow": line(1, 5), "window": window}
    drawn = figures.break_even(line(0, 4), links, most=5)
    found = {one.name: (list(one.x), list(one.y)) for one in drawn.data}
    assert found["computing"] == ([1, 2, 3, 4, 5], [4, 8, 12, 16, 20])
    assert found["fast"] == ([1, 2, 3, 4, 5], [10, 11, 12, 13, 14])
    rings = {name: ring for name, ring in found.items() if "breaks even" in name}
    assert rings == {"fast breaks even": ([4], [13])}  # 12 ms each at 3 blocks
    assert "cheaper from 4 blocks on" in drawn.layout.title.text
    assert drawn.layout.title.text.count("never cheaper") == 2
    assert "No blocks" in figures.break_even(line(0, 4), {}, most=0).layout.title.text


def test_capacity_draws_the_points_the_knee_and_the_limit():
    load = Load(requests=20, seconds=2)
    found = sweep(simulated(), load, slo="ttft<300ms")
    other = sweep(simulated(), load, rates=[2, 4])
    for theme in THEMES:
        figure = figures.capacity({"one": found, "<b>": other}, theme=theme)
        for share in (50, 99):
            curve = drawn(figure, f"one TTFT p{share}")
            assert list(curve.x) == [point.rate for point in found.points]
            assert list(curve.y) == [
                point.percentile("ttft", share / 100) for point in found.points
            ]
        assert list(drawn(figure, "one goodput").y) == [point.goodput for point in found.points]
        rings = [trace for trace in figure.data if trace.name == "one knee"]
        assert {ring.x[0] for ring in rings} == {found.knee.rate} and len(rings) == 2
        assert [line.y0 for line in figure.layout.shapes] == [300]
        said = " ".join(heading(figure))
        assert_names(
            said, f"knee at {found.knee.rate:g}/s", f"SLO met up to {found.usable.rate:g}/s"
        )
    assert "No rate" in heading(figures.capacity(Sweep(Header())))[0]
