"""Panels that stand alone on a page: they share one view, and fit from a phone to a wall."""

import re

import pytest
from playwright.sync_api import expect

from engine import Cost, EngineConfig, Workload, simulate
from engine.simulation.workload import poisson, uniform
from tests.browser.axe import expect_no_violation
from tests.browser.board import BoardOnPage, expect_fold, numbers_in, right_end
from tests.browser.exported import the_log
from tests.visualizer.storytellers import crowd
from visualizer import read

PANELS = ("timeline", "blocks", "tree", "scheduler", "tokens")


@pytest.fixture
def panels(new_page, exports, tmp_path):
    """The exported page, but with every panel by itself in place of the board."""
    each = "".join(
        f'await mount(host("{name}"), {{ log, panel: "{name}", view: first?.view }});'
        if name != "timeline"
        else 'const first = await mount(host("timeline"), { log, panel: "timeline" });'
        for name in PANELS
    )
    script = (
        'const host = (id) => { const element = document.createElement("div"); element.id = id;'
        'document.getElementById("board").append(element); return element; };' + each
    )
    text = exports.page().read_text("utf-8")
    text, count = re.subn(r"await mount\(document.getElementById.*?\}\);", lambda _: script, text)
    assert count == 1
    (tmp_path / "panels.html").write_text(text, "utf-8")
    page = new_page(height=2400)
    page.goto((tmp_path / "panels.html").as_uri())
    roots = {name: page.locator(f"#{name} .underglass") for name in PANELS}
    return {name: BoardOnPage(page, root).wait() for name, root in roots.items()}


def test_each_panel_stands_alone_and_all_move_in_the_same_frame(panels):
    page = panels["tree"].page
    for board in panels.values():
        expect(board.root.locator("section")).to_have_count(1)
        expect(board.act("play")).to_be_visible()
        board.expect_selected(8)
    expect_fold(panels["blocks"], the_log(), 30)
    moved = page.evaluate(
        """async () => {
          const roots = [...document.querySelectorAll(".underglass")];
          roots[0].dispatchEvent(new KeyboardEvent("keydown", { key: ",", bubbles: true }));
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
          return roots.map((root) => root.dataset.step);
        }"""
    )
    assert moved == ["29"] * 5
    panels["scheduler"].root.locator(".chip", has_text="r6").first.click()
    for board in panels.values():
        board.expect_selected(6)
    expect(panels["tokens"].root.locator("h2 .chip")).to_have_text("r6")
    # Only the panel with the focus reads the sentence aloud.
    panels["blocks"].press(",")
    for name, board in panels.items():
        sentence, live = board.root.locator(".sentence"), "polite" if name == "blocks" else "off"
        expect(sentence).to_have_attribute("aria-live", live)
        expect(sentence).to_have_attribute("data-step", "28")
    # Any panel scrubs all and plays all.
    panels["tree"].root.get_by_role("slider").fill("45")
    for board in panels.values():
        board.expect_step(45)
    panels["tokens"].press(" ")
    for board in panels.values():
        board.expect_data(step=53, playing="false")


def test_panels_fit_every_width(panels):
    page = panels["tree"].page
    for width in (360, 768, 1280, 1920, 2560):
        page.set_viewport_size({"width": width, "height": 2000})
        panels["tokens"].settle()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert right_end(page) <= width


def test_the_text_stays_scrolled_while_the_reader_steps(open_board):
    length = {"prompt": uniform(200, 200), "output": uniform(300, 300)}
    workload = Workload.generate(1, arrivals=poisson(1), **length)
    log = simulate(workload, EngineConfig(max_kv_tokens=1024), cost=Cost(1, 0, 0, 0, 0))
    board = open_board(log, step=250, select=1, width=390)
    text = board.root.locator(".tokens .text")
    text.evaluate("(element) => element.scrollTo(0, -60)")  # it is bottom-up
    board.press(",")
    board.expect_step(249)
    assert text.evaluate("(element) => element.scrollTop") == -60


def test_more_live_requests_than_marks_are_groups_that_can_be_opened(open_board):
    log = crowd(48, [f"chat-{i}" if i % 2 else "agent" for i in range(48)], max_batch_size=1)
    step = int(read(log).steps.query("waiting == 35").index[0])
    board = open_board(log, step=step)
    groups = board.root.locator(".groups [data-group]")
    sizes = [sum(numbers_in(text)) for text in groups.locator(".muted").all_inner_texts()]
    assert sum(sizes) == 36 and len(sizes) == 2
    groups.first.click()
    expect(board.root.locator(".groups .chips [data-request]")).to_have_count(sizes[0])
    expect_no_violation(board.page)
