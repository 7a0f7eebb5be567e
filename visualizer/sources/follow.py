"""Follow a file that another process is writing."""

import os
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import BinaryIO

from visualizer.sources.feed import Feed
from visualizer.sources.limits import CHUNK
from visualizer.sources.reader import LogEvent, Reader

_POLL = 0.1  # seconds between two reads of a file that does not grow


class FollowedFile:
    """A file that grows, may not exist yet, and may be replaced (rotated) or truncated.

    A truncated file is read again from its beginning. A replaced file is first read to its end, then
    the new file from its beginning.
    """

    def __init__(self, path: Path, readers: Sequence[Reader]) -> None:
        self._path = path
        self._readers = readers
        self._feed = Feed(readers)
        self._file: BinaryIO | None = None
        self._grew = False  # whether the last read returned data
        self._closed = threading.Event()

    def events(self) -> Generator[list[LogEvent], None, None]:
        """Yield new events as they are written, until `close`; raises what `read` raises."""
        try:
            while not self._closed.is_set():
                if events := self.read():
                    yield events
                elif not self._grew:
                    self._closed.wait(_POLL)
        finally:
            self._close_file()

    def close(self) -> None:
        """End `events`, from any thread."""
        self._closed.set()

    def read(self) -> list[LogEvent]:
        """Return the events in the next 256 KB or less; none if nothing new was written.

        Raises SourceError for a damaged line, OSError for an unreadable file.
        """
        if self._file is None and not self._open():
            return []
        assert self._file is not None, "_open has opened it"
        if os.fstat(self._file.fileno()).st_size < self._file.tell():  # truncated
            self._file.seek(0)
            self._feed = Feed(self._readers)
        data = self._file.read(CHUNK)
        self._grew = bool(data)
        if not data and self._is_replaced():
            self._close_file()
            return self.read()
        return self._feed.push(data)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> bool:
        try:
            self._file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return False
        self._feed = Feed(self._readers)
        return True

    def _is_replaced(self) -> bool:
        assert self._file is not None, "it is open"
        try:
            now = self._path.stat()
        except FileNotFoundError:  # between the two steps of a rotation
            return False
        mine = os.fstat(self._file.fileno())
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)
