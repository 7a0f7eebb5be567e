"""Run a lesson's cells in this process, with IPython but without a kernel.

`test_cells.py` forks such processes from one that has imported this module, because the imports take
longer than most lessons.
"""

import asyncio
import gc
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))
# jsonschema compiles this package's grammar for a check that we do not use, which takes two seconds.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

import plotly.io._renderers  # noqa: F401
import torch  # noqa: F401
from IPython.core.interactiveshell import InteractiveShell

import checks  # noqa: F401
import engine.models.loader  # noqa: F401
import server.process  # noqa: F401
import visualizer.figures
import visualizer.widgets  # noqa: F401


def run(sources: list[str], told: Connection, words: Path) -> None:
    """Send for each cell what it raised, or None; write to `words` what is printed."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)  # as in tests/conftest.py
    output = os.open(words, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):  # what the processes of a cell print, too
        os.dup2(output, stream)
    os.chdir(NOTEBOOKS)
    os.environ["UNDERGLASS_REVEAL"] = "1"  # no one is there to choose
    shell = InteractiveShell.instance()

    async def run() -> None:  # one loop for all cells, as in a kernel
        for source in sources:
            result = await shell.run_cell_async(
                source, transformed_cell=shell.transform_cell(source)
            )
            told.send(
                repr(error) if (error := result.error_before_exec or result.error_in_exec) else None
            )

    asyncio.run(run())
