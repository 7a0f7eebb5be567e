"""Read the log that a command names: a file, standard input or a scenario."""

import atexit
import shutil
import signal
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
    name: str, last: int | None = None, *, text: bool = True, whole: bool = False
) -> "EventLog | ClusterLog":
    """Return the log of a file, of standard input (-) or of a scenario, or exit with a message.

    A log that has an index, or is large enough to get one, is read from there. `last` is how many bytes
    at its end to keep, None for all. With `whole`, every event is checked against the events before it.
    """
    from engine.core.log import EventLog, LogError
    from visualizer.reading.without_text import log_without_text
    from visualizer.sources import read_source

    try:
        if (scenario := named_scenario(name)) is not None:
            log: EventLog | ClusterLog = scenario.log
            return log if text else log_without_text(log)
        path = _from_input() if name == "-" else Path(name)
        if (index := index_named(path, name)) is not None:
            log, whole = _from_index(index, path, name, last), False  # its index checked it
        else:
            with shown(path, "reading") as file:
                log = read_source(
                    file,
                    last,
                    tell=lambda note: tell(f"{name}: {note}"),
                    tell_damage=partial(_tell_damage, name),
                )
        if whole and isinstance(log, EventLog):
            log.state()
        return log if text else log_without_text(log)
    except OSError as error:
        fail(f"cannot read {name}: {error.strerror or error}")
    except LogError as error:
        fail(f"{'standard input' if name == '-' else name}: {error}")


def _from_index(
    index: "IndexFile", path: Path, name: str, last: int | None
) -> "EventLog | ClusterLog":
    from visualizer.indexed.indexed_log import log_of
    from visualizer.indexed.part import end_of
    from visualizer.sources.window import left_out

    log = log_of(index)
    for note in index.directory.damage:
        _tell_damage(name, note)
    if last is not None:
        size = path.stat().st_size * (_PACKED if _is_packed(path) else 1)
        log, begin = end_of(log, min(1.0, last / size))
        if begin:
            tell(f"{name}: {left_out(begin)}")
    return log


def _tell_damage(name: str, note: str) -> None:
    tell(f"{name}: a part cannot be read, and answers are without it: {note}")


def index_named(path: Path, name: str) -> "IndexFile | None":
    """Return the index of a log, or None if it has none. A long log gets one.

    If it cannot get one, because it contradicts itself or there is no room, it is read without, unless
    it is too long for that. Raises LogError then, and if the file itself is a damaged index. Raises
    OSError if the file cannot be read.
    """
    from engine.core.log import LogError
    from visualizer.indexed.beside import index_of, make_index
    from visualizer.sources.limits import LAST

    if not path.is_file():
        return None
    index = index_of(path)
    if index is None and _has(path, LARGE):
        try:
            with shown(path, "indexing") as file:
                index = make_index(path, file)
            if name != "-":
                tell(f"the index of {name} is {index.path}; it can be deleted at any time")
        except OSError as error:
            if _has(path, LAST):
                raise LogError(
                    "it is too long to be read without an index, and that cannot be written: "
                    f"{error.strerror or error}"
                ) from error
        except LogError:
            if _has(path, LAST):
                raise
    return index


def index_to_follow(path: Path) -> None:
    """Write the index of a long log that grows, unless it has one of nearly all of it.

    Then it is followed from there on. Gzipped logs and those of other engines are read from the start.
    """
    from engine.core.log import LogError
    from visualizer.indexed.beside import index_of_beginning, make_index, whole_lines
    from visualizer.sources.limits import MAX_FIRST_LINE
    from visualizer.sources.own_logs import ENGINE_LOG

    indexed = 0
    with suppress(LogError, OSError):
        _, indexed = index_of_beginning(path)
    with suppress(LogError, OSError):
        if path.is_file() and (size := whole_lines(path)) - indexed >= LARGE:
            with shown(path, "indexing") as file:
                is_own = ENGINE_LOG.recognizes(file.readline(MAX_FIRST_LINE))
                file.seek(0)
                if is_own:
                    make_index(path, file, size)


def _has(path: Path, size: int) -> bool:
    """Return whether a log has so many bytes; of a gzipped one, that is only known at its end."""
    return path.stat().st_size >= (size // _PACKED if _is_packed(path) else size)


def _is_packed(path: Path) -> bool:
    from visualizer.sources.feed import GZIP_MAGIC

    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


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
        if not _has(path, LARGE):
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
    with path.open("rb") as file, ended_by_sigterm():
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


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the process as Ctrl-C does: an unfinished index is removed."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def named_scenario(name: str) -> "Scenario | None":
    """Return the scenario of this name, or None. Exit with a message if the name is nearly one."""
    from visualizer.scenario import UnknownScenarioError, find_scenario

    try:
        return None if name == "-" else find_scenario(name)
    except UnknownScenarioError as error:
        fail(str(error))
