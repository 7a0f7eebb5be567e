"""KV blocks on disk: one file per block, which is either whole and right or a miss with its reason.

A file has a header, which names the block, and then the page. A file that was cut off or altered has a
wrong length or checksum. Then the block is a miss: it is computed again, and the file is deleted. The
files end with the engine.

Differs from vLLM (`vllm/v1/kv_offload/tiering/fs/io.py`), whose files have neither a header nor a
checksum: a file with a wrong byte is read as it is. Its next run finds the files of this one.
"""

import struct
import zlib
from contextlib import suppress
from pathlib import Path

_HEADER = struct.Struct("<16sQI")  # key, length, CRC-32 of the page


class BadBlock(Exception):
    """A block cannot be read; the message says why."""


class BlockFiles:
    """The blocks in one folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def save(self, key: bytes, page: bytes) -> bytes:
        """Write a block. Raises OSError if the disk fails or is full; then nothing is left of it."""
        path = self._path(key)
        try:
            path.write_bytes(_HEADER.pack(key, len(page), zlib.crc32(page)) + page)
        except OSError:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise
        return b""

    def load(self, key: bytes) -> bytes:
        """Return a block's page. Raises BadBlock if it is not exactly what was written."""
        try:
            data = self._path(key).read_bytes()
        except OSError as error:
            raise BadBlock(f"the disk cannot read it: {error.strerror or error}") from error
        if len(data) < _HEADER.size:
            raise BadBlock(f"the file was cut off after {len(data)} bytes")
        named, length, crc = _HEADER.unpack_from(data)
        page = data[_HEADER.size :]
        if named != key:
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
        return self.folder / f"{key.hex()}.kv"


class NoFiles:
    """The disk of a simulated machine: blocks have no KV there, so there is nothing to write."""

    def save(self, key: bytes, page: bytes) -> bytes:
        """Do nothing."""
        return b""

    def load(self, key: bytes) -> bytes:
        """Return an empty page."""
        return b""

    def delete(self, key: bytes) -> bytes:
        """Do nothing."""
        return b""
