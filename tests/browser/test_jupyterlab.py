"""The board in a real JupyterLab: what the browser draws, the kernel knows, and the other way round."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from engine.events import EventLog
from tests.browser.board import BoardOnPage, expect_fold
from tests.browser.conftest import NewPage
from tests.visualizer.storytellers import storytellers

CELLS = [
    'from visualizer import show\nboard = show("run.jsonl")\nboard',
    "print('kernel:', board, board.selected, len(board.state()['free']))",
    "board.step = 7\nboard.selected = 5",
]


@pytest.fixture(scope="module")
def log() -> EventLog:
    return storytellers()


def write_notebook(path: Path, cells: list[str]) -> None:
    source = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "outputs": [], "source": cell,
         "execution_count": None}
        for i, cell in enumerate(cells)
    ]  # fmt: skip
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": source, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))


def open_notebook(page: Page, address: str, name: str) -> None:
    page.goto(f"{address}/lab/tree/{name}?reset")
    page.wait_for_selector(".jp-NotebookPanel .jp-Notebook .jp-Cell", timeout=60_000)
    # The indicator alone is idle too early: the kernel's own word first.
    page.wait_for_function(
        """async (address) => {
          const sessions = await (await fetch(`${address}/api/sessions`)).json();
          return sessions.some(({ kernel }) => kernel?.execution_state === "idle");
        }""",
        arg=address,
        timeout=60_000,
    )
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]", timeout=60_000)


def run_cell(page: Page, index: int) -> None:
    page.evaluate(
        """async (index) => {
          const panel = window.jupyterapp.shell.currentWidget;
          await panel.sessionContext.ready;
          panel.content.activeCellIndex = index;
          await window.jupyterapp.commands.execute("notebook:run-cell");
        }""",
        index,
    )


def set_theme(page: Page, name: str) -> None:
    page.evaluate(
        "name => window.jupyterapp.commands.execute('apputils:change-theme', { theme: name })", name
    )


def test_browser_and_kernel_agree(
    new_page: NewPage, jupyter: tuple[str, Path], log: EventLog
) -> None:
    address, work = jupyter
    log.save(work / "run.jsonl")
    write_notebook(work / "board.ipynb", CELLS)
    page = new_page(width=1400, height=1000)
    open_notebook(page, address, "board.ipynb")
    run_cell(page, 0)
    board = BoardOnPage(page).wait()
    expect_fold(board, log, 30)
    board.expect_selected(8)

    # What is done here, the kernel hears of.
    board.press(".", ".")
    expect_fold(board, log, 32)
    chip = board.root.locator(".decisions .chip").first
    selected = chip.get_attribute("data-request")
    chip.click()
    expect(board.root).to_have_attribute("data-synced", f"32 {selected}")
    run_cell(page, 1)
    free = board.data("free")
    said = f"kernel: Board(12 requests, 53 steps, at step 32) {selected} {free}"
    expect(page.locator(".jp-OutputArea-output").filter(has_text="kernel:")).to_have_text(said)

    # What the kernel sets is shown here.
    run_cell(page, 2)
    expect_fold(board, log, 7)
    board.expect_selected(5)

    # Keys typed on the board are no commands of the notebook ("b" would insert a cell).
    cells = page.locator(".jp-Cell").count()
    board.press("b", "a", "d", "x", ".")
    board.expect_step(8)
    assert page.locator(".jp-Cell").count() == cells


def test_it_follows_jupyterlabs_theme(
    new_page: NewPage, jupyter: tuple[str, Path], log: EventLog
) -> None:
    address, work = jupyter
    log.save(work / "run.jsonl")
    write_notebook(work / "theme.ipynb", CELLS[:1])
    page = new_page(width=1400, height=1000)
    open_notebook(page, address, "theme.ipynb")
    run_cell(page, 0)
    board = BoardOnPage(page).wait()
    expect(board.root).to_have_attribute("data-theme", "light")
    set_theme(page, "JupyterLab Dark")
    expect(board.root).to_have_attribute("data-theme", "dark")
    expect(board.root).to_have_css("background-color", "rgb(20, 22, 26)")
    set_theme(page, "JupyterLab Light")
    expect(board.root).to_have_attribute("data-theme", "light")
