"""Recognize a file's kind by its first line."""

from collections.abc import Iterable

from visualizer.sources.limits import MAX_FIRST_LINE
from visualizer.sources.reader import Reader, SourceError

_SHOWN = 40  # characters of a first line in an error message


def detect(first_line: bytes, readers: Iterable[Reader]) -> Reader:
    """Return the reader that recognizes a file's first line.

    Raises SourceError if no reader recognizes it; the message lists the readers' titles.
    """
    start = first_line[:MAX_FIRST_LINE]
    for reader in readers:
        if reader.recognizes(start):
            return reader
    text = start[: 4 * _SHOWN].decode("utf-8", "replace")
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    known = "; ".join(reader.title for reader in readers)
    raise SourceError(f"line 1: no known log begins with {shown!r}. The known kinds are: {known}")
