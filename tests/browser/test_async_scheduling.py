"""A board of a log with asynchronous scheduling: two lanes that overlap, placeholders, rows in vain."""

from functools import cache

from playwright.sync_api import expect

from engine import CostRunner, Engine, EngineConfig, EventLog, SamplingParams
from tests.browser.axe import expect_no_violation
from visualizer import read


@cache
def two_stops(*, asynchronous: bool = True) -> EventLog:
    """Three requests: the first two stop after 4 and 6 tokens, which the scheduler cannot know."""
    runner = CostRunner(10, 0.25, cpu_ms=5, outputs={1: 4, 2: 6})
    config = EngineConfig.like("vllm", async_scheduling=asynchronous, max_kv_tokens=512)
    engine = Engine(runner, config, clock=runner.clock)
    for name in ("Ana", "Ben", "Eva"):
        engine.submit(f"a story for {name}", SamplingParams(max_tokens=12), label=name)
    while engine.has_work():
        engine.step()
    return engine.log


def test_both_lanes_are_shown_and_a_click_on_them_finds_the_step(open_board):
    log = two_stops()
    board = open_board(log, "#step=4&selected=1")
    expect(board.root.locator(".placeholder")).to_have_text("?")
    expect_no_violation(board.page)
    lanes = board.root.locator(".overlap")
    expect(lanes).to_be_visible()
    for axis in ("steps", "time"):
        expect(board.root).to_have_attribute("data-axis", axis)
        for step in (1, 4, 7):
            board.press("Home", *["ArrowRight"] * (step - 1))
            board.expect_step(step)
            label = lanes.get_attribute("aria-label") or ""
            assert f"step {step} " in label
            assert (f"step {step - 1} " in label) == (step > 1)
        plot = board.root.locator(".lanes canvas").get_attribute("data-plot")
        left, right = (float(x) for x in str(plot).split())
        box = board.canvas(".overlap")
        board.page.mouse.click(box["x"] + 6 + right - 1, box["y"] + 8)
        board.expect_step(int(read(log).steps.index.max()))
        board.page.mouse.click(box["x"] + 6 + left + 1, box["y"] + 8)
        board.expect_step(1)
        board.press("x")
    # A log without it has none of this.
    board = open_board(two_stops(asynchronous=False), "#step=4&selected=1", on=board.page)
    expect(board.root.locator(".overlap")).to_be_hidden()
    expect(board.root.locator(".placeholder")).to_have_count(0)
