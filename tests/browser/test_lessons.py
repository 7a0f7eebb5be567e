"""Lessons in JupyterLab, from top to bottom, as a learner sees them; every picture is true.

Lesson 04 has boards, a comparison and questions. `make soak` opens all lessons here.
"""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from authoring.lab import (
    WIDGET,
    cell,
    cells,
    close_notebook,
    copy_of_lessons,
    open_notebook,
    run_all,
)
from authoring.parts import lessons
from engine.core.log import EventLog
from tests.browser.board import BoardOnPage, counts_at
from tests.facts import assert_names
from underglass.workbook import without_answers

# Appended to each lesson: what its kernel's boards show, for the test to compare with what is drawn.
TELL = """
import json as _json
from pathlib import Path as _Path
from ipywidgets.widgets.widget import _instances
from visualizer import read as _read

_told, _clusters = {}, {}
for _id, _widget in _instances.items():
    _views = [getattr(_widget, name, None) for name in ("view_model", "a", "b")]
    _views = [view for view in _views if hasattr(view, "events")]
    for _number, _view in enumerate(_views):
        _view.events.save(f"{_id}-{_number}.jsonl")
    if _views:
        _told[_id] = [[view.step, view.selected] for view in _views]
    elif hasattr(_widget, "replicas"):
        _rows = _read(_widget.events).decision_rows
        _clusters[_id] = sum(row.cached_tokens or 0 for row in _rows)
_ = _Path("told.json").write_text(_json.dumps([_told, _clusters]))
"""


@pytest.fixture(scope="module")
def lab(jupyter):
    """The address of a JupyterLab, and the folder in which it has the lessons."""
    address, work = jupyter
    folder = copy_of_lessons(work)
    for path in lessons():
        notebook = json.loads(without_answers(path))
        tell = {"cell_type": "code", "id": "tell", "metadata": {}, "outputs": [], "source": TELL}
        notebook["cells"].append(tell | {"execution_count": None})
        (folder / path.name).write_text(json.dumps(notebook))
    return address, folder


@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(
            path, id=path.stem, marks=[] if path.stem.startswith("04") else pytest.mark.soak
        )
        for path in lessons()
    ],
)
def test_a_lesson_runs_in_jupyterlab_and_every_board_shows_what_its_log_says(new_page, lab, lesson):
    address, folder = lab
    page = new_page(width=1400, height=1000)
    open_notebook(page, address, f"notebooks/{lesson.name}")
    # Before anything has run, the stored picture is there.
    hook = page.locator(".jp-OutputArea-output img").first
    expect(hook).to_have_js_property("complete", True)
    assert hook.evaluate("img => img.naturalWidth") > 0

    run_all(page)
    ran = cells(page)
    outputs = [(i, n, o) for i, c in enumerate(ran) for n, o in enumerate(c.get("outputs", []))]
    assert [o["evalue"] for _, _, o in outputs if o["output_type"] == "error"] == []
    assert all(c["execution_count"] for c in ran if c["cell_type"] == "code")

    told, clusters = json.loads((folder / "told.json").read_text())
    drawn = 0
    for index, number, output in outputs:
        if WIDGET not in output.get("data", {}):
            continue
        widget = output["data"][WIDGET]["model_id"]
        shown = cell(page, index).locator(".jp-OutputArea-child").nth(number)
        if widget in clusters:
            board = shown.locator(".underglass").first
            expect(board).to_have_attribute("data-ready", "true", timeout=30_000)
            delivered = board.locator(".summary")
            expect(delivered).to_have_attribute("data-delivered", str(clusters[widget]))
            drawn += 1
            continue
        if widget not in told:  # radio buttons: drawn if they can be used
            expect(shown.locator("input").first).to_be_visible()
            continue
        for place, (step, selected) in enumerate(told[widget]):
            log = EventLog.load(folder / f"{widget}-{place}.jsonl")
            root = shown.locator(".underglass").first
            if len(told[widget]) > 1:  # a comparison: one of its two boards at a time
                shown.locator(f"button[data-shows='{'ab'[place]}']").click()
                root = shown.locator(f".run[data-side='{place}'] .underglass")
            board = BoardOnPage(page, root).wait()
            if place:  # one clock, not one step
                step = int(board.data("step"))
            board.expect_step(step)
            board.expect_data(**counts_at(log, step))
            if selected is not None:
                board.expect_selected(selected)
            drawn += 1
    assert drawn
    if lesson.name.startswith("04"):
        expect_the_prediction_that_was_clicked(page)
    close_notebook(page, address)


def expect_the_prediction_that_was_clicked(page: Page) -> None:
    """What a reader clicks in the page is what the reveal shows."""
    found = cells(page)
    asked = next(i for i, c in enumerate(found) if "first_token = predict" in "".join(c["source"]))
    cell(page, asked).get_by_label("5", exact=True).check()
    expect(cell(page, asked)).to_contain_text(re.compile(r"\b5\."))  # noted
    run_all(page)  # again, and the answer is still there
    reveal = next(i for i, c in enumerate(found) if "first_token.reveal" in "".join(c["source"]))
    said = "".join(cells(page)[reveal]["outputs"][0]["text"])
    assert_names(said.splitlines()[0], 5, 25)
