"""An index in a temporary file, for a log that is made from a long one: it needs little memory, too."""

import atexit
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from visualizer.indexed.index_file import IndexFile, index_writer
from visualizer.indexed.indexed_log import Indexed, log_of
from visualizer.sources.collector import without_gc


def indexed_temporarily(events: Iterable[Any], damage: Sequence[str]) -> Indexed:
    """Return the log of these events, which is read from an index until the process ends.

    damage  what of the log cannot be read. Raises OSError if the index cannot be written.
    """
    folder = tempfile.TemporaryDirectory(prefix="underglass-")
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "part.index"
    with index_writer(path) as writer, without_gc():
        writer.add(events)
        writer.end(damage)
    return log_of(IndexFile(path))
