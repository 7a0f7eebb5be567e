"""`underglass index`: write the index of logs, so that whatever reads them begins at once."""

from pathlib import Path
from typing import Annotated

import typer

from underglass.commands.options import fail
from underglass.commands.read_log import shown


def index_logs(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Logs of this engine, a cluster, vLLM or SGLang, which may be gzipped.",
        ),
    ],
) -> None:
    """Write the index of a log beside it, as FILE.index.

    The index has the log's events as typed columns in chunks, so it can be opened in place of
    the log. It can be deleted at any time. If the log changes, the index is not used any more.
    A log of at least 20 MB gets an index when a command first reads all of it.
    """
    from engine.core.log import LogError
    from visualizer.indexed.beside import index_beside, is_index, make_index
    from visualizer.indexed.indexed_log import log_of
    from visualizer.packed import board_options

    for path in files:
        try:
            if is_index(path):
                fail(f"{path} is an index already: give the log itself")
            with shown(path, "indexing") as file:
                index = make_index(path, file)
            board_options(log_of(index))  # the index then remembers the options of the page
        except OSError as error:
            fail(f"cannot index {path}: {error.strerror or error}")
        except LogError as error:
            fail(f"{path}: {error}")
        typer.echo(index_beside(path))
