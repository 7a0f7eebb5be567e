"""The index beside a log, `run.jsonl.index` for `run.jsonl`: made once, and again when it is stale.

In a folder that cannot be written, the index is in the cache directory instead, which keeps at most
`MOST_CACHED` bytes of them, those used last.

An index says which log it is of by the log's length and the checksums of its two ends. A log that grew
or changed has other ones. A change in the middle that leaves both ends as they are is not noticed.
"""

import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from engine.core.log import LogError
from visualizer.indexed.index_file import MAGIC, IndexFile, index_writer
from visualizer.indexed.replica_indexes import parts_folder
from visualizer.sources import READERS
from visualizer.sources.collector import without_gc
from visualizer.sources.feed import Feed
from visualizer.sources.limits import CHUNK

SUFFIX = ".index"
MOST_CACHED = 10_000_000_000  # bytes of indexes in the cache directory, before the next one
_END = 1 << 16  # bytes at each end of a log that identify it


def index_beside(path: Path) -> Path:
    """Return the place of a log's index."""
    beside = path.with_name(path.name + SUFFIX)
    if beside.exists() or os.access(path.parent, os.W_OK):
        return beside
    whole = hashlib.sha256(bytes(path.resolve())).hexdigest()[:16]
    return cache_folder() / f"{path.name}.{whole}{SUFFIX}"


def cache_folder() -> Path:
    """Return the folder of the indexes that cannot be beside their logs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "underglass"


def _trim(folder: Path, most: int) -> None:
    """Remove the indexes of a folder that were used least recently, until the others fit."""
    times = {one: one.stat() for one in folder.glob(f"*{SUFFIX}")}
    for one in sorted(times, key=lambda one: -times[one].st_mtime):
        most -= times[one].st_size
        if most < 0:
            one.unlink(missing_ok=True)
            shutil.rmtree(parts_folder(one), ignore_errors=True)


def is_index(path: Path) -> bool:
    """Return whether a file is an index. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def index_of(path: Path) -> IndexFile | None:
    """Return the index of a log: the file itself or the one beside it; None if there is none.

    A stale or damaged index counts as none. Raises LogError if the file itself is a damaged index.
    """
    if is_index(path):
        return IndexFile(path)
    place = index_beside(path)
    try:
        index = IndexFile(place)
        if place.parent != path.parent:
            os.utime(place)
    except (LogError, OSError):
        return None
    return index if index.directory.of == identity(path) else None


def make_index(path: Path, file: BinaryIO) -> IndexFile:
    """Write the index of a log beside it, and return it. `file` is the log, opened.

    Raises LogError for a log that is damaged or contradicts itself, and OSError if a file cannot be
    read or written.
    """
    for _ in index_pieces(path, file):
        pass
    return IndexFile(index_beside(path))


def index_pieces(
    path: Path, file: BinaryIO, told: Callable[[bytes, int], None] | None = None
) -> Iterator[None]:
    """Do what `make_index` does, a piece of the log at a time. `told` gets the chunks (`IndexWriter`).

    An index that is left unfinished is removed.
    """
    place = index_beside(path)
    if place.parent != path.parent:
        place.parent.mkdir(parents=True, exist_ok=True)
        _trim(place.parent, MOST_CACHED)
    with index_writer(place, identity(path), told) as writer, without_gc():
        feed = Feed(READERS, state=writer.state)
        while data := file.read(CHUNK):
            writer.add(feed.each(data))
            yield
        writer.add(feed.end())
        writer.end(feed.damage)
        yield


def identity(path: Path) -> str:
    """Return what distinguishes a log from others: its length and checksums of its ends."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_END)
        file.seek(max(0, size - _END))
        tail = file.read(_END)
    return f"{size}-{zlib.crc32(head):08x}-{zlib.crc32(tail):08x}"
