"""The timeline by wall time: its key, its links, and everything that a reader can do on it."""

from playwright.sync_api import expect

from engine import CostRunner, Engine, EngineConfig, EventLog, SamplingParams
from tests.browser.axe import expect_no_violation
from tests.browser.board import BoardOnPage
from visualizer import read


def one_long_document() -> EventLog:
    """Four chats, and a prompt of 400 tokens in one piece, whose step takes ten times as long."""
    runner = CostRunner(10, 0.25)
    config = EngineConfig(token_budget=512, max_kv_tokens=1024, prefix_cache=False)
    engine = Engine(runner, config, clock=runner.clock)
    for number in range(4):
        engine.submit(f"chat {number}", SamplingParams(max_tokens=20))
    for _ in range(7):
        engine.step()
    engine.submit("L" * 400, SamplingParams(max_tokens=8))
    while engine.has_work():
        engine.step()
    return engine.log


def middle_of(board: BoardOnPage, log: EventLog, step: int) -> tuple[float, float]:
    """The place on the strip to click for a step, from the log's times alone."""
    frame = read(log).steps
    row = frame.loc[step]
    end = (frame["start_ms"] + frame["duration_ms"]).max()
    share = (row["start_ms"] + row["duration_ms"] / 2) / end
    plot = board.root.locator(".lanes canvas").get_attribute("data-plot")
    left, right = (float(x) for x in str(plot).split())
    box = board.canvas(".strip")
    return box["x"] + 6 + left + share * (right - left), box["y"] + 60


def test_x_shows_steps_as_wide_as_they_took_and_a_click_finds_them(open_board):
    log = one_long_document()
    board = open_board(log, step=8)
    page = board.page
    expect(board.root).to_have_attribute("data-axis", "steps")
    board.press("x")
    expect(board.root).to_have_attribute("data-axis", "time")
    page.wait_for_function("location.hash.endsWith('axis=time')")
    expect_no_violation(page)
    canvas = board.root.locator(".lanes canvas")
    ends = (read(log).steps["start_ms"] + read(log).steps["duration_ms"]) * 1000
    expect(canvas).to_have_attribute("data-view", f"0 {round(ends.max())}")
    for step in (3, 8, 12, 1):
        x, y = middle_of(board, log, step)
        page.mouse.click(x, y)
        board.expect_step(step)
    # Brushing sums up the steps between two times.
    x, y = middle_of(board, log, 7)
    to, _ = middle_of(board, log, 9)
    page.keyboard.down("Shift")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(to, y, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    expect(board.root).to_have_attribute("data-range", "7-9")
    board.press("/")
    page.keyboard.type("step 5")
    page.keyboard.press("Enter")
    board.expect_step(5)
    board.press("Escape")
    board.act("axis").click()
    board.expect_data(axis="steps", step=5)
