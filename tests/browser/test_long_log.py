"""A log that is too long to be read at once: drawn before its end is there, whole in the end."""

import gzip
from functools import cache
from pathlib import Path

from playwright.sync_api import expect

from engine import Cost, EngineConfig, EventLog, Workload, simulate
from engine.simulation.workload import poisson, uniform
from tests.browser.board import BoardOnPage, expect_fold
from tests.browser.conftest import NewPage
from visualizer.html import write_page
from visualizer.logs import StepIndex
from visualizer.opening import opening
from visualizer.packed import PackedLog

# Notes, in the page, what stood there when the board was first drawn.
_WATCH = """
new MutationObserver(() => {
  const board = document.querySelector(".underglass");
  if (board?.dataset.ready === "true") window.first ??= { ...board.dataset };
}).observe(document, { subtree: true, childList: true, attributes: true });
"""


@cache
def long_log() -> EventLog:
    workload = Workload.generate(
        1500, arrivals=poisson(150), prompt=uniform(4, 40), output=uniform(8, 40), groups=9, seed=1
    )
    config = EngineConfig(token_budget=64, max_batch_size=16, max_kv_tokens=256, block_size=4)
    log = simulate(workload, config, cost=Cost(1, 0.01, 0.02, 0.00002, 1e-6))
    assert len(log) > 40_000
    assert min(StepIndex(log).preempted) < 500
    return log


def opened(new_page: NewPage, path: Path, data: bytes) -> BoardOnPage:
    write_page(PackedLog(gzip.compress(data, 1), {}, False), path, theme=None, title="long")
    page = new_page()
    page.add_init_script(_WATCH)
    page.goto(path.as_uri())
    return BoardOnPage(page).wait()


def test_it_is_drawn_before_its_end_and_is_whole_in_the_end(new_page, tmp_path):
    log = long_log()
    steps = StepIndex(log)
    board = opened(new_page, tmp_path / "long.html", log.to_bytes())
    expect(board.root).to_have_attribute("data-loaded", "1", timeout=60_000)
    first = board.page.evaluate("first")
    step, request = opening(log, steps)
    assert (first["step"], first["selected"]) == (str(step), str(request))
    assert float(first["loaded"]) < 1
    assert step < int(first["steps"]) < max(steps.ends)
    assert int(board.data("steps")) == max(steps.ends)
    assert board.root.locator(".reading").count() == 0
    expect_fold(board, log, step)
    board.press("End")
    expect_fold(board, log, max(steps.ends))
