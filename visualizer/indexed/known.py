"""What is known of the steps and the requests of a log, with or without an index."""

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from engine.core.log import EventLog
from engine.simulation.latencies import PausedTime
from visualizer.indexed.chunk import inflate
from visualizer.indexed.collector import Collector
from visualizer.indexed.common_tokens import common_lengths
from visualizer.indexed.extents import Extent
from visualizer.indexed.facts import Content, Fact, Finished, Plans, Request, Run, Steps
from visualizer.indexed.index_file import IndexFile
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.indexed.names import IndexedLabels, NameParts
from visualizer.indexed.scheduled import NEEDED, Scheduled, StepsPart
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

    def outlines(self, ids: Collection[int]) -> Iterable[Request]:
        """Return some requests in any order, without `LONG` fields."""
        return (one for one in self._requests if one.id in ids)

    @property
    def names(self) -> Iterable[tuple[int, str, int]]:
        """The id, the label and the number of samples of each request, in order of appearance."""
        return [(one.id, one.label, one.samples) for one in self._requests]

    @property
    def step_numbers(self) -> "array[int]":
        """The number of each step, ascending."""
        return array("q", (number for some in self.steps for number in some.step))

    @cached_property
    def scheduled(self) -> Scheduled:
        """The steps that were scheduled."""
        return Scheduled.of(StepsPart.of(self.steps, self.run.first_seq))

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
    def labels(self) -> Mapping[int, str]:
        """The labels of all requests, and of all samples that they ask for."""
        return {
            request + sample: label
            for request, label, samples in self.names
            for sample in range(samples)
        }

    @property
    def own_labels(self) -> Mapping[int, str]:
        """The same without the samples that have not forked off."""
        return {request: label for request, label, _ in self.names}


class IndexedKnown(Known):
    """The facts that an index has: each part is read where it is needed.

    Whatever reads a damaged part raises LogError.
    """

    def __init__(self, index: IndexFile) -> None:
        self._index = index
        self._name_parts = NameParts(index)
        read = lambda number: {one.id: one for one in self._requests_in(number)}  # noqa: E731
        self._part = lru_cache(1)(read)  # because requests of one time are asked for together
        self.steps = self._each(Steps)
        self.finished = self._each(Finished)
        self.plans = self._each(Plans)
        [self.run] = cast("list[Run]", index.facts_in(index.parts - 1, Run))

    @property
    def extents(self) -> list[Extent]:
        """What each part of the index has."""
        return self._index.directory.extents

    def finished_in(self, number: int) -> Sequence[Finished]:
        """Return the steps of a part that have finished."""
        return cast("Sequence[Finished]", self._index.facts_in(number, Finished))

    @property
    def names(self) -> Iterable[tuple[int, str, int]]:
        """See `Known`."""
        names = [(one.index, one.id, one.label, one.samples) for one in self._name_parts.each()]
        return ((id_, label, samples) for _, id_, label, samples in sorted(names))

    @property
    def labels(self) -> Mapping[int, str]:
        """See `Known`."""
        return IndexedLabels(self._name_parts, has_samples=True)

    @property
    def own_labels(self) -> Mapping[int, str]:
        """See `Known`."""
        return IndexedLabels(self._name_parts, has_samples=False)

    @property
    def step_numbers(self) -> "array[int]":
        """See `Known`."""
        steps = self._each(Steps, frozenset({*Steps.__struct_fields__} - {"step"}))
        return array("q", (number for some in steps for number in some.step))

    @cached_property
    def scheduled(self) -> Scheduled:
        """See `Known`."""
        without = {*Steps.__struct_fields__} - NEEDED

        def read(number: int) -> StepsPart:
            facts = self._index.facts_in(number, Steps, without=without)
            return StepsPart.of(cast("Sequence[Steps]", facts), self.run.first_seq)

        return Scheduled(self.extents, read)

    def parent_of(self, sample: int) -> int | None:
        """Return the request from which a sample has not forked off; None: there is no such sample."""
        found = self._name_parts.find(sample)
        return found[1].id if found and found[1].id != sample else None

    def index_of(self, id_: int) -> int:
        """Return which of all requests and samples it was, in order of appearance."""
        found = self._name_parts.find(id_)
        assert found is not None
        return found[1].index

    def each_request(self, *names: str) -> Iterable[Request]:
        """See `Known`."""
        return self._each(Request, LONG - {*names})

    def requests_near(self, text: str, *names: str) -> Iterator[Request]:
        """Yield the requests of the parts in which a text occurs, with these `LONG` fields."""
        quoted = msgspec.json.encode(text)
        for number in range(len(self.extents)):
            packed = self._index.packed(number, Content)
            if packed and quoted in inflate(packed):
                yield from self._requests_in(number, LONG - {*names})

    def agreements(self, tokens: list[int]) -> Iterator[tuple[Request, int]]:
        """Yield the requests that have first tokens in common with others, and how many."""
        needed = {"id", "index", "root", "admitted", "finished", "preemptions", "extra_key"}
        for number in range(len(self.extents)):
            contents = self._index.packed(number, Content)
            agree = [*common_lengths(contents, tokens)] if contents else []
            if any(agree):
                requests = self._requests_in(number, {*Request.__struct_fields__} - needed)
                yield from (one for one in zip(requests, agree, strict=True) if one[1])

    def request(self, id_: int) -> Request | None:
        """See `Known`."""
        found = self._name_parts.find(id_)
        return self._part(found[0]).get(id_) if found else None

    def outlines(self, ids: Collection[int]) -> Iterable[Request]:
        """See `Known`."""
        found = map(self._name_parts.find, ids)
        for number in sorted({one[0] for one in found if one}):
            yield from (one for one in self._requests_in(number, LONG) if one.id in ids)

    def _requests_in(self, number: int, without: Collection[str] = ()) -> Sequence[Request]:
        return cast("Sequence[Request]", self._index.facts_in(number, Request, without=without))

    def _each(self, kind: type[_Kind], without: Collection[str] = ()) -> _Each[_Kind]:
        return _Each(lambda: self._index.facts(kind, without=without))


def known_of(log: EventLog) -> Known:
    """Return the facts of a log: its index has them, or the log is folded now.

    Raises LogError for a log that contradicts itself.
    """
    if isinstance(log, IndexedLog):
        if log.known is None:
            log.known = IndexedKnown(log.index)
        return cast("Known", log.known)
    collector = Collector()
    with without_gc():
        for event in log:
            collector.apply(event)
        return Known(collector.facts(is_end=True))
