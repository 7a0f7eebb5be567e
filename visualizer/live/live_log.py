"""Keep a window of a growing source's newest events, and stream them to the pages that follow it.

The stream has the format of a server's `/events`, so one front end draws both. A page that joins, or
that has fallen behind the window, gets the whole window.
"""

import secrets
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import msgspec

from engine.cluster.cluster_log import ClusterLog
from engine.cluster.events import AnyClusterEvent, ClusterStarted
from engine.core.log import Event, EventLog, LogError
from engine.core.log.vocabulary import Keyframe, RunStarted
from visualizer.live.beginning import indexed_beginning
from visualizer.reading.reading import read
from visualizer.reading.without_text import without_text
from visualizer.sources import READERS
from visualizer.sources.collector import without_gc
from visualizer.sources.follow import FollowedFile
from visualizer.sources.reader import LogEvent

WINDOW = 40_000  # events; the page keeps five times as many
_PIECE = 1000  # events sent at a time
_PATIENCE = 10.0  # seconds without an event before a comment is sent
_encode = msgspec.json.Encoder().encode


class LiveSource(Protocol):
    """A source that can be followed: a file that grows, or a feed.

    resting  why no events come at present, or ""
    """

    resting: str

    def events(self) -> Generator[Sequence[LogEvent], None, None]:
        """Yield events as they come, until `close`. Raises LogError or OSError."""

    def close(self) -> None:
        """End `events`, from any thread."""


def open_live(name: str) -> LiveSource:
    """Open the KV events of an endpoint (tcp://..., ipc://...), or a file that grows.

    Raises SourceError for an endpoint that cannot be opened.
    """
    if not name.startswith(("tcp://", "ipc://")):
        return FollowedFile(Path(name), READERS, indexed_beginning)
    from visualizer.sources.zmq_source import ZmqSource

    return ZmqSource(name)


class LiveLog:
    """The newest events of a source, written by one thread and read by any number of threads.

    name    the source's name, which the pages show
    ended   why no more events come, or "" while the source goes on
    """

    def __init__(self, name: str, window: int = WINDOW) -> None:
        self.name = name
        self.ended = ""
        self._window = window
        self._changed = threading.Condition()
        self._run = ""
        self._log: EventLog | ClusterLog | None = None

    @property
    def is_cluster(self) -> bool:
        """Whether the events are those of a cluster; False before the first event."""
        return isinstance(self._log, ClusterLog)

    def follow(
        self,
        source: LiveSource,
        *,
        text: bool = True,
        tell: Callable[[str], None] = lambda _why: None,
    ) -> threading.Thread:
        """Start and return a thread that adds a source's events until the source ends.

        text  whether to keep prompts, outputs, token ids and labels
        tell  is called with the reason if reading the source fails; all pages show the reason, too
        """

        def run() -> None:
            try:
                with closing(
                    source.events()
                ) as batches:  # closed by the thread that uses its sockets
                    for batch in batches:
                        self.take(batch if text else map(without_text, batch))
                        if source.resting != self.ended:
                            self.end(source.resting)
            except (LogError, OSError) as error:
                self.end(str(error))
                tell(f"{self.name}: {error}")
            except Exception as error:  # a defect: its traceback goes to the terminal
                self.end(f"{type(error).__name__}: {error}")
                raise

        thread = threading.Thread(target=run, name="source", daemon=True)
        thread.start()
        return thread

    def take(self, events: Iterable[LogEvent]) -> None:
        """Add events. An event that begins a run replaces the log by a new one."""
        with self._changed, without_gc():
            for event in events:
                if self._log is None or isinstance(event, RunStarted | Keyframe | ClusterStarted):
                    self._begin(event)
                else:
                    self._log.append(event)  # type: ignore[arg-type]
            self._changed.notify_all()

    def regimes(self) -> dict[str, Any]:
        """Return what limited the run so far, in the events that are kept; {} before the first one."""
        log = self.kept()
        return read(log).regimes.as_dict() if len(log) else {}

    def kept(self) -> EventLog | ClusterLog:
        """Return a copy of the events that are kept; an empty log if there are none."""
        with self._changed:
            events, is_cluster = list(self._log or []), self.is_cluster
        if not is_cluster:
            return EventLog.from_events(events) if events else EventLog()  # type: ignore[arg-type]
        log = ClusterLog()
        for event in events:
            log.append(event)  # type: ignore[arg-type]
        return log

    def tour(self) -> bytes:
        """Return the tour of the events that are kept, as JSON."""
        return read(self.kept()).tour.to_json()

    def kind(self) -> Iterator[bytes]:
        """Yield spaces until the first event has come, and then whether it is one of a cluster."""
        while True:
            with self._changed:
                if self._log is None:
                    self._changed.wait(_PATIENCE)
                is_known = self._log is not None
            yield b" "
            if is_known:
                yield b"cluster" if self.is_cluster else b"engine"
                return

    def end(self, why: str) -> None:
        """Tell all pages why no more events come, or with "" that they come again."""
        with self._changed:
            self.ended = why
            self._changed.notify_all()

    def stream(self, last_seen: str = "") -> Iterator[bytes]:
        """Yield server-sent events after the one with the id `last_seen`, forever.

        Nothing is yielded while the lock is held, so a page that reads slowly delays no other page.
        """
        run, _, number = last_seen.partition(":")
        next_seq = int(number) + 1 if number.isdecimal() and len(number) < 16 else -1
        sent_status = b""
        while True:
            with self._changed:
                data, status = self._since(run, next_seq), self._status()
                if not data and status == sent_status:
                    self._changed.wait(_PATIENCE)
                    data, status = self._since(run, next_seq), self._status()
                if self._log is not None:
                    run, next_seq = self._run, self._log.next_seq
            for start in range(0, len(data), _PIECE):
                yield b"".join(data[start : start + _PIECE])
            yield status if status != sent_status else b":\n\n"
            sent_status = status

    def _begin(self, event: LogEvent) -> None:
        self._run = secrets.token_hex(4)
        if isinstance(event, Event):
            self._log = EventLog.from_events([event], self._window)
        else:
            self._log = ClusterLog(self._window)
            self._log.append(event)

    def _since(self, run: str, next_seq: int) -> list[bytes]:
        """Return what to send to a page that has the events of `run` before `next_seq`."""
        log = self._log
        if log is None:
            return []
        known = log.since(next_seq) if run == self._run and 0 <= next_seq <= log.next_seq else None
        if known is not None and len(known) == log.next_seq - next_seq:
            return self._with_ids(known, next_seq)
        data = []
        if run == self._run and next_seq >= 0:
            data = [b'event: dropped\ndata: {"dropped": %d}\n\n' % (log.next_seq - next_seq)]
        numbered = log.since(0)
        head = list(log)[: len(log) - len(numbered)]  # a cluster's state before the window
        data += [b"data: %b\n\n" % _encode(event) for event in head]
        return data + self._with_ids(numbered, log.next_seq - len(numbered))

    def _with_ids(self, events: list[Event] | list[AnyClusterEvent], first: int) -> list[bytes]:
        run = self._run.encode()
        return [
            b"id: %b:%d\ndata: %b\n\n" % (run, seq, _encode(event))
            for seq, event in enumerate(events, first)
        ]

    def _status(self) -> bytes:
        status = {
            "run": self._run,
            "controls": False,
            "source": self.name,
            "ended": self.ended,
        }
        return b"event: status\ndata: %b\n\n" % _encode(status)
