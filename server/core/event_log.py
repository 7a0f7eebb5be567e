"""The event log in a server: from the engine's outbox to the window that viewers read, and to disk.

A server runs for weeks and an event log only grows, so the server keeps only the last `size` events.
Events that leave the window are folded into the keyframe at its start. New events are folded into
`state`, which `/health` reads and from which a live viewer starts. Each event is therefore folded
twice, in about two microseconds, and no event takes longer. The engine's `EventLog(window=)` does the
same for programs, but it folds half a window at once, which would pause a server.

Logs contain users' prompts and often lie in a shared folder such as /tmp. Opening one therefore never
follows a symbolic link or blocks on a pipe, and only the owner can read a new file. Two servers never
write the same trace file, because each would truncate the other's events.
"""

import asyncio
import errno
import logging
import os
import secrets
import stat
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if sys.platform != "win32":
    import fcntl

from engine.core.log.fold import State
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import AnyEvent, Event
from server.core.measures import Measures
from visualizer.reading.without_text import without_text

if TYPE_CHECKING:
    from server.core.kv_publisher import KVPublisher

logger = logging.getLogger("underglass")

encode_event = msgspec.json.Encoder().encode


def json_lines(events: Iterable[msgspec.Struct]) -> bytes:
    """Encode events as JSON Lines."""
    return b"".join([encode_event(event) + b"\n" for event in events])


# The first bytes of an event log, of a cluster log and of a request log.
_LOG_STARTS = (
    *(b'{"type":"%b"' % kind for kind in (b"run_started", b"keyframe", b"cluster_started")),
    b'{"time": ',
)


class Outbox(EventLog):
    """The engine's log in a server: holds the events that have not been taken yet.

    texts   whether the events keep names and texts; see `without_text.py`
    """

    def __init__(self, *, texts: bool = True) -> None:
        super().__init__()
        self.texts = texts
        self._new: list[AnyEvent] = []
        self._count = 0

    def append(self, event: Event) -> None:
        """Add an event."""
        new = event if self.texts else without_text(event)
        self._new.append(new)
        self._count += 1

    @property
    def next_seq(self) -> int:
        """The number of the next event."""
        return self._count

    def take(self) -> list[AnyEvent]:
        """Return the events since the last call."""
        taken, self._new = self._new, []
        return taken


class Followed:
    """A log that any number of viewers follow. Lives on the event loop.

    run  names this log: event numbers of another run mean nothing here
    """

    def __init__(self) -> None:
        self.run = secrets.token_hex(4)
        self._next: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Wake everything that waits in `changed`."""
        if self._next is not None:
            self._next.set_result(None)
            self._next = None

    async def changed(self, timeout: float) -> bool:
        """Wait for `wake`; return False after `timeout` seconds without one."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._next)
        except TimeoutError:
            return False
        return True


class Window(Followed):
    """The last `size` events of an engine's log.

    first_seq   number of the oldest event kept
    state       all events, folded
    measures    all events, counted
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._first = State()  # the state before the oldest event kept
        self._events: deque[Event] = deque()
        self.first_seq = 0
        self.state = State()
        self.measures = Measures()

    @property
    def next_seq(self) -> int:
        """The number of the next event."""
        return self.state.seq + 1

    def extend(self, events: Iterable[Event]) -> None:
        """Add new events and wake the viewers."""
        for event in events:
            self.state.apply(event)
            self.measures.apply(event)
            self._events.append(event)
        while len(self._events) > self._size:
            self._first.apply(self._events.popleft())
            self.first_seq += 1
        self.wake()

    def since(self, seq: int) -> list[Event]:
        """Return the events with number `seq` and later."""
        new = islice(reversed(self._events), max(0, self.next_seq - seq))  # newest events first
        return list(new)[::-1]

    def head(self) -> list[Event]:
        """Return what precedes the oldest event kept, so that both together are a complete log."""
        return [self._first.keyframe()] if self.first_seq else []

    def keyframes(self) -> list[Event]:
        """Return the events that stand for the whole log so far."""
        return [self.state.keyframe()]

    def trace(self) -> list[Event]:
        """Return the window as a complete log: it starts with a keyframe if older events are gone."""
        return [*self.head(), *self._events]


@dataclass(frozen=True, slots=True)
class PreviousRun:
    """The run before a restart, for a comparison. A server keeps only the last one.

    run      its name
    log      its window: gzipped JSON Lines
    changed  the settings that the restart changed: their values before and after it
    prompts  whether its prompts were submitted again: "none", "same_steps" or "together"
    """

    run: str
    log: bytes
    changed: dict[str, tuple[object, object]]
    prompts: str


class TraceFile:
    """The whole log on disk, as JSON Lines. Used by one thread: an engine's, or a gateway's for it.

    Written events have left the process when `write` returns, so the log of a killed server loads up
    to its last complete line. A full disk ends the recording, not the server. Opening may raise
    OSError; see `open_log` for the files that it replaces.

    problem  why the file is no longer written, or ""
    """

    def __init__(self, path: Path, number: int = 1) -> None:
        self._first_path, self._number = path, number
        self._path = self.path_of(path, number)
        self._file = open_log(self._path)
        self.problem = ""

    @staticmethod
    def path_of(path: Path, number: int) -> Path:
        """Return the path of a run's file."""
        return path if number == 1 else path.with_stem(f"{path.stem}-{number}")

    def next(self) -> "TraceFile":
        """Open the file of the next run: `class-2.jsonl` after `class.jsonl`. May raise OSError."""
        return TraceFile(self._first_path, self._number + 1)

    def close(self) -> None:
        """Close the file; nothing is written afterwards."""
        self._file.close()

    def write(self, events: Iterable[msgspec.Struct]) -> None:
        """Append events: those of one step, or of a cluster."""
        if self.problem:
            return
        try:
            rest = memoryview(json_lines(events))
            while rest:  # a nearly full disk takes only part; the next write raises
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self.problem = (
                f"the trace file {self._path.name} is no longer written: {error.strerror}"
            )
            logger.error(
                "%s: %s. The log on disk ends here; the server goes on.", self._path, error
            )


@dataclass(frozen=True, slots=True)
class KVSource:
    """Where KV events are published; see `KVPublisher`.

    batches, unsent  how many batches can be replayed, and how many may wait for a slow subscriber
    """

    endpoint: str
    replay_endpoint: str
    topic: str
    batches: int
    unsent: int

    @property
    def is_local(self) -> bool:
        """Whether only this machine can subscribe."""
        return self.endpoint.startswith(("tcp://127.", "tcp://[::1]"))


class Recording:
    """The events' way out of the process, beside the reports: the trace file and the KV events.

    Used by the engine thread; between two runs, by the thread that starts the next one.
    """

    def __init__(
        self, trace_file: TraceFile | None = None, kv_publisher: "KVPublisher | None" = None
    ) -> None:
        self.kv_publisher = kv_publisher
        self._trace_file = trace_file
        self._next: TraceFile | None = None

    def record(self, events: list[AnyEvent], salts: Mapping[str, str]) -> str:
        """Write and publish new events; return why the trace file is no longer written, or "".

        salts  see `KVPublisher.publish`; they are not written
        """
        if self._trace_file is not None:
            self._trace_file.write(events)
        if self.kv_publisher is not None:
            self.kv_publisher.publish(events, salts)
        return self._trace_file.problem if self._trace_file is not None else ""

    def open_next(self) -> str:
        """Open the next run's trace file; return the reason if that fails, or ""."""
        try:
            if self._trace_file is not None and self._next is None:
                self._next = self._trace_file.next()
        except OSError as error:
            return str(error.strerror)
        return ""

    def switch(self) -> None:
        """Write to the next run's trace file from now on."""
        if self._trace_file is not None and self._next is not None:
            self._trace_file.close()
            self._trace_file, self._next = self._next, None

    def close(self) -> None:
        """Close the trace file, and publish what is left."""
        if self._trace_file is not None:
            self._trace_file.close()
        if self.kv_publisher is not None:
            self.kv_publisher.close()


def open_log(path: Path, *, append: bool = False) -> FileIO:
    """Open a file to write a log to, unbuffered; an old log is replaced, or appended to.

    Raises OSError for anything but a plain file, and for a file that is not a log: a mistyped path must
    not destroy a file.
    """
    flags = os.O_RDWR | os.O_CREAT
    if sys.platform == "win32":
        flags |= os.O_BINARY | os.O_NOINHERIT
    else:
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | (os.O_APPEND if append else 0), 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link: name the file itself") from None
        raise
    file = FileIO(descriptor, "rb+")
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is not a plain file")
        if status.st_size and not file.read(64).startswith(_LOG_STARTS):
            raise OSError(
                errno.EEXIST, "exists and is not a log: choose another name, or remove it"
            )
        if not append:
            _lock(descriptor)
            file.seek(0)
            file.truncate()
    except OSError:
        file.close()
        raise
    return file


def _lock(descriptor: int) -> None:
    """Lock a file against other servers until it is closed or the process ends; not on Windows."""
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "another server is writing to it: choose another name") from None
