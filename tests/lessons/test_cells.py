"""Every lesson runs from top to bottom, as it is stored: no cell raises, and each of them ends.

The cells run without a kernel (`cells.py`); `tests/browser` runs lessons in JupyterLab.
"""

import multiprocessing
import time
from pathlib import Path

import nbformat
import pytest

from authoring.parts import WORKBENCHES, lessons
from tests.lessons import cells

PATIENCE_S = 60.0  # for a cell on a busy machine

can_fork = "forkserver" in multiprocessing.get_all_start_methods()
processes = multiprocessing.get_context("forkserver" if can_fork else "spawn")
processes.set_forkserver_preload([cells.__name__])


@pytest.mark.parametrize("lesson", [*lessons(), *WORKBENCHES], ids=lambda path: path.stem)
def test_no_cell_raises(lesson: Path, tmp_path: Path) -> None:
    code = [c for c in nbformat.read(lesson, as_version=4).cells if c.cell_type == "code"]
    words = tmp_path / "words.txt"
    failures, told = processes.Pipe(duplex=False)
    process = processes.Process(target=cells.run, args=([c.source for c in code], told, words))
    process.start()
    told.close()
    try:
        for number, cell in enumerate(code):
            started = time.perf_counter()
            try:
                failure = failures.recv() if failures.poll(PATIENCE_S) else "it still runs"
            except EOFError:
                failure = "its process has ended"
            print(f"{time.perf_counter() - started:6.2f} s  cell {number}")  # -rP shows it
            assert not failure, f"cell {number}: {failure}\n{cell.source}\n{words.read_text()}"
    finally:
        process.kill()
        process.join()
