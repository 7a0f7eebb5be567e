"""Split bytes into lines: gzip is unpacked, and an incomplete last line is held back."""

import zlib
from collections.abc import Iterator

from visualizer.sources.limits import MAX_LINE
from visualizer.sources.reader import SourceError

GZIP_MAGIC = b"\x1f\x8b"
_PIECE = 1 << 20  # bytes unpacked at a time, so that a zip bomb is detected early


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
        self.number = 0  # number of the last line returned

    def push(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that are complete, without their line breaks.

        Raises SourceError for damaged gzip data, a line that is too long, and more bytes than `limit`.
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
    def torn(self) -> int:
        """The number of bytes after the last line break."""
        return self._rest_size + (len(self._start) if self._packed is None else 0)

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
        while data:
            if self._inflate.eof:  # another member follows, or padding
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._inflate = zlib.decompressobj(wbits=31)
            try:
                piece = self._inflate.decompress(data, _PIECE)
            except zlib.error as error:
                raise SourceError(
                    f"the gzip data after line {self.number} is damaged: {error}"
                ) from error
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece
