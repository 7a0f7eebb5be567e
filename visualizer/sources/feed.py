"""Turn bytes into lines, and lines into events: the first line says which reader translates the others.

Gzip is unpacked, and an incomplete last line is held back.
"""

import codecs
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from engine.core.log import LogError, State
from visualizer.sources.limits import MAX_FIRST_LINE, MAX_LINE
from visualizer.sources.reader import LogEvent, Reader, SourceError, Translator

GZIP_MAGIC = b"\x1f\x8b"
_PIECE = 1 << 20  # bytes unpacked at a time, so that a zip bomb is detected early
_SHOWN = 40  # characters of a first line in an error message
_MOST_DAMAGE = 20  # notes about what cannot be read


class Feed:
    """Reads one file or upload as its bytes arrive.

    `state` is that of whatever folds each event before it takes the next one from `each`: then the
    events need not be folded here, too, to go on after a damaged line.

    reader  None before the first complete line
    damage  what cannot be read: a note for each line, and for the end of the file; of many, the first
    """

    def __init__(
        self, readers: Sequence[Reader], limit: int | None = None, state: State | None = None
    ) -> None:
        self.reader: Reader | None = None
        self.damage: list[str] = []
        self._readers = readers
        self._lines = Lines(limit)
        self._state = state
        self._translator: Translator | None = None

    @property
    def unpacked(self) -> int:
        """The number of unpacked bytes so far."""
        return self._lines.unpacked

    def resume(self, state: bytes, number: int) -> None:
        """Begin after line `number` of a file; `state` is a keyframe, as a line, of those lines."""
        self.push(state + b"\n")
        self._lines.number = number

    def push(self, data: bytes) -> list[LogEvent]:
        """Return the events of the lines that are complete.

        Raises SourceError for a line of no known kind, and for a damaged one unless the translator can
        go on without it.
        """
        return list(self.each(data))

    def each(self, data: bytes) -> Iterator[LogEvent]:
        """Yield what `push` returns."""
        for line in self._lines.push(data):
            events: Sequence[LogEvent]
            try:
                if self._translator is None:
                    self.reader = detect(line, self._readers)
                    self._translator = self.reader.translator()
                    self._translator.state = self._state
                events = self._translator.feed(line)
            except LogError as error:
                named = self._in_line(error)
                gap = self._without(str(named), line)
                if gap is None:
                    raise named from error.__cause__
                events = gap
            yield from events

    def _without(self, why: str, line: bytes = b"") -> Sequence[LogEvent] | None:
        """Return the events with which the log goes on without a line; None if it cannot."""
        gap = self._translator.skip(why, line) if self._translator else None
        if gap is not None and len(self.damage) < _MOST_DAMAGE:
            size = f" ({len(line):,} bytes)" if line else ""
            self.damage.append(f"{why}{size}")
        return gap

    def end(self) -> list[LogEvent]:
        """Return the last events. A last line without a line break was cut off and is dropped.

        The log says where it or its gzip data was cut off. Raises SourceError if there was no line.
        """
        if self._translator is None:
            torn = self._lines.rest
            if _is_binary(torn):
                raise _no_log(torn, self._readers)
            why = "its only line is cut off" if torn else "it is empty"
            raise SourceError(f"the log has no complete line: {why}")
        cut = self._lines.cut
        try:
            return [*((self._without(cut) or ()) if cut else ()), *self._translator.end()]
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
    raise _no_log(start, readers)


def _is_binary(start: bytes) -> bool:
    """Return whether a file that begins so is not text; a character may be cut off at its end."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return True
    return any(character < " " and not character.isspace() for character in text)


def _no_log(start: bytes, readers: Iterable[Reader]) -> SourceError:
    known = "; ".join(reader.title for reader in readers)
    if _is_binary(start):
        first = start[:8].hex(" ")
        what = (
            f"line 1: the file is no log, because it is not text: it begins with the bytes {first}"
        )
    else:
        text = start[: 4 * _SHOWN].decode("utf-8", "replace")
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
        what = f"line 1: no known log begins with {shown!r}"
    return SourceError(f"{what}. The known kinds are: {known}")


def _undamaged(inflate: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
    """Unpack the bytes before damaged ones."""
    with suppress(zlib.error):
        for at in range(len(data)):
            yield inflate.decompress(data[at : at + 1])


class Lines:
    """Splits the bytes of one file into lines, as the bytes arrive.

    `limit` is the number of unpacked bytes to accept, None for any number. A gzip file may consist of
    several members, one after the other, and its end may be missing.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self.unpacked = 0  # bytes so far
        self._start = b""  # the first byte, until the second one shows whether the file is gzip
        self._packed: bool | None = None
        self._inflate = zlib.decompressobj(wbits=31)
        self._rest: list[bytes] = []  # pieces of the line that is not complete yet
        self._rest_size = 0
        self._damaged = ""  # why the gzip data cannot be unpacked any further
        self.number = 0  # number of the last line returned

    def push(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that are complete, without their line breaks.

        Damaged gzip data is the end. Raises SourceError for it if there was no line before, for a line
        that is too long, and for more bytes than `limit`.
        """
        if self._packed is None:
            data = self._start + data
            if len(data) < 2:
                self._start = data
                return
            self._packed = data.startswith(GZIP_MAGIC)
        for piece in self._unpack(data) if self._packed else (data,):
            self.unpacked += len(piece)
            if self._limit is not None and self.unpacked > self._limit:
                raise SourceError(
                    f"the log is larger than {self._limit >> 20} MB after unpacking: open it with "
                    "`underglass open FILE`, which has no such limit"
                )
            yield from self._split(piece)

    @property
    def rest(self) -> bytes:
        """The bytes after the last line break."""
        return self._start if self._packed is None else b"".join(self._rest)

    @property
    def cut(self) -> str:
        """Where the last line or the gzip data is cut off or damaged; "" if the file is whole."""
        where = f"after line {self.number:,}"
        if self._damaged:
            return f"the gzip data is damaged {where}, so the rest cannot be read: {self._damaged}"
        if self._packed and not self._inflate.eof:
            return f"the gzip file was cut off {where}, or is still written: what is missing is unknown"
        if not (torn := len(self.rest)):
            return ""
        return (
            f"the file was cut off {where}, {torn:,} bytes into the next one, or is still written"
        )

    def _split(self, piece: bytes) -> Iterator[bytes]:
        first, *others = piece.split(b"\n")
        self._rest_size += len(first)
        if self._rest_size > MAX_LINE:
            raise SourceError(
                f"line {self.number + 1} is longer than {MAX_LINE >> 20} MB: "
                "no known log has such a line"
            )
        self._rest.append(first)
        if not others:
            return
        *lines, rest = others
        lines.insert(0, b"".join(self._rest))
        self._rest, self._rest_size = [rest], len(rest)
        for line in lines:
            self.number += 1
            if line and not line.isspace():
                yield line

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        while data and not self._damaged:
            if self._inflate.eof:  # another member follows, or padding
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._inflate = zlib.decompressobj(wbits=31)
            before = self._inflate.copy()
            try:
                piece = self._inflate.decompress(data, _PIECE)
            except zlib.error as error:
                yield from _undamaged(before, data)
                self._damaged = str(error)
                if not self.number:
                    raise SourceError(f"it is no log: its gzip data is damaged: {error}") from error
                return
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece
