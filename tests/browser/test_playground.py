"""The playground in a real JupyterLab: a control is moved, and the picture follows."""

import pytest
from playwright.sync_api import expect

from tests.browser.notebooks import expect_said, open_exported, open_saved, run_cell
from tests.browser.test_jupyterlab import save, shut_down
from visualizer.playing.questions import QUESTIONS

pytestmark = pytest.mark.usefixtures("patience")

CELLS = [
    "from visualizer import playground\np = playground()\np",
    "print('seats:', p.settings['max_batch_size'], len(p.log) != len(p.previous))",
]


def test_a_control_moves_the_lanes_and_the_run_before_stays_as_an_outline(open_cells, jupyter):
    page = open_cells("playground.ipynb", CELLS, width=1600, height=1200)
    root = page.locator(".jp-OutputArea-output .ug-play").first
    expect(root.locator("h1")).to_have_text(QUESTIONS[0].text)
    expect(root.locator(".lane .ghost")).to_have_count(0)

    # By keyboard alone; the control keeps the focus.
    seats = root.locator("[name=max_batch_size]")
    seats.focus()
    page.keyboard.press("Home")
    expect(root.locator("[data-part=runs] tbody tr")).to_have_count(2, timeout=20_000)
    expect(root.locator(".say")).to_contain_text("With 1 seat")
    expect(root.locator(".lane .ghost")).to_have_count(7)
    expect(root.locator("[data-part=max_batch_size]")).to_have_text("before: 4")
    expect(seats).to_be_focused()
    run_cell(page, 1)
    expect_said(page, "seats: 1 True")

    # What cannot be run is said in place, and the picture stays.
    page.set_viewport_size({"width": 900, "height": 1000})
    root.locator("[name=max_kv_tokens]").focus()
    page.keyboard.press("Home")
    expect(root.locator("[role=alert]")).to_contain_text("max_kv_tokens")
    expect(root.locator("[data-part=runs] tbody tr")).to_have_count(2)
    assert root.evaluate("node => node.scrollWidth <= node.clientWidth")
    root.get_by_role("button", name="Another question").click()
    expect(root.locator("h1")).to_have_text(QUESTIONS[1].text)

    # Saved: nbconvert shows the last run without a network, and JupyterLab without a kernel; each once.
    address, folder = jupyter
    expect(page.locator(".ug-play:visible")).to_have_count(1)
    expect(page.locator(".ug-saved h1")).to_have_text(QUESTIONS[1].text)
    save(page)
    alone = open_exported(page, folder / "playground.ipynb", "light")
    expect(alone.locator("h1:visible")).to_have_text(QUESTIONS[1].text)
    shut_down(page)
    open_saved(page, address, "playground.ipynb", page.locator(".ug-play:visible"))
    expect(page.locator(".ug-play h1:visible")).to_have_text(QUESTIONS[1].text)
