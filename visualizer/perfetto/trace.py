"""Write trace events as a stream, to keep memory use low for logs of any length.

Each method adds one kind of event in the trace event format: `M` (name), `X` (slice), `C` (counter),
`i` (instant), or `s` and `f` (the two ends of an arrow). A track is a pair of process id and thread
id. The slices on one track must be nested or disjoint; the caller makes sure of that.
"""

import gzip
from typing import IO, Any

import msgspec

Track = tuple[int, int]  # pid, tid

_CHUNK = 4096  # events per write
_encode = msgspec.json.Encoder().encode


class Trace:
    """A trace being written. `close` completes the JSON but leaves the file open."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile) -> None:
        self._file = file
        self._pending: list[bytes] = []
        self._flows = 0
        self._separator = b""
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')

    def process(self, pid: int, name: str) -> None:
        """Name a process. The viewer sorts processes by id."""
        self._name("process", (pid, 0), name, pid)

    def thread(self, track: Track, name: str) -> None:
        """Name a track. The viewer sorts the tracks of a process by id."""
        self._name("thread", track, name, track[1])

    def slice(
        self, track: Track, name: str, begin: int, end: int, args: dict[str, Any] | None = None
    ) -> None:
        """Add a slice from `begin` to `end`, in microseconds."""
        pid, tid = track
        entry = {"ph": "X", "pid": pid, "tid": tid, "ts": begin, "dur": end - begin, "name": name}
        self._add(entry | {"args": args} if args else entry)

    def instant(self, track: Track, name: str, at: int, args: dict[str, Any]) -> None:
        """Add an event without a duration."""
        pid, tid = track
        self._add(
            {"ph": "i", "s": "t", "pid": pid, "tid": tid, "ts": at, "name": name, "args": args}
        )

    def counter(self, pid: int, name: str, at: int, values: dict[str, int]) -> None:
        """Set the values of a counter, starting at time `at`."""
        self._add({"ph": "C", "pid": pid, "tid": 0, "ts": at, "name": name, "args": values})

    def flow(self, name: str, source: tuple[Track, int], target: tuple[Track, int]) -> None:
        """Add an arrow between two points. Each end binds to the innermost slice at its point."""
        self._flows += 1
        for phase, ((pid, tid), at) in (("s", source), ("f", target)):
            end = {"ph": phase, "id": self._flows, "pid": pid, "tid": tid, "ts": at}
            binding = {"bp": "e"} if phase == "f" else {}
            self._add(end | {"cat": "flow", "name": name} | binding)

    def close(self, about: dict[str, Any]) -> None:
        """Write the remaining events, then `about`, which the viewer shows as trace metadata."""
        self._flush()
        self._file.write(b'\n],"otherData":' + _encode(about) + b"}\n")

    def _name(self, kind: str, track: Track, name: str, order: int) -> None:
        entry = {"ph": "M", "pid": track[0], "tid": track[1]}
        self._add(entry | {"name": f"{kind}_name", "args": {"name": name}})
        self._add(entry | {"name": f"{kind}_sort_index", "args": {"sort_index": order}})

    def _add(self, entry: dict[str, Any]) -> None:
        self._pending.append(_encode(entry))
        if len(self._pending) == _CHUNK:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._file.write(self._separator + b",\n".join(self._pending))
            self._separator = b",\n"
            self._pending = []
