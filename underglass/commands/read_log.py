"""Read the log that a command names: a file, standard input or a scenario."""

import atexit
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from underglass.commands.options import fail, tell

if TYPE_CHECKING:
    from engine.cluster.cluster_log import ClusterLog
    from engine.core.log import EventLog
    from visualizer.indexed.index_file import IndexFile
    from visualizer.scenario import Scenario
    from visualizer.sources import Reader

LARGE = 20_000_000  # bytes; a command that reads all of a larger log writes its index
_PACKED = 20  # a gzipped log has at least so many times fewer bytes, if it is long


def read_named(
    name: str,
    last: int | None = None,
    *,
    text: bool = True,
    whole: bool = False,
    indexed: bool = True,
) -> "EventLog | ClusterLog":
    """Return the log of a file, of standard input (-) or of a scenario, or exit with a message.

    If the log has an index or is large enough to get one, and `indexed`, all of it is read from there.
    Otherwise `last` is how many bytes of the file to keep, None for all. With `whole`, every event is
    checked against the events before it.
    """
    from engine.core.log import EventLog, LogError
    from visualizer.reading.without_text import log_without_text
    from visualizer.sources import read_source

    try:
        if (scenario := named_scenario(name)) is not None:
            log: EventLog | ClusterLog = scenario.log
            return log if text else log_without_text(log)
        path = _from_input() if name == "-" else Path(name)
        if indexed and (index := index_named(path, name)) is not None:
            from visualizer.indexed.indexed_log import log_of

            log, whole = log_of(index), False  # it was checked when the index was made
            for note in index.directory.damage:
                _tell_damage(name, note)
        else:
            with shown(path, "reading") as file:
                log = read_source(
                    file,
                    last,
                    tell=lambda note: tell(f"{name} is long: {note}. Show all with --last 0"),
                    tell_damage=partial(_tell_damage, name),
                )
        if whole and isinstance(log, EventLog):
            log.state()
        return log if text else log_without_text(log)
    except OSError as error:
        fail(f"cannot read {name}: {error.strerror or error}")
    except LogError as error:
        fail(f"{'standard input' if name == '-' else name}: {error}")


def _tell_damage(name: str, note: str) -> None:
    tell(f"{name}: a part cannot be read, and answers are without it: {note}")


def index_named(path: Path, name: str) -> "IndexFile | None":
    """Return the index of a log, or None if it has none. A long log gets one.

    A log that contradicts itself gets none. Raises LogError if the file itself is a damaged index, and
    OSError if the file cannot be read.
    """
    from engine.core.log import LogError
    from visualizer.indexed.beside import index_of, make_index

    if not path.is_file():
        return None
    index = index_of(path)
    if index is None and _is_long(path):
        with suppress(LogError, OSError), shown(path, "indexing") as file:
            index = make_index(path, file)
            if name != "-":
                tell(f"the index of {name} is {index.path}; it can be deleted at any time")
    return index


def _is_long(path: Path) -> bool:
    """Return whether a log is large. How many bytes a gzipped one has is only known at its end."""
    from visualizer.sources.feed import GZIP_MAGIC

    with path.open("rb") as file:
        is_packed = file.read(2) == GZIP_MAGIC
    return path.stat().st_size >= (LARGE // _PACKED if is_packed else LARGE)


def _from_input() -> Path:
    """Copy standard input to a file that is removed when the command ends."""
    folder = tempfile.TemporaryDirectory(prefix="underglass-")
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "input.jsonl"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def reader_of_long(name: str) -> "Reader | None":
    """Return the reader of a large log; None for any other name.

    It returns None for a file that cannot be read, too, so that `read_named` says why.
    """
    from engine.core.log import LogError
    from visualizer.sources import READERS
    from visualizer.sources.feed import Feed
    from visualizer.sources.limits import CHUNK

    path = Path(name)
    if name == "-" or not path.is_file():
        return None
    feed = Feed(READERS)
    try:
        if not _is_long(path):
            return None
        with path.open("rb") as file:
            feed.push(file.read(CHUNK))
    except (LogError, OSError):
        return None
    return feed.reader


@contextmanager
def shown(path: Path, doing: str) -> Iterator[BinaryIO]:
    """Open a file. On a terminal, a bar shows the progress of a long read."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        tqdm = None
    with path.open("rb") as file:
        bar = tqdm and tqdm.wrapattr(
            file,
            "read",
            total=path.stat().st_size,
            desc=f"{doing} {path.name}",
            delay=1,
            leave=False,
            disable=None,
        )
        with bar or nullcontext(file) as opened:
            yield opened


def named_scenario(name: str) -> "Scenario | None":
    """Return the scenario of this name, or None. Exit with a message if the name is nearly one."""
    from visualizer.scenario import UnknownScenarioError, find_scenario

    try:
        return None if name == "-" else find_scenario(name)
    except UnknownScenarioError as error:
        fail(str(error))
