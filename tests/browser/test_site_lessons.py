"""The site's lessons: boards at once, questions before answers, cells that run in the page."""

import json
import re
from collections.abc import Callable

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from authoring.lab import NOTEBOOKS
from authoring.parts import lessons, predictions

PATIENCE_MS = 120_000  # for Python on a busy machine
NAMES = [path.stem for path in lessons()]

Open = Callable[..., Page]


@pytest.fixture
def open_lesson(site, new_page):
    """Opens a lesson's page, whose console must stay empty."""
    said: list[str] = []

    def open_page(name: str, **options: object) -> Page:
        page = new_page(**options)
        page.on(
            "console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None
        )
        page.goto(f"{site}lessons/{name}.html")
        expect(page.locator("html")).to_have_attribute("data-ready", "true")
        return page

    yield open_page
    assert not said, said


def cell(page: Page, number: int) -> Locator:
    return page.locator(f"#cell-{number}")


def run(page: Page, number: int, state: str = "done") -> Locator:
    """Run a cell and wait for its end."""
    found = cell(page, number)
    found.get_by_role("button", name="Run").click()
    expect(found).to_have_attribute("data-state", state, timeout=PATIENCE_MS)
    return found


def edit(page: Page, number: int, old: str, new: str) -> None:
    """Replace text in a cell's editor, as a reader does with the keyboard."""
    found = cell(page, number)
    found.locator(".code:visible").click()
    expect(found.locator(".cm-content")).to_be_focused()
    source = "\n".join(found.locator(".cm-line").all_text_contents())
    assert old in source
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(source.replace(old, new))


@pytest.mark.parametrize("name", [name for name in NAMES if name[:2] in ("00", "18")])
def test_a_lesson_draws_its_first_board_and_hides_what_follows_its_question(name, open_lesson):
    page = open_lesson(name)
    board = page.locator("div.lesson .board").first
    board.scroll_into_view_if_needed()
    expect(board.locator("> .underglass")).to_have_attribute("data-ready", "true")
    expect(page.locator("form.predict").first).to_be_visible()
    for hidden in page.locator("details.part > :not(summary)").all():
        assert not hidden.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("name", NAMES)
def test_what_follows_a_question_is_in_a_part_that_opens_after_it(name, site_folder):
    """tests/lessons/test_unspoiled.py looks for the answer in what stands before the question."""
    asked = predictions(nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells)
    page = (site_folder / "lessons" / f"{name}.html").read_text("utf-8")
    pieces = re.split(r'<details class="part[^"]*" data-question="([^"]*)"', page)
    parts, questions = pieces[::2], pieces[1::2]
    assert questions == [one.key for one in asked]
    cells: list[int] = []
    for one, part in zip(asked, parts, strict=False):
        cells += map(int, re.findall(r'id="cell-(\d+)"', part))
        assert 0 in cells and max(cells) <= one.asked


def test_a_guess_opens_the_next_part_and_is_remembered(open_lesson):
    page = open_lesson("04_continuous_batching")
    part = page.locator('details.part[data-question="04.static"]')
    page.get_by_label("7", exact=True).check()
    expect(part).to_have_attribute("open", "")
    told = part.locator("[data-reveal]").first
    expect(told).to_contain_text("Your guess: 7. The log says: 25.")
    page.get_by_label("25", exact=True).check()
    expect(told).to_contain_text("Your guess: 25. The log says the same.")
    expect(page.locator('details.part[data-question="04.continuous"]')).not_to_have_attribute(
        "open", ""
    )
    page.reload()
    expect(told).to_contain_text("Your guess: 25.")
    expect(page.get_by_label("25", exact=True)).to_be_checked()
    # Hints open one after the other.
    closed = page.locator("details.part:not([open]) > summary")
    while closed.count():
        closed.first.click()
    second = page.get_by_text("Hint 2 of 2")
    expect(second).to_be_hidden()
    page.get_by_text("Hint 1 of 2").click()
    expect(second).to_be_visible()


def test_a_reader_may_go_on_without_a_guess(open_lesson):
    page = open_lesson("04_continuous_batching")
    page.get_by_text("Go on without a guess").first.click()
    told = page.locator("details.part [data-reveal]").first
    expect(told).to_contain_text("No guess recorded. The log says: 25.")


def test_a_changed_cell_runs_in_the_page_stops_and_fails_and_what_follows_is_marked(open_lesson):
    page = open_lesson("04_continuous_batching")
    edit(page, 5, "max_batch_size=4", "max_batch_size=2")
    page.keyboard.press("Shift+Enter")
    first = cell(page, 5)
    expect(first).to_have_attribute("data-state", "done", timeout=PATIENCE_MS)
    board = run(page, 2).locator(".board > .underglass")
    expect(board).to_have_attribute("data-ready", "true")
    expect(board.locator("canvas:visible").first).to_be_visible()
    assert cell(page, 7).get_attribute("data-stale") == "true"
    # The lesson's own numbers need not hold any more: an assert does nothing.
    assert "72 steps in the engine's log" not in run(page, 7).inner_text()
    assert cell(page, 7).get_attribute("data-stale") is None
    first.get_by_role("button", name="Reset").click()
    expect(first).to_have_attribute("data-state", "done", timeout=PATIENCE_MS)
    assert "72 steps in the engine's log" in run(page, 7).inner_text()
    # An error is shown with its line, and Python stops and runs again.
    edit(page, 9, "offered = 4", "while True: pass\noffered = 4")
    page.keyboard.press("Shift+Enter")
    running = cell(page, 9)
    expect(running).to_have_attribute("data-state", "running", timeout=PATIENCE_MS)
    page.get_by_role("button", name="Stop").click()
    expect(running.locator(".words")).to_have_text("Stopped")
    edit(page, 9, "while True: pass", "nothing / 0")
    run(page, 9, "failed")
    expect(running.get_by_role("alert")).to_contain_text("Line 2: NameError")
    running.get_by_role("button", name="Reset").click()
    expect(running).to_have_attribute("data-state", "done", timeout=PATIENCE_MS)
    expect(running.locator(".out")).to_have_text("126 of 288 seats were taken: 44%\n")


def test_the_bundled_model_writes_in_the_page_what_it_writes_with_torch(open_lesson):
    stored = nbformat.read(NOTEBOOKS / "01_token_loop.ipynb", as_version=4).cells[2].outputs
    [text] = [output.text for output in stored if output.output_type == "stream"]
    page = open_lesson("01_token_loop")
    ran = run(page, 2)
    assert ran.locator('pre[data-stream="stdout"]').inner_text().strip() == text.strip()
    expect(ran.locator(".board > .underglass")).to_have_attribute("data-ready", "true")


def test_each_cell_that_does_not_run_says_why(site_folder):
    rows = json.loads((site_folder / "cells.json").read_text("utf-8"))
    assert [row["lesson"] for row in rows] == NAMES
    reasons = {reason for row in rows for reason in row["reasons"]}
    assert not {reason for reason in reasons if "fails in a page" in reason}
    page = (site_folder / "lessons" / "00_first_look.html").read_text("utf-8")
    assert page.count('class="needs"') == rows[0]["cells"] - rows[0]["run"] > 0
