"""Notebooks in JupyterLab: written by a test, run cell by cell."""

import json
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter
from playwright.sync_api import Locator, Page, expect

from authoring.lab import open_notebook


def write_notebook(path: Path, cells: list[str]) -> None:
    source = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "outputs": [], "source": cell,
         "execution_count": None}
        for i, cell in enumerate(cells)
    ]  # fmt: skip
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": source, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))


def open_saved(page: Page, address: str, name: str, widget: Locator) -> None:
    """Open a notebook and wait until `widget`, which was saved with it, is drawn.

    ipywidgets restores the models twice at once when the kernel connects while they load. When the
    restore without the saved models ends first, each output says "model not found" for good; a
    reload helps, as it does a reader.
    """
    lost = page.get_by_text("model not found").first
    for _attempt in range(5):
        open_notebook(page, address, name)
        expect(widget.or_(lost).first).to_be_visible(timeout=60_000)
        if not lost.is_visible():
            return
    raise AssertionError(f"{name}: JupyterLab lost the saved widgets five times")


def open_exported(page: Page, notebook: Path, theme: str) -> Page:
    """Open the page that nbconvert makes of a notebook, without a network."""
    exported = notebook.with_suffix(".html")
    html, _ = HTMLExporter(theme=theme).from_notebook_node(nbformat.read(notebook, as_version=4))
    exported.write_text(html)
    alone = page.context.browser.new_page()  # type: ignore[union-attr]
    alone.route("http*://**", lambda route: route.abort())
    alone.goto(exported.as_uri())
    return alone


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


def expect_said(page: Page, said: str) -> None:
    expect(page.locator(".jp-OutputArea-output").get_by_text(said, exact=True)).to_be_visible()
