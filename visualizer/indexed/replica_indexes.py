"""The indexes of a cluster's replicas, in a folder beside the index of the cluster's log.

A question to a cluster is mostly one to its replicas, and their events are all over the log. So the
first such question splits it. `run.jsonl.index.parts` has an index of each part of each run, one of
what the gateway did, and `runs.json`, which says which part is which.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from engine.cluster.cluster_log import ReplicaRun, RunSplitter, gateway_events
from engine.cluster.events import AnyClusterEvent, ReplicaJoined, ReplicaLeft
from engine.core.log import Event, EventLog, LogError
from visualizer.indexed.index_file import IndexFile, index_writer
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.sources.collector import without_gc

GATEWAY = "gateway.index"
_RUNS = "runs.json"


class _Run(msgspec.Struct):
    """A `ReplicaRun` whose parts are named."""

    replica: str
    number: int
    joined: list[ReplicaJoined]
    left: list[ReplicaLeft]
    parts: list[str]


class _Runs(msgspec.Struct):
    """The runs of a cluster's log; `of` identifies it, as in its index."""

    of: str
    runs: list[_Run]


def parts_folder(index: Path) -> Path:
    """Return the folder with the indexes of a cluster's parts."""
    return index.with_name(f"{index.name}.parts")


def split_index(index: IndexFile) -> Path | None:
    """Return the folder of an index of a cluster, and write it unless it is there.

    None: it cannot be written, or the events of a replica contradict each other.
    """
    folder = parts_folder(index.path)
    of = f"{index.directory.of} {[chunk.crc for chunk in index.directory.chunks]}"
    with suppress(OSError, ValueError):  # it is not there, or damaged, or of an earlier log
        saved = msgspec.json.decode((folder / _RUNS).read_bytes(), type=_Runs)
        names = [GATEWAY, *(name for run in saved.runs for name in run.parts)]
        if saved.of == of and all(IndexFile(folder / name) for name in names):
            return folder
    with suppress(OSError, LogError):
        with TemporaryDirectory(prefix=folder.name, dir=folder.parent) as written:
            _write(index, of, Path(written))
            shutil.rmtree(folder, ignore_errors=True)
            Path(written).rename(folder)
            folder.chmod(index.path.parent.stat().st_mode & 0o777)
        return folder
    return None


def runs_in(folder: Path) -> dict[str, list[ReplicaRun]]:
    """Return the runs of a folder; see `ClusterLog.runs`."""
    saved = msgspec.json.decode((folder / _RUNS).read_bytes(), type=_Runs)
    runs: dict[str, list[ReplicaRun]] = {}
    for one in saved.runs:
        parts: list[EventLog] = [IndexedLog(IndexFile(folder / name)) for name in one.parts]
        run = ReplicaRun(one.replica, one.number, one.joined, one.left, parts)
        runs.setdefault(one.replica, []).append(run)
    return runs


class _Growing:
    """The index of a part while it is written."""

    def __init__(self, path: Path) -> None:
        self._path, self._open = path, ExitStack()
        self._writer = self._open.enter_context(index_writer(path))

    def append(self, event: Event) -> None:
        """Add its next event."""
        self._writer.add((event,))

    def end(self) -> EventLog:
        """Return the log that is read from the index."""
        self._writer.end()
        self._open.close()
        return IndexedLog(IndexFile(self._path))


def _write(index: IndexFile, of: str, folder: Path) -> None:
    begun = 0

    def begin() -> _Growing:
        nonlocal begun
        begun += 1
        return _Growing(folder / f"{begun}.index")

    splitter = RunSplitter(begin)

    def events() -> Iterator[AnyClusterEvent]:
        for number in range(len(index.ends)):
            for event in index.events(number):
                splitter.add(event)
                yield event

    with without_gc(), index_writer(folder / GATEWAY) as gateway:
        gateway.add(gateway_events(events()))
        gateway.end()
    runs = [
        _Run(
            run.replica,
            run.number,
            run.joined,
            run.left,
            [part.index.path.name for part in run.parts if isinstance(part, IndexedLog)],
        )
        for some in splitter.end().values()
        for run in some
    ]
    (folder / _RUNS).write_bytes(msgspec.json.encode(_Runs(of, runs)))
