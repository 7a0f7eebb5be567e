"""The whole log on disk, written as it happens."""

import logging
from pathlib import Path

from engine.events.vocabulary import Event
from server.core.log_files import open_log
from server.core.window import encode_event

logger = logging.getLogger("underglass")


class TraceFile:
    """Appends every step's events as JSON Lines. Used by the engine thread alone.

    What is written has left the process when `write` returns, so a killed server leaves a log that
    loads up to its last whole line. A disk that fills up ends the recording, not the serving.
    Opening raises OSError; see `open_log` for what it replaces.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open_log(path)
        self._broken = False

    def write(self, events: list[Event]) -> None:
        """Append the events of one step, in one write."""
        if self._broken:
            return
        try:
            rest = memoryview(b"".join(encode_event(event) + b"\n" for event in events))
            while rest:  # a disk that is nearly full takes a part, and an error comes next time
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._broken = True
            logger.error("%s: %s. The log on disk ends here; serving goes on.", self._path, error)
