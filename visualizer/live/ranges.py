"""Answer for ranges of a file, so that a page reads a long log where it is looked at (RFC 9110, 14).

An answer has at most `MOST` bytes, which bounds the server's memory: a page that needs more asks again.
"""

import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from visualizer.live.local_server import Answer, Request

MOST = 4 << 20  # bytes
_RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")


def ranges_of(path: Path) -> Callable[[Request], Answer]:
    """Return the route of a file. It answers only requests for one range."""

    def answer(request: Request) -> Answer:
        size = path.stat().st_size
        begin, end = _range(request.headers.get("Range", ""), size)
        if not 0 <= begin < end:
            status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
            return Answer(b"", status=status, headers={"Content-Range": f"bytes */{size}"})
        with path.open("rb") as file:
            file.seek(begin)
            body = file.read(end - begin)
        headers = {"Content-Range": f"bytes {begin}-{begin + len(body) - 1}/{size}"}
        return Answer(body, "application/octet-stream", HTTPStatus.PARTIAL_CONTENT, headers)

    return answer


def _range(header: str, size: int) -> tuple[int, int]:
    """Return the first byte of a range and the one after its last; an empty range if it is none."""
    match = _RANGE.fullmatch(header)
    if match is None or not (match[1] or match[2]):
        return 0, 0
    if match[1]:
        begin, end = int(match[1]), int(match[2]) + 1 if match[2] else size
    else:
        begin, end = max(0, size - int(match[2])), size
    return begin, min(end, size, begin + MOST)
