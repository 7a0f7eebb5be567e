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


def index_of_beginning(path: Path) -> tuple[IndexFile, int]:
    """Return the index of the first bytes of a log that may have grown since, and how many they are.

    Raises LogError if the log begins otherwise or the index is damaged, and OSError without an index.
    """
    index = IndexFile(index_beside(path))
    size = int(index.directory.of.partition("-")[0] or 0)
    if index.directory.of != identity(path, size):
        raise LogError("the index is of another log")
    return index, size


def make_index(path: Path, file: BinaryIO, size: int | None = None) -> IndexFile:
    """Write the index of a log beside it, and return it. `file` is the log, opened.

    With `size`, the index is that of so many first bytes. Raises LogError for a log that is damaged or
    contradicts itself, and OSError if a file cannot be read or written.
    """
    for _ in index_pieces(path, file, size=size):
        pass
    return IndexFile(index_beside(path))


def index_pieces(
    path: Path,
    file: BinaryIO,
    told: Callable[[bytes, int], None] | None = None,
    size: int | None = None,
) -> Iterator[None]:
    """Do what `make_index` does, a piece of the log at a time. `told` gets the chunks (`IndexWriter`).

    What is written to the log in the meantime is not read. An index that is left unfinished is removed.
    """
    left = path.stat().st_size if size is None else size
    place = index_beside(path)
    if place.parent != path.parent:
        place.parent.mkdir(parents=True, exist_ok=True)
        _trim(place.parent, MOST_CACHED)
    with index_writer(place, identity(path, left), told) as writer, without_gc():
        feed = Feed(READERS, state=writer.state)
        while data := file.read(min(CHUNK, left)):
            left -= len(data)
            writer.add(feed.each(data))
            yield
        if left:
            raise LogError(f"the log became {left:,} bytes shorter while it was read")
        writer.add(feed.end())
        writer.end(feed.damage)
        yield


def whole_lines(path: Path) -> int:
    """Return how many bytes of a file are whole lines: the last line may still be being written."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - _END)
            file.seek(begin)
            if (found := file.read(end - begin).rfind(b"\n")) >= 0:
                return begin + found + 1
            end = begin
    return 0


def identity(path: Path, size: int | None = None) -> str:
    """Return what tells a log, or its beginning, from others: its length and checksums of both ends."""
    size = path.stat().st_size if size is None else size
    with path.open("rb") as file:
        head = file.read(min(size, _END))
        file.seek(max(0, size - _END))
        tail = file.read(min(size, _END))
    return f"{size}-{zlib.crc32(head):08x}-{zlib.crc32(tail):08x}"
