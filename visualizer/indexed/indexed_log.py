"""A log that is read from its index, chunk by chunk: it needs little memory, however long it is."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NoReturn, overload

from engine.cluster.cluster_log import ClusterLog, ReplicaRun
from engine.cluster.events import AnyClusterEvent
from engine.core.log import EventLog, State
from engine.core.log import vocabulary as v
from engine.core.log.log import Kind, apply
from visualizer.indexed.chunk import unpack_events
from visualizer.indexed.index_file import IndexFile

_KEPT = 8  # unpacked chunks, because readers look at neighbours
_FIXED = "a log that is read from its index cannot grow; load its JSON Lines instead"


class IndexedLog(EventLog):
    """An `EventLog` whose events stay in the index until they are asked for; it cannot grow.

    Whatever reads a damaged chunk raises LogError, which names the chunk's events.
    """

    def __init__(self, index: IndexFile) -> None:
        super().__init__()
        self.index = index
        self.known: object = None  # see `known_of`
        self._first = index.directory.first
        self._ends = index.ends
        self._kept = lru_cache(_KEPT)(index.events)

    def append(self, event: v.Event) -> NoReturn:
        """Raise TypeError: a saved log does not grow."""
        raise TypeError(_FIXED)

    @property
    def next_seq(self) -> int:
        """See `EventLog`."""
        return self._first + len(self)

    def __len__(self) -> int:
        return self._ends[-1]

    def __iter__(self) -> Iterator[v.Event]:
        for number in range(len(self._ends)):
            yield from self.index.events(number)

    @overload
    def __getitem__(self, index: int) -> v.Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[v.Event]: ...
    def __getitem__(self, index: int | slice) -> v.Event | list[v.Event]:
        """See `EventLog`."""
        if isinstance(index, slice):
            begin, end, by = index.indices(len(self))
            return [*self._between(begin, end)][::by] if by > 0 else list(self)[index]
        [event] = self._between(at := range(len(self))[index], at + 1)
        return event

    def since(self, seq: int) -> list[v.Event]:
        """See `EventLog`."""
        return self[max(0, seq - self._first) :]

    def each(self, *kinds: type[Kind]) -> Iterator[Kind]:
        """See `EventLog`. Only the columns of these kinds are unpacked, a chunk at a time."""
        for number in range(len(self._ends)):
            yield from self.index.events(number, set(kinds))

    def state(self, seq: int | None = None) -> State:
        """See `EventLog`. The fold begins at the last keyframe before."""
        end = len(self) if seq is None else max(0, seq + 1 - self._first)
        begin, state = 0, State()
        for keyframe in reversed(self.index.directory.keyframes):
            if (before := self._ends[keyframe.chunk - 1]) <= end:
                part = self.index.part(keyframe, f"the state before event {self._first + before}")
                [event] = unpack_events(part, v.AnyEvent)
                apply(state, event)
                begin = before
                break
        for event in self._between(begin, min(end, len(self))):
            apply(state, event)
        return state

    def saved_before(self, index: int) -> int:
        """Return the last index with a saved state that is not after `index`; 0 if there is none."""
        saved = [self._ends[one.chunk - 1] for one in self.index.directory.keyframes]
        return saved[at - 1] if (at := bisect_right(saved, index)) else 0

    def _between(self, begin: int, end: int) -> Iterator[v.Event]:
        while begin < end:
            number = bisect_right(self._ends, begin)
            first = self._ends[number - 1] if number else 0
            yield from self._kept(number)[begin - first : end - first]
            begin = self._ends[number]


class IndexedClusterLog(ClusterLog):
    """The same for the log of a cluster. The logs of its replicas have indexes of their own."""

    def __init__(self, index: IndexFile) -> None:
        super().__init__()
        self.index = index

    def append(self, event: AnyClusterEvent) -> NoReturn:
        """Raise TypeError: a saved log does not grow."""
        raise TypeError(_FIXED)

    @property
    def next_seq(self) -> int:
        """See `ClusterLog`."""
        return len(self)

    @cached_property
    def _folder(self) -> Path | None:
        from visualizer.indexed.replica_indexes import split_index

        return split_index(self.index)

    @property
    def runs(self) -> dict[str, list[ReplicaRun]]:
        """See `ClusterLog`."""
        from visualizer.indexed.replica_indexes import runs_in

        return super().runs if self._folder is None else runs_in(self._folder)

    def gateway(self) -> Iterator[AnyClusterEvent]:
        """See `ClusterLog`."""
        if self._folder is None:
            return super().gateway()
        index = IndexFile(self._folder / "gateway.index")
        return (one for number in range(len(index.ends)) for one in index.events(number))

    def since(self, seq: int) -> list[AnyClusterEvent]:
        """See `ClusterLog`."""
        number = bisect_right(self.index.ends, max(0, seq))
        first = self.index.ends[number - 1] if number else 0
        later = range(number, len(self.index.ends))
        events = [event for one in later for event in self.index.events(one)]
        return events[max(0, seq) - first :]

    def __len__(self) -> int:
        return self.index.ends[-1]

    def __iter__(self) -> Iterator[AnyClusterEvent]:
        for number in range(len(self.index.ends)):
            yield from self.index.events(number)


Indexed = IndexedLog | IndexedClusterLog


def log_of(index: IndexFile) -> Indexed:
    """Return the log of an index."""
    return (IndexedClusterLog if index.directory.cluster else IndexedLog)(index)


def answer_of(log: EventLog | ClusterLog, question: str, compute: Callable[[], Any]) -> Any:
    """Return what a question to a log has as its answer: JSON values, which an index remembers."""
    return log.index.answer(question, compute) if isinstance(log, Indexed) else compute()
