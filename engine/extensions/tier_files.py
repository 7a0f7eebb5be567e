"""KV blocks on disk: one file per block, which is either whole and right or a miss with its reason.

A file has a header, which names the block and the KV's format, and then the page. It is written under
another name and renamed, so a process that is killed in between leaves no half block behind under the
block's name; what it leaves is deleted at the next start. A file that was cut off or altered has a
wrong length or checksum. Then the block is a miss: it is computed again, and the file is deleted.

Source: vLLM's `vllm/v1/kv_offload/tiering/fs/io.py` also renames and deletes what is too short.

Differs from vLLM, whose files have neither a header nor a checksum: a file with a wrong byte is read as
it is.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_HEADER = struct.Struct("<8s16s16sQI")  # magic, key, format, length, CRC-32 of the page
_MAGIC = b"UGKV0001"
_UNFINISHED = ".tmp"
_WHOLE = ".kv"


class BadBlock(Exception):
    """A block cannot be read; the message says why."""


class BlockFiles:
    """The blocks in one folder.

    form  16 bytes that stand for the model and for what a page holds
    """

    def __init__(self, folder: str | Path, form: bytes) -> None:
        self.folder = Path(folder)
        self._form = form
        self.folder.mkdir(parents=True, exist_ok=True)

    def found(self) -> Iterator[bytes]:
        """Yield the keys of the blocks that an earlier run left, the oldest first.

        Deletes what an earlier run did not finish. Blocks of another model are left alone.
        """
        for path in self.folder.glob(f"*{_UNFINISHED}"):
            path.unlink(missing_ok=True)
        paths = sorted(self.folder.glob(f"*{_WHOLE}"), key=lambda path: path.stat().st_mtime_ns)
        for path in paths:
            with suppress(OSError, struct.error, ValueError), path.open("rb") as file:
                magic, key, form, _, _ = _HEADER.unpack(file.read(_HEADER.size))
                if magic == _MAGIC and form == self._form and key == bytes.fromhex(path.stem):
                    yield key

    def save(self, key: bytes, page: bytes) -> bytes:
        """Write a block. Raises OSError if the disk fails or is full; then nothing is left of it."""
        path = self._path(key)
        unfinished = path.with_suffix(_UNFINISHED)
        try:
            with unfinished.open("wb") as file:
                crc = zlib.crc32(page)
                file.write(_HEADER.pack(_MAGIC, key, self._form, len(page), crc))
                file.write(page)
            unfinished.replace(path)
            return b""
        except OSError:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise

    def load(self, key: bytes) -> bytes:
        """Return a block's page. Raises BadBlock if it is not exactly what was written."""
        try:
            data = self._path(key).read_bytes()
        except OSError as error:
            raise BadBlock(f"the disk cannot read it: {error.strerror or error}") from error
        if len(data) < _HEADER.size:
            raise BadBlock(f"the file was cut off after {len(data)} bytes")
        magic, named, form, length, crc = _HEADER.unpack_from(data)
        page = data[_HEADER.size :]
        if (magic, named, form) != (_MAGIC, key, self._form):
            raise BadBlock("the file's header is not that of this block")
        if len(page) != length:
            raise BadBlock(f"the file has {len(page)} of {length} bytes of KV")
        if zlib.crc32(page) != crc:
            raise BadBlock("the checksum of its KV is wrong")
        return page

    def delete(self, key: bytes) -> bytes:
        """Delete a block, as far as the disk allows it."""
        with suppress(OSError):
            self._path(key).unlink(missing_ok=True)
        return b""

    def _path(self, key: bytes) -> Path:
        return self.folder / f"{key.hex()}{_WHOLE}"


class NoFiles:
    """The disk of a simulated machine: blocks have no KV there, so there is nothing to write."""

    def found(self) -> Iterator[bytes]:
        """Yield nothing."""
        return iter(())

    def save(self, key: bytes, page: bytes) -> bytes:
        """Do nothing."""
        return b""

    def load(self, key: bytes) -> bytes:
        """Return an empty page."""
        return b""

    def delete(self, key: bytes) -> bytes:
        """Do nothing."""
        return b""
