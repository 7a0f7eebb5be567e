"""Panels that stand alone on a page: they share one view, and fit from a phone to a wall."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from engine import Cost, EngineConfig, Workload, simulate
from engine.simulation.workload import poisson, uniform
from tests.browser.board import BoardOnPage, expect_fold
from tests.browser.conftest import NewPage
from tests.browser.exported import the_log
from visualizer import to_html

PANELS = ("timeline", "blocks", "tree", "scheduler", "tokens")


@pytest.fixture(scope="module")
def page_of_panels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported page, but with every panel by itself in place of the board."""
    page = to_html(the_log())
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
    page, count = re.subn(r"await mount\(document.getElementById.*?\}\);", lambda _: script, page)
    assert count == 1
    path = tmp_path_factory.mktemp("panels") / "panels.html"
    path.write_text(page, "utf-8")
    return path


def panel(page: Page, name: str) -> BoardOnPage:
    board = BoardOnPage(page)
    board.root = page.locator(f"#{name} .underglass")
    return board.wait()


def test_each_panel_stands_alone_and_all_move_in_the_same_frame(
    new_page: NewPage, page_of_panels: Path
) -> None:
    page = new_page(height=2400)
    page.goto(page_of_panels.as_uri())
    panels = {name: panel(page, name) for name in PANELS}
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


def test_any_panel_scrubs_all_and_plays_all(new_page: NewPage, page_of_panels: Path) -> None:
    page = new_page(height=2400)
    page.goto(page_of_panels.as_uri())
    panels = {name: panel(page, name) for name in PANELS}
    panels["tree"].root.get_by_role("slider").fill("45")
    for board in panels.values():
        board.expect_step(45)
    panels["tokens"].press(" ")
    for board in panels.values():
        board.expect_step(53)
        expect(board.root).to_have_attribute("data-playing", "false")


def test_only_the_panel_with_the_focus_reads_the_sentence_aloud(
    new_page: NewPage, page_of_panels: Path
) -> None:
    page = new_page(height=2400)
    page.goto(page_of_panels.as_uri())
    panels = {name: panel(page, name) for name in PANELS}
    panels["blocks"].press(",")
    panels["blocks"].expect_step(29)
    for name, board in panels.items():
        live = "polite" if name == "blocks" else "off"
        expect(board.root.locator(".sentence")).to_have_attribute("aria-live", live)
        expect(board.root.locator(".sentence")).to_have_attribute("data-step", "29")


@pytest.mark.parametrize("width", [360, 768, 1280, 1920, 2560])
def test_panels_fit_every_width(new_page: NewPage, page_of_panels: Path, width: int) -> None:
    page = new_page(width=width, height=2000)
    page.goto(page_of_panels.as_uri())
    for name in PANELS:
        panel(page, name)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    right = page.evaluate(
        """() => Math.max(...[...document.querySelectorAll(".underglass *")]
             .filter((node) => !node.closest(".for-screen-readers, .scroll, .alternative"))
             .map((node) => node.getBoundingClientRect().right))"""
    )
    assert right <= width


def test_the_text_stays_scrolled_while_the_reader_steps(new_page: NewPage, tmp_path: Path) -> None:
    length = {"prompt": uniform(200, 200), "output": uniform(300, 300)}
    workload = Workload.generate(1, arrivals=poisson(1), **length)
    log = simulate(workload, EngineConfig(max_kv_tokens=1024), cost=Cost(1, 0, 0, 0, 0))
    to_html(log, tmp_path / "long.html", step=250, select=1)
    page = new_page(width=390)
    page.goto((tmp_path / "long.html").as_uri())
    board = BoardOnPage(page).wait()
    text = board.root.locator(".tokens .text")
    text.evaluate("(element) => element.scrollTo(0, -60)")  # it is bottom-up
    board.press(",")
    board.expect_step(249)
    assert text.evaluate("(element) => element.scrollTop") == -60
