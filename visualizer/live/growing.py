"""Send the index of a log while it is being written: the first opening of a long log.

The page draws its first picture when twenty thousand events have arrived, however long the log is. The
stream has a frame for each chunk: its length, its length when it is unpacked, the part of the log that
has been read, and the chunk. The last frame has JSON in place of a chunk: why the log ends there, if it
is damaged, or else the options of the page.
"""

import json
import struct
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from engine.core.log import LogError
from visualizer.indexed.beside import index_beside, index_pieces
from visualizer.indexed.index_file import IndexFile
from visualizer.indexed.indexed_log import log_of
from visualizer.packed import board_options

_FRAME = struct.Struct("<IIf")
_ALMOST = 0.99  # the share until the options of the page are known, too


def growing_index(path: Path) -> Iterator[bytes]:
    """Write the index of a log beside it, and yield the stream of its chunks."""
    written = deque[tuple[bytes, int]]()
    told = lambda data, plain: written.append((data, plain))  # noqa: E731
    size = max(1, path.stat().st_size)
    said: dict[str, object] = {}
    try:
        with path.open("rb") as file:
            for _ in index_pieces(path, file, told):
                share = min(_ALMOST, file.tell() / size)
                while written:
                    data, plain = written.popleft()
                    # In one piece: the end of a small one would wait for an acknowledgement.
                    yield _FRAME.pack(len(data), plain, share) + data
        said = {"options": board_options(log_of(IndexFile(index_beside(path))))}
    except (LogError, OSError) as error:
        said = {"error": " ".join(str(error).split())}
    end = json.dumps(said).encode()
    yield _FRAME.pack(0, len(end), 1.0) + end
