"""Follow a file that another process is writing, and the files of the runs after it."""

import os
import re
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

if sys.platform != "win32":
    import fcntl

from visualizer.sources.feed import Feed
from visualizer.sources.limits import CHUNK
from visualizer.sources.reader import LogEvent, Reader

_POLL = 0.1  # seconds between two reads of a file that does not grow


class Beginning(NamedTuple):
    """What need not be read of a file to follow it.

    events  the last ones before the rest of the file, after a keyframe of those before them
    state   the line of a keyframe with which the rest of the file goes on
    lines   how many lines there are before the rest
    size    their bytes
    """

    events: list[LogEvent]
    state: bytes
    lines: int
    size: int


class FollowedInput:
    """Standard input, or a pipe that another process writes to.

    resting  why nothing more comes, or ""
    """

    def __init__(self, stream: BinaryIO, readers: Sequence[Reader]) -> None:
        self._stream = stream
        self._feed = Feed(readers)
        self.resting = ""

    def events(self) -> Generator[list[LogEvent], None, None]:
        """Yield new events as they come; at the end, a batch without events says so in `resting`.

        Raises SourceError for a damaged line.
        """
        while data := os.read(self._stream.fileno(), CHUNK):
            if events := self._feed.push(data):
                yield events
        self.resting = "its writer has ended"
        yield []

    def close(self) -> None:
        """Do nothing: a read that waits ends with the process."""


class FollowedFile:
    """A file that grows, may not exist yet, and may be replaced (rotated) or truncated.

    A truncated file is read again from its beginning. A replaced file is first read to its end, then
    the new file from its beginning. So is the file of the writer's next run, `run-2.jsonl` after
    `run.jsonl`, once the file is no longer written (see `TraceFile` in `server/core/event_log.py`),
    and the next part of a recording that is split, `run.part2.jsonl.gz` after `run.jsonl.gz`.

    known    returns what need not be read of a file
    resting  why nothing more is written to the file, or ""
    """

    def __init__(
        self,
        path: Path,
        readers: Sequence[Reader],
        known: Callable[[Path], Beginning | None] = lambda _path: None,
    ) -> None:
        self._path = path
        self._readers = readers
        self._known = known
        self._events: list[LogEvent] = []  # that were known
        self._feed = Feed(readers)
        self._file: BinaryIO | None = None
        self._grew = False  # whether the last read returned data
        self._was_written = False  # whether a server of this project was seen to write it
        self._asks = True  # whether to look if one does: not of a file that stays as it was
        self.resting = ""
        self._closed = threading.Event()

    def events(self) -> Generator[list[LogEvent], None, None]:
        """Yield new events as they are written, until `close`; raises what `read` raises.

        A batch without events says that `resting` has changed.
        """
        try:
            while not self._closed.is_set():
                was_resting = self.resting
                if (events := self.read()) or self.resting != was_resting:
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
        if self._events:
            events, self._events = self._events, []
            return events
        if os.fstat(self._file.fileno()).st_size < self._file.tell():  # truncated
            self._file.seek(0)
            self._feed = Feed(self._readers)
        data = self._file.read(CHUNK)
        self._grew = bool(data)
        if data:
            self._asks, self.resting = True, ""
        elif self._is_replaced() or self._goes_on():
            data = self._file.read(CHUNK)  # the last bytes may have been written meanwhile
            if not data:
                self._close_file()
                return self.read()
        return self._feed.push(data)

    def _goes_on(self) -> bool:
        """Note whether the writer has closed the file; return whether it goes on in the next one."""
        if self._is_next(part := self._next_part()):
            self._path, self.resting = part, ""
            return True
        if self._is_written():
            self._was_written = True
            return False
        after = self._next_path()
        if self._was_written and not self.resting:
            self.resting = f"this run has ended; the next one is shown when {after.name} is written"
        if self._is_next(after):
            self._path, self._was_written, self.resting = after, False, ""
            return True
        return False

    def _is_next(self, after: Path) -> bool:
        """Return whether a file is newer than the current one, and not left from before."""
        try:
            return after.stat().st_mtime >= self._path.stat().st_mtime and after.stat().st_size > 0
        except FileNotFoundError:
            return False

    def _is_written(self) -> bool:
        """Return whether a server of this project writes the file: it has locked it."""
        assert self._file is not None, "it is open"
        if sys.platform == "win32" or not self._asks:
            return False
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._asks = False
        return False

    def _next_part(self) -> Path:
        """Return the path of the next part, which `recorders/vllm` numbers before the suffixes."""
        stem, _, suffixes = self._path.name.partition(".")
        number = re.match(r"part(\d+)(\.|$)", suffixes)
        suffixes = suffixes[number.end() :] if number else suffixes
        part = f"{stem}.part{int(number[1]) + 1 if number else 2}"
        return self._path.with_name(f"{part}.{suffixes}" if suffixes else part)

    def _next_path(self) -> Path:
        """Return the path of the next run's file."""
        number = re.fullmatch(r"(.+)-(\d+)", self._path.stem)
        if number and self._path.with_stem(number[1]).exists():
            return self._path.with_stem(f"{number[1]}-{int(number[2]) + 1}")
        return self._path.with_stem(f"{self._path.stem}-2")

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
        if (known := self._known(self._path)) is not None:
            self._feed.resume(known.state, known.lines)
            self._events = known.events
            self._file.seek(known.size)
        return True

    def _is_replaced(self) -> bool:
        assert self._file is not None, "it is open"
        try:
            now = self._path.stat()
        except FileNotFoundError:  # between the two steps of a rotation
            return False
        mine = os.fstat(self._file.fileno())
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)
