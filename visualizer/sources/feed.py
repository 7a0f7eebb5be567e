"""Turn bytes into events: recognize the source by its first line, then translate line by line."""

from collections.abc import Iterable, Sequence

from engine.core.log import LogError
from visualizer.sources.limits import MAX_FIRST_LINE
from visualizer.sources.reader import LogEvent, Reader, SourceError, Translator
from visualizer.sources.unpack import Lines

_SHOWN = 40  # characters of a first line in an error message


class Feed:
    """Reads one file or upload as its bytes arrive. `reader` is None before the first complete line."""

    def __init__(self, readers: Sequence[Reader], limit: int | None = None) -> None:
        self.reader: Reader | None = None
        self._readers = readers
        self._lines = Lines(limit)
        self._translator: Translator | None = None

    @property
    def unpacked(self) -> int:
        """The number of unpacked bytes so far."""
        return self._lines.unpacked

    def push(self, data: bytes) -> list[LogEvent]:
        """Return the events of the lines that are complete.

        Raises SourceError for a line that is damaged or of no known kind.
        """
        events: list[LogEvent] = []
        for line in self._lines.push(data):
            try:
                if self._translator is None:
                    self.reader = detect(line, self._readers)
                    self._translator = self.reader.translator()
                events += self._translator.feed(line)
            except LogError as error:
                raise self._in_line(error) from error.__cause__
        return events

    def end(self) -> list[LogEvent]:
        """Return the last events. A last line without a line break was cut off and is dropped.

        Raises SourceError if there was no line at all.
        """
        if self._translator is None:
            why = "its only line is cut off" if self._lines.torn else "it is empty"
            raise SourceError(f"the log has no complete line: {why}")
        try:
            return list(self._translator.end())
        except LogError as error:
            raise self._in_line(error) from error.__cause__

    def _in_line(self, error: LogError) -> SourceError:
        text = " ".join(str(error).split())  # a parser's message may span several lines
        return SourceError(
            text if text.startswith("line ") else f"line {self._lines.number}: {text}"
        )


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
