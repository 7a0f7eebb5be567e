"""Each output of a board gets the picture that the front end draws, once, and keeps the widget."""

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
    # Messages from a front end: first one that is not a picture, then two pictures.
    "for one in ([], [b'<svg>'], [PNG], [PNG + b'!']):\n"
    "    board._handle_custom_msg({'picture': True}, one)\n"
    "comparison._handle_custom_msg({'picture': True}, [memoryview(PNG)])",
    "asked = [board.wants_picture]\nboard",
    "asked + [board.wants_picture, comparison.wants_picture]",
]


def run(cells: list[str], folder: Path) -> list[list[Any]]:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell.outputs for cell in notebook.cells]


def test_each_output_gets_the_first_picture_that_is_drawn_for_it(tmp_path):
    storytellers().save(tmp_path / "run.jsonl")
    first, compared, sent, second, asked = run([f"PNG = {PNG!r}\n{CELLS[0]}", *CELLS[1:]], tmp_path)
    for (output,) in (first, compared):
        assert base64.b64decode(output.data["image/png"]) == PNG
        assert output.data[WIDGET]["model_id"]
    assert first[0].data["text/plain"] == "Board(12 requests, 53 steps, at step 30)"
    assert sent == []
    assert second[0].data.keys() == {WIDGET, "text/plain"}
    assert second[0].data[WIDGET] == first[0].data[WIDGET]
    assert asked[0].data["text/plain"] == "[False, True, False]"
