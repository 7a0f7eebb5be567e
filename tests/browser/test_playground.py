"""The playground in a real JupyterLab: a control is moved, and the picture follows."""

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.browser.board import BoardOnPage
from tests.browser.conftest import NewPage
from tests.browser.notebooks import open_notebook, run_cell, set_theme, write_notebook
from visualizer import gallery
from visualizer.playing.settings import NAMES

CELLS = [
    "from visualizer import playground\np = playground()\np",
    "print('steps:', len(p.previous.steps), len(p.log.steps), p.settings['max_batch_size'])",
]


class PlaygroundOnPage:
    def __init__(self, page: Page) -> None:
        self.page = page
        self.root = page.locator(".underglass-playground").first

    def control(self, setting: str) -> Locator:
        """The control of an engine setting."""
        label = self.page.get_by_text(NAMES[setting], exact=True)
        return self.root.locator(".widget-inline-hbox", has=label)

    def board(self) -> BoardOnPage:
        """The one board that can be seen."""
        board = BoardOnPage(self.page)
        board.root = self.root.locator(".underglass:visible")
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


def opened(page: Page, address: str, work: Path, name: str, cells: list[str]) -> PlaygroundOnPage:
    write_notebook(work / name, cells)
    open_notebook(page, address, name)
    run_cell(page, 0)
    ground = PlaygroundOnPage(page)
    expect(ground.root).to_be_visible(timeout=60_000)
    return ground


def test_a_control_moves_the_board_and_the_old_run_stays_beside_the_new(
    new_page: NewPage, jupyter: tuple[str, Path]
) -> None:
    page = new_page(width=1600, height=1200)
    ground = opened(page, *jupyter, "playground.ipynb", CELLS)
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
    said = page.locator(".jp-OutputArea-output").filter(has_text="steps:").last
    expect(said).to_have_text(f"steps: {old} {new} 1")

    # The run before is a click away.
    now, before = ground.root.locator(".widget-toggle-button").all()
    before.click()
    expect(ground.root.locator(".underglass:visible")).to_have_attribute("data-steps", old)
    now.click()
    expect(ground.root.locator(".underglass:visible")).to_have_attribute("data-steps", new)


def test_what_cannot_be_run_is_said_in_place_and_the_picture_stays(
    new_page: NewPage, jupyter: tuple[str, Path]
) -> None:
    page = new_page(width=900, height=1000)
    ground = opened(page, *jupyter, "impossible.ipynb", CELLS)
    steps = ground.board().data("steps")
    ground.control("max_kv_tokens").locator("[role=slider]").focus()
    page.keyboard.press("Home")
    alert = ground.root.locator("[role=alert]")
    expect(alert).to_contain_text("max_kv_tokens", timeout=20_000)
    assert ground.board().data("steps") == steps
    page.keyboard.press("End")
    ground.changed("max_kv_tokens", 224, 2048)
    assert ground.root.evaluate("node => node.scrollWidth <= node.clientWidth")


def test_it_follows_light_and_dark(new_page: NewPage, jupyter: tuple[str, Path]) -> None:
    page = new_page(width=1600, height=1200)
    ground = opened(page, *jupyter, "themes.ipynb", CELLS)
    ground.board()
    numbers = ground.root.locator(".underglass-numbers td").last
    title = ground.root.locator(".underglass-plots .gtitle").first
    expect(title).to_be_visible()
    inks = []
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        set_theme(page, theme)
        expect(ground.root.locator(".underglass")).to_have_attribute(
            "data-theme", theme.split()[1].lower()
        )
        inks.append(numbers.evaluate("node => getComputedStyle(node).color"))
        expect(title).to_have_css("fill", inks[-1])
    assert inks[0] != inks[1]
    set_theme(page, "JupyterLab Light")


def test_a_scenario_is_shown_by_its_name_under_its_caption(
    new_page: NewPage, jupyter: tuple[str, Path]
) -> None:
    address, work = jupyter
    one = gallery()["preemption"]
    cells = ['from visualizer import gallery, show\nshow("preemption")', "gallery()"]
    write_notebook(work / "gallery.ipynb", cells)
    page = new_page(width=1400, height=1000)
    open_notebook(page, address, "gallery.ipynb")
    run_cell(page, 0)
    board = BoardOnPage(page).wait()
    board.expect_step(one.step)
    board.expect_selected(one.select)
    assert board.text("h2.title") == one.name.capitalize()
    assert board.text("p.caption") == one.caption
    run_cell(page, 1)
    rows = page.locator(".jp-RenderedHTMLCommon figcaption code")
    expect(rows).to_have_text([f'show("{name}")' for name in gallery()])
