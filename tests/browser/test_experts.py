"""The panel of expert loads: only for a mixture of experts, and what it says is what the log says."""

from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import expect

from engine import simulate
from engine.events import EventLog
from engine.simulation.mixture_runner import MixtureRunner
from engine.simulation.scenarios import scenario
from tests.browser.axe import expect_no_violation
from tests.browser.board import BoardOnPage, numbers_in
from tests.browser.conftest import NewPage
from tests.browser.exported import open_board, opened
from visualizer import to_html


@cache
def the_log() -> EventLog:
    return scenario("experts").run()


def open_experts(page, folder: Path, log: EventLog, fragment: str = "#step=8") -> BoardOnPage:
    to_html(log, folder / "experts.html")
    return opened(page, folder / "experts.html", fragment)


def test_each_step_says_what_the_log_says(new_page: NewPage, tmp_path: Path) -> None:
    board = open_experts(new_page(), tmp_path, the_log())
    panel = board.root.locator(".experts")
    words = panel.locator(".swatches span")
    for step in (8, 9, 10):
        board.expect_step(step)
        said = words.inner_text()
        assert said.endswith(str(the_log().expert_loads(step)))
        tokens = the_log().step(step).tokens
        assert said.startswith(f"{tokens} tokens × 2 experts; ")
        board.press(".")
    board.press("t")
    board.expect_step(11)
    step = the_log().expert_loads(11).layers
    expect(panel.locator("caption")).to_contain_text("11")
    rows = [numbers_in(row.inner_text()) for row in panel.locator("tbody tr").all()]
    cells = [row for row in rows if len(row) == 4]
    assert len(cells) == 40
    assert all(step[layer][expert] == tokens for layer, expert, tokens, _ in cells)
    assert [row[2] for row in cells] == sorted(
        (load for one in step for load in one), reverse=True
    )[:40]


def test_a_dense_model_has_no_such_panel(new_page: NewPage, tmp_path: Path) -> None:
    board = open_board(new_page(), tmp_path)
    panel = board.root.locator(".experts")
    expect(panel).to_be_hidden()
    board.press("6")
    expect(panel).to_contain_text("not a mixture of experts")
    expect(panel.locator("canvas")).to_be_hidden()
    board.press("0")
    expect(panel).to_be_hidden()


def test_keys_and_pointer_name_an_expert(new_page: NewPage, tmp_path: Path) -> None:
    board = open_experts(new_page(), tmp_path, the_log())
    panel, sums = board.root.locator(".experts"), [[0] * 16 for _ in range(8)]
    for step in range(1, 9):
        loads = the_log().expert_loads(step).layers
        sums = [
            [a + b for a, b in zip(*both, strict=True)] for both in zip(sums, loads, strict=True)
        ]
    canvas, told = panel.locator("canvas"), panel.locator(".told")
    canvas.focus()
    for key in ["ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"]:
        board.page.keyboard.press(key)
    board.expect_step(8)  # the board's own arrow keys rest
    found = numbers_in(told.inner_text())
    assert found[:3] == [1, 1, loads[1][1]]
    assert sums[1][1] in found[3:]
    canvas.hover(position={"x": 400, "y": 60})
    tip = board.root.locator(".tip")
    expect(tip).to_be_visible()
    expert, layer, tokens = numbers_in(tip.locator("p").first.inner_text())[:3]
    assert loads[layer][expert] == tokens
    canvas.click(position={"x": 400, "y": 60})
    assert numbers_in(told.inner_text())[:3] == [expert, layer, tokens]


def test_asynchronous_scheduling_shows_the_step_that_was_computed(
    new_page: NewPage, tmp_path: Path
) -> None:
    log = scenario("experts").run(async_scheduling=True)
    board = open_experts(new_page(), tmp_path, log, "#step=9")
    words = board.text(".experts .swatches span")
    assert words.endswith(str(log.expert_loads(8)))
    assert words.startswith(f"{log.step(8).tokens} tokens × 2 experts")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark"), (1920, "light")])
def test_it_fits_and_is_accessible(
    new_page: NewPage, tmp_path: Path, width: int, scheme: str
) -> None:
    log = the_log()
    if width == 1280:
        cost = MixtureRunner(5, 0.1, layers=48, experts=128, per_token=8)
        log = simulate(scenario("experts").workload, scenario("experts").config, cost=cost)
    board = open_experts(new_page(width=width, color_scheme=scheme), tmp_path, log)
    panel, root = board.root.locator(".experts"), board.root.bounding_box()
    assert root is not None
    heights = set()
    for _ in range(4):
        box, canvas = panel.bounding_box(), panel.locator("canvas").bounding_box()
        assert box is not None and canvas is not None
        assert (
            root["x"] <= canvas["x"] and canvas["x"] + canvas["width"] <= root["x"] + root["width"]
        )
        heights.add(box["height"])
        board.press(".")
        board.settle()
    assert len(heights) == 1, "the panel keeps its height"
    expect(panel.locator("table")).to_be_attached()
    expect_no_violation(board.page)
    board.press("6")
    expect(panel).to_be_visible()
    expect(board.root.locator("section:visible")).to_have_count(1)
