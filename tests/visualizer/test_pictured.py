"""Each display of a board is saved with the picture that the front end draws, in both themes."""

import base64
from pathlib import Path
from typing import Any

import nbclient
import nbformat

from tests.visualizer.storytellers import storytellers

WIDGET = "application/vnd.jupyter.widget-view+json"
PNG = b"\x89PNG\r\n\x1a\n and so on"
CELLS = [
    "from visualizer import compare, show\nboard = show('run.jsonl')\nboard",
    "comparison = compare('run.jsonl', 'run.jsonl')\ncomparison",
    # Messages from a front end: first two without pictures; outside JupyterLab there is no dark one.
    "for one in ([], [PNG, b'<svg>'], [PNG, PNG + b'!']):\n"
    "    asked = [board.wants_picture]\n"
    "    board._handle_custom_msg({'picture': True}, one)\n"
    "comparison._handle_custom_msg({'picture': True}, [memoryview(PNG)])",
    "board",
    "asked + [board.wants_picture, comparison.wants_picture]",
]


def run(cells: list[str], folder: Path) -> list[list[Any]]:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell.outputs for cell in notebook.cells]


def test_each_display_gets_the_pictures_that_are_drawn_for_it(tmp_path):
    storytellers().save(tmp_path / "run.jsonl")
    first, compared, sent, second, asked = run([f"PNG = {PNG!r}\n{CELLS[0]}", *CELLS[1:]], tmp_path)
    for board, picture, style in (first, second):
        assert board.data.keys() == {WIDGET, "text/plain"}
        assert board.data["text/plain"] == "Board(12 requests, 53 steps, at step 30)"
        assert base64.b64decode(picture.data["image/png"]) == PNG
        dark = base64.b64encode(PNG + b"!").decode()
        assert f"content: url(data:image/png;base64,{dark})" in style.data["text/html"]
    assert compared[0].data.keys() == {WIDGET, "image/png", "text/plain"}
    assert sent == []
    assert asked[0].data["text/plain"] == "[True, False, False]"
