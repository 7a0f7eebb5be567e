"""What is known of the steps and the requests of a log, with or without an index."""

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any, Generic, Literal, TypeVar, cast

from engine.core.log import EventLog, LogError
from engine.simulation.latencies import PausedTime
from visualizer.indexed.collector import Collector
from visualizer.indexed.facts import Fact, Finished, Name, Plans, Request, Run, Steps
from visualizer.indexed.index_file import IndexFile
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.sources.collector import without_gc

# What a question about all requests does without, because a long log has much of it.
LONG = frozenset(
    "tokens texts hashes token_steps logprobs drafted forced masks segments before "
    "sampling extra_key admissions".split()
)
_Kind = TypeVar("_Kind", bound=Fact)


class _Each(Generic[_Kind]):
    """All facts of a kind, read again from the index each time that they are iterated over."""

    def __init__(self, read: Callable[[], Iterator[Any]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[_Kind]:
        return self._read()


class Known:
    """The facts of a log, by kind. `finished` and `plans` have the same steps in the same order."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        by_kind: dict[type[Fact], list[Any]] = {}
        for fact in facts:
            by_kind.setdefault(type(fact), []).append(fact)
        self.steps: Iterable[Steps] = by_kind.get(Steps, [])
        self.finished: Iterable[Finished] = by_kind.get(Finished, [])
        self.plans: Iterable[Plans] = by_kind.get(Plans, [])
        self._requests: list[Request] = by_kind.get(Request, [])
        self._requests.sort(key=lambda one: one.index)
        self.run: Run = by_kind[Run][0]

    def each_request(self, *names: str) -> Iterable[Request]:
        """Return the requests in any order, with these `LONG` fields."""
        return self._requests

    def request(self, id_: int) -> Request | None:
        """Return a request with all that is known of it; None: the log does not have it."""
        return next((one for one in self._requests if one.id == id_), None)

    @property
    def names(self) -> Iterable[tuple[int, str, int]]:
        """The id, the label and the number of samples of each request, in order of appearance."""
        return [(one.id, one.label, one.samples) for one in self._requests]

    @property
    def unit(self) -> Literal["us", "steps"]:
        """The unit of times: "steps" if the log was saved without times; then each step takes 1."""
        return "us" if self.run.has_times else "steps"

    @property
    def paused(self) -> PausedTime:
        """When the engine was paused."""
        paused = PausedTime()
        paused.intervals = cast("list[tuple[int, int]]", self.run.pauses)
        return paused

    @property
    def labels(self) -> dict[int, str]:
        """The labels of all requests, and of all samples that they ask for."""
        return {
            request + sample: label
            for request, label, samples in self.names
            for sample in range(samples)
        }


class IndexedKnown(Known):
    """The facts that an index has: they are read where they are needed.

    Raises LogError if they are damaged.
    """

    def __init__(self, index: IndexFile) -> None:
        self._index = index
        directory = index.directory
        for part in (*directory.facts, *directory.details, *directory.names):
            index.part(part, "what is known of the steps")
        read = lambda number: cast("list[Request]", index.facts_in(number, Request))  # noqa: E731
        self._part = lru_cache(1)(read)  # because requests of one time are asked for together
        self.steps = self._each(Steps)
        self.finished = self._each(Finished)
        self.plans = self._each(Plans)
        [self.run] = cast("list[Run]", index.facts_in(len(index.directory.facts) - 1, Run))

    @cached_property
    def _table(self) -> "_Table":
        table = _Table()
        for number in range(len(self._index.directory.names)):
            for one in self._index.names_in(number):
                table.add(one, number)
        return table

    @property
    def names(self) -> Iterable[tuple[int, str, int]]:
        """See `Known`."""
        return self._table.names()

    def index_of(self, id_: int) -> int:
        """Return which of all requests and samples it was, in order of appearance."""
        return self._table.index_of(id_)

    def each_request(self, *names: str) -> Iterable[Request]:
        """See `Known`."""
        return self._each(Request, LONG - {*names})

    def request(self, id_: int) -> Request | None:
        """See `Known`. Only the part of the index that has the request is read again."""
        if (number := self._table.part_of(id_)) is None:
            return None
        return next(one for one in self._part(number) if one.id == id_)

    def _each(self, kind: type[_Kind], without: Collection[str] = ()) -> _Each[_Kind]:
        return _Each(lambda: self._index.facts(kind, without=without))


class _Table:
    """The names of all requests, and which part of an index has each: a million fit into memory."""

    def __init__(self) -> None:
        self._ids, self._index, self._samples = array("q"), array("q"), array("i")
        self._parts, self._labels = array("i"), list[str]()
        self._same: dict[str, str] = {}  # equal labels of a part are one string

    def add(self, one: Name, part: int) -> None:
        """Add a request of a part."""
        if not self._parts or self._parts[-1] != part:
            self._same.clear()
        self._ids.append(one.id)
        self._index.append(one.index)
        self._samples.append(one.samples)
        self._parts.append(part)
        self._labels.append(self._same.setdefault(one.label, one.label))

    def names(self) -> Iterator[tuple[int, str, int]]:
        """See `Known`."""
        for at in sorted(range(len(self._ids)), key=self._index.__getitem__):
            yield self._ids[at], self._labels[at], self._samples[at]

    def index_of(self, request: int) -> int:
        """Return which of all requests it was."""
        return self._index[self._ids.index(request)]

    def part_of(self, request: int) -> int | None:
        """Return the part that has a request; None if there is no such request."""
        return self._parts[self._ids.index(request)] if request in self._ids else None


def known_of(log: EventLog) -> Known:
    """Return the facts of a log: its index has them, or the log is folded now.

    Raises LogError for a log that contradicts itself.
    """
    if isinstance(log, IndexedLog):
        with suppress(LogError):  # a part is damaged, and the events tell the same
            if log.known is None:
                log.known = IndexedKnown(log.index)
            return cast("Known", log.known)
    collector = Collector()
    with without_gc():
        for event in log:
            collector.apply(event)
        return Known(collector.facts(is_end=True))
