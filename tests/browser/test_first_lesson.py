"""The first hour: lesson 00 in JupyterLab, from top to bottom, as a learner sees it."""

import json
import shutil
from pathlib import Path

from playwright.sync_api import expect

from engine.events import EventLog
from tests.browser.board import BoardOnPage, expect_fold
from tests.browser.conftest import REPOSITORY, NewPage
from tests.browser.test_jupyterlab import open_notebook

LESSON = "00_first_look.ipynb"
# All cells' outputs, also of those that are scrolled out of sight and therefore not on the page.
OUTPUTS = """window.jupyterapp.shell.currentWidget.model.sharedModel.toJSON().cells
    .map((cell) => cell.outputs ?? [])"""
SCROLL_TO_BOARD = """async () => {
  const { content } = window.jupyterapp.shell.currentWidget;
  const index = content.widgets.findIndex((cell) => /^show\\(log/m.test(cell.model.sharedModel.source));
  content.activeCellIndex = index;
  await content.scrollToItem(index, "start");
}"""
SAVE_CELL = {
    "cell_type": "code",
    "id": "save",
    "metadata": {},
    "outputs": [],
    "execution_count": None,
    "source": 'log.save("lesson.jsonl")\nprint("saved", len(log))',
}


def copy_lesson(work: Path) -> None:
    """The lesson with one more cell, which hands the log of its kernel to the test."""
    notebook = json.loads((REPOSITORY / "notebooks" / LESSON).read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    notebook["cells"].append(SAVE_CELL)
    (work / LESSON).write_text(json.dumps(notebook))
    shutil.copytree(REPOSITORY / "notebooks" / "pictures", work / "pictures", dirs_exist_ok=True)


def test_the_first_lesson_runs_and_its_board_tells_what_the_log_says(
    new_page: NewPage, jupyter: tuple[str, Path]
) -> None:
    address, work = jupyter
    copy_lesson(work)
    page = new_page(width=1400, height=1000)
    open_notebook(page, address, LESSON)
    picture = page.locator(".jp-RenderedMarkdown img").first
    expect(picture).to_have_js_property("complete", True)
    assert picture.evaluate("img => img.naturalWidth") > 0

    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_function(f"() => JSON.stringify({OUTPUTS}).includes('saved')", timeout=120_000)
    outputs = [output for cell in page.evaluate(f"() => {OUTPUTS}") for output in cell]
    assert not [output for output in outputs if output["output_type"] == "error"]

    log = EventLog.load(work / "lesson.jsonl")
    page.evaluate(SCROLL_TO_BOARD)  # what is out of sight is not on the page
    board = BoardOnPage(page).wait()
    step = int(board.data("step"))
    expect_fold(board, log, step)
    # A click on "one step on": everything shown follows.
    board.root.get_by_role("button", name="Step forward ( . )").click()
    expect_fold(board, log, step + 1)
    # A click on a decision selects its request.
    board.root.locator(".decisions .chip").first.click()
    assert board.data("selected")
