"""The whole cluster log on disk: `--trace-file` of a gateway.

A gateway that starts again begins another file, `run-2.jsonl` after `run.jsonl`, because the log of the
one before may be what its operator needs to read. A thread writes, so a slow disk delays no request.
"""

import threading
from itertools import count
from pathlib import Path
from queue import SimpleQueue

from engine.cluster.events import AnyClusterEvent
from server.core.engine_client import StartError
from server.core.event_log import TraceFile, open_log
from visualizer.reading.without_text import without_text

_PATIENCE = 5.0  # seconds
_MOST_WAITING = 200_000  # events that wait for the disk


class ClusterTrace:
    """Writes events to a trace file in the order in which they are added.

    texts  whether the events keep names and texts; see `without_text.py`
    """

    def __init__(self, file: TraceFile, *, texts: bool) -> None:
        self._file = file
        self._is_behind = False
        self._texts = texts
        self._events = SimpleQueue[AnyClusterEvent | None]()
        self._thread = threading.Thread(target=self._write, name="trace file", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str:
        """Why the file is no longer written, or ""."""
        behind = f"the disk was {_MOST_WAITING:,} events behind" if self._is_behind else ""
        return self._file.problem or behind

    def add(self, event: AnyClusterEvent) -> None:
        """Add an event; it is written as soon as the disk allows.

        A log with a gap could not be read, so nothing more is written once the disk is too far behind.
        """
        self._is_behind = self._is_behind or self._events.qsize() >= _MOST_WAITING
        if not self._is_behind:
            self._events.put(event)

    def close(self) -> None:
        """Write what was added, and close the file. Blocks, but does not wait long for a stuck disk."""
        self._events.put(None)
        self._thread.join(_PATIENCE)
        if not self._thread.is_alive():
            self._file.close()

    def _write(self) -> None:
        while (event := self._events.get()) is not None:
            batch = [event]
            while not self._events.empty() and (event := self._events.get()) is not None:
                batch.append(event)
            self._file.write(batch if self._texts else map(without_text, batch))
            if event is None:
                return


def open_trace(path: Path | None, *, texts: bool) -> ClusterTrace | None:
    """Open the first file in line that does not exist yet: PATH, then PATH-2, and so on.

    Raises StartError if it cannot be written, or if PATH exists and is not a log.
    """
    if path is None:
        return None
    try:
        for number in count(1):
            file = TraceFile.path_of(path, number)
            if not file.exists() or not file.stat().st_size:
                return ClusterTrace(TraceFile(path, number), texts=texts)
            open_log(file, append=True).close()  # raises for a file that is not a log
    except OSError as error:
        raise StartError(f"--trace-file {path} cannot be written: {error.strerror}") from error
    raise AssertionError("a number is free")
