"""The playground in a real JupyterLab: a control is moved, and the picture follows."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.board import BoardOnPage
from tests.browser.notebooks import expect_said, run_cell
from visualizer.playing.settings import NAMES

pytestmark = pytest.mark.usefixtures("patience")

CELLS = [
    "from visualizer import playground, read\np = playground()\np",
    "print('steps:', *(len(read(log).steps) for log in (p.previous, p.log)), "
    "p.settings['max_batch_size'])",
]


class PlaygroundOnPage:
    def __init__(self, page: Page) -> None:
        self.page = page
        self.root = page.locator(".underglass-playground").first

    def control(self, setting: str) -> Locator:
        label = self.page.get_by_text(NAMES[setting], exact=True)
        return self.root.locator(".widget-inline-hbox", has=label)

    def board(self) -> BoardOnPage:
        """The one board that can be seen."""
        board = BoardOnPage(self.page, self.root.locator(".underglass:visible"))
        expect(board.root).to_have_count(1)
        return board.wait()

    def changed(self, setting: str, before: int, after: int) -> None:
        """The words name the setting that was changed, its old value and its new one."""
        change = re.compile(rf"{NAMES[setting]}\D+{before}\D+{after}\b")
        expect(self.root.locator(".underglass-words p")).to_have_text(change, timeout=20_000)

    def steps(self) -> list[str]:
        """The numbers of steps: of this run; or of the run before, of this one, and the change."""
        rows = self.root.locator(".underglass-numbers tbody tr").all()
        return [row.locator("td").first.inner_text() for row in rows]


def test_a_control_moves_the_board_and_the_old_run_stays_beside_the_new(open_cells):
    page = open_cells("playground.ipynb", CELLS, width=1600, height=1200)
    ground = PlaygroundOnPage(page)
    expect(ground.root).to_be_visible()
    board = ground.board()
    old = board.data("steps")
    assert ground.steps() == [old]
    expect(ground.root.locator(".underglass-plots .js-plotly-plot")).to_have_count(4)

    # By keyboard alone.
    ground.control("max_batch_size").locator("[role=slider]").focus()
    page.keyboard.press("Home")
    ground.changed("max_batch_size", 6, 1)
    board = ground.board()
    expect(board.root).not_to_have_attribute("data-steps", old)
    new = board.data("steps")
    assert int(new) > int(old)
    assert ground.steps()[:2] == [old, new]
    assert ground.steps()[2].startswith("+")
    run_cell(page, 1)
    expect_said(page, f"steps: {old} {new} 1")

    # The run before is a click away.
    now, before = ground.root.locator(".widget-toggle-button").all()
    before.click()
    expect(ground.root.locator(".underglass:visible")).to_have_attribute("data-steps", old)
    now.click()
    expect(ground.root.locator(".underglass:visible")).to_have_attribute("data-steps", new)

    # What cannot be run is said in place, and the picture stays.
    page.set_viewport_size({"width": 900, "height": 1000})
    ground.control("max_kv_tokens").locator("[role=slider]").focus()
    page.keyboard.press("Home")
    expect(ground.root.locator("[role=alert]")).to_contain_text("max_kv_tokens")
    assert ground.board().data("steps") == new
    page.keyboard.press("End")
    ground.changed("max_kv_tokens", 224, 2048)
    assert ground.root.evaluate("node => node.scrollWidth <= node.clientWidth")
    title = ground.root.locator(".underglass-plots .gtitle").first
    ink = ground.root.locator(".underglass-numbers td").last.evaluate(
        "node => getComputedStyle(node).color"
    )
    expect(title).to_have_css("fill", ink)
