"""The file of an indexed log: chunks of events, keyframes, and a directory at the end.

    8 bytes   MAGIC
    chunks    see `chunk.py`; before some of them a keyframe: a chunk with that event alone; and before
              some the state without its tokens, from which a page folds on
    facts     chunks of what is known of steps and requests, see `facts.py`: place after place (see
              `PLACES`), because a question needs only some kinds of them, and a page that opens two;
              then `Labels`
    directory JSON, deflated
    footer    where the directory begins, its length and its checksum, and MAGIC again

A chunk and the directory each have a checksum, so that a damaged part is named and never shown. The
file has everything that the log has, so a browser that can ask for ranges needs nothing else. It is a
file of its own because the JSON Lines stay as they are, whoever wrote them, gzipped or not, and because
an index can be deleted at any time and made again.

Differs from Parquet, which is made for the same: a keyframe lets a reader begin in the middle.
"""

import atexit
import io
import secrets
import struct
import tempfile
import zlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
from msgspec import inspect
from msgspec.structs import replace

import underglass
from engine.cluster.events import AnyClusterEvent
from engine.core.log import Event, LogError, State
from engine.core.log.vocabulary import AnyEvent, Keyframe, PrefixAdopted, RunStarted
from visualizer.indexed.chunk import checked, deflate, inflate, pack_events, unpack_events
from visualizer.indexed.collector import Collector
from visualizer.indexed.extents import Extent, extent_of
from visualizer.indexed.facts import (
    AnyFact,
    Content,
    Fact,
    Finished,
    Life,
    Name,
    Plans,
    Request,
    Run,
    Steps,
)
from visualizer.indexed.labels import Labels
from visualizer.sources.collector import without_gc

# The fields of a request that are facts of their own, because few questions need them.
SPLIT = {kind: frozenset(kind.__struct_fields__) for kind in (Content, Life)}
MAGIC = b"UGINDEX\x01"
# Where the facts of each kind are, in the order of the file: the page reads the first two to open.
PLACES: dict[type[Fact], str] = {
    Steps: "steps",
    Run: "steps",
    Request: "requests",
    Finished: "passes",
    Life: "lives",
    Content: "contents",
    Plans: "plans",
    Name: "names",
}
EVENTS = 512  # in a chunk: of more, a page would unpack many to show a step
KEYFRAME_EVERY = 64  # chunks: keyframes of long queues take half of the room and the time
FACTS_EVERY = 32  # chunks: a part of what is known
SLICE_EVERY = 2  # chunks: a page folds at most so many to show a step
FOOTER = struct.Struct("<QII8s")

_NOTHING: dict[str, Any] = {name: [] for names in SPLIT.values() for name in names}
_NOTHING["sampling"] = {}
_IN_MEMORY = 8_000_000  # bytes of facts of a place

_unfinished: set[Path] = set()  # files that are being written


class Part(msgspec.Struct, array_like=True):
    """A part of the file: where it is, in bytes, its checksum, and its length when it is unpacked."""

    offset: int
    length: int
    crc: int
    plain: int


class Chunk(Part, array_like=True):
    """A chunk: how many events it has, and the last step that begins before it ends."""

    events: int
    step: int


class SavedKeyframe(Part, array_like=True):
    """The state before the chunk with this number."""

    chunk: int


class Directory(msgspec.Struct):
    """What is in an index.

    vocabulary  the checksum of the types of all events: an index of another version is made again
    of          what identifies the log: its length and checksums of its two ends; "" for a log without
                a file
    cluster     whether it is the log of a cluster
    first       the number of the first event
    facts       of steps and requests, by place: each has as many parts, in the order in which they
                became final
    extents     what each part of the facts has
    labels      see `Labels`
    slices      the states without their tokens
    answers     what was asked of the log before, by question; see `IndexFile.answer`
    damage      what of the log cannot be read, in words
    adopts      whether prefixes were cached that no request of the log had computed
    """

    vocabulary: int
    of: str
    cluster: bool
    first: int = 0
    chunks: list[Chunk] = []
    keyframes: list[SavedKeyframe] = []
    facts: dict[str, list[Part]] = {}
    extents: list[Extent] = []
    labels: Part | None = None
    slices: list[SavedKeyframe] = []
    answers: dict[str, Any] = {}
    damage: list[str] = []
    adopts: bool = False


def vocabulary_of(*, cluster: bool) -> Any:
    """Return the union of the events of a kind of log."""
    return AnyClusterEvent if cluster else AnyEvent


@cache
def checksum_of_types() -> int:
    """Return a number that changes with the fields and the types of events, and so with the columns."""
    types = inspect.multi_type_info([AnyEvent, AnyClusterEvent, AnyFact, Directory])
    return zlib.crc32(repr((types, PLACES)).encode())


class IndexWriter:
    """Writes an index to a file, event by event. `of` identifies the log (see `Directory`).

    `has_keyframes` is false for a page, because only Python reads keyframes. `told` is called with each
    chunk that has been written, and with its length when it is unpacked.
    Raises LogError for an event that does not fit what came before.
    """

    def __init__(
        self,
        file: BinaryIO,
        of: str = "",
        told: Callable[[bytes, int], None] | None = None,
        *,
        has_keyframes: bool = True,
    ) -> None:
        self._file, self._of, self._told = file, of, told
        self._has_keyframes = has_keyframes
        file.write(MAGIC)
        self._events: list[Any] = []
        self._collector = Collector()
        # Written at the end, so that each is read at once.
        self._spools = {place: _Spool() for place in PLACES.values()}
        self._extents, self._labels = [Extent()], Labels()
        self.directory: Directory | None = None

    def add(self, events: Iterable[Any]) -> None:
        """Add the next events."""
        for event in events:
            if self.directory is None:
                self.directory = self._begun(event)
            if not self.directory.cluster:
                if not self._events:
                    self._begin_chunk(self.directory)
                self._collector.apply(event)
            self._events.append(event)
            if len(self._events) == EVENTS:
                self._write_chunk()

    def end(self, damage: Sequence[str] = ()) -> None:
        """Write the rest, and what of the log cannot be read. Raises LogError if it has no events."""
        if self._events:
            self._write_chunk()
        if self.directory is None:
            raise LogError("the log has no event yet")
        if not self.directory.cluster:
            self._add_facts(is_end=True)
        self.directory.damage = [*damage]
        self.directory.facts = {
            place: [Part(*self._write(packed)) for packed in spool.all()]
            for place, spool in self._spools.items()
        }
        self.directory.extents = self._extents[1:]
        labels = self._labels.packed()
        self.directory.labels = Part(*self._write((labels, len(labels))))
        write_directory(self._file, self.directory)

    @property
    def state(self) -> State:
        """The state after the events so far; of a cluster's log, none."""
        return self._collector.state

    def _begun(self, event: Any) -> Directory:
        is_cluster = not isinstance(event, Event)
        directory = Directory(checksum_of_types(), self._of, is_cluster)
        if isinstance(event, Keyframe):
            directory.first = event.seq
        elif not is_cluster and not isinstance(event, RunStarted):
            raise LogError("a log must begin with run_started or keyframe")
        return directory

    def _begin_chunk(self, directory: Directory) -> None:
        collector, number = self._collector, len(directory.chunks)
        if not number:
            return
        if not number % KEYFRAME_EVERY and self._has_keyframes:
            part = self._write(pack_events([collector.state.keyframe()], AnyEvent))
            directory.keyframes.append(SavedKeyframe(*part, number))
        if not number % FACTS_EVERY:
            self._add_facts()
        if not number % SLICE_EVERY:
            part = self._write(pack_events([collector.slice()], AnyFact))
            directory.slices.append(SavedKeyframe(*part, number))

    def _write_chunk(self) -> None:
        assert self.directory is not None
        events, self._events = self._events, []
        adopts = (PrefixAdopted, Keyframe)
        self.directory.adopts |= any(isinstance(event, adopts) for event in events)
        packed = pack_events(events, vocabulary_of(cluster=self.directory.cluster))
        self.directory.chunks.append(Chunk(*self._write(packed), len(events), self._collector.step))
        if self._told is not None:
            self._told(*packed)

    def _add_facts(self, *, is_end: bool = False) -> None:
        if facts := self._collector.facts(is_end=is_end):
            by_place = _by_place(facts)
            self._extents.append(extent_of(facts, self._extents[-1]))
            self._labels.add(cast("list[Name]", by_place[PLACES[Name]]))
            for place, spool in self._spools.items():
                some = by_place[place]
                spool.add(pack_events(some, AnyFact) if some else (b"", 0))

    def _write(self, packed: tuple[bytes, int]) -> tuple[int, int, int, int]:
        data, plain = packed
        offset = self._file.tell()
        self._file.write(data)
        return offset, len(data), zlib.crc32(data), plain


def _by_place(facts: Iterable[Fact]) -> dict[str, list[Fact]]:
    places: dict[str, list[Fact]] = {place: [] for place in PLACES.values()}
    for one in facts:
        if isinstance(one, Request):
            for kind, names in SPLIT.items():
                places[PLACES[kind]].append(kind(**{name: getattr(one, name) for name in names}))
            places["names"].append(Name(one.id, one.index, one.label, one.samples))
            one = replace(one, **_NOTHING)  # noqa: PLW2901
        places[PLACES[type(one)]].append(one)
    return places


class _Spool:
    """Packed parts that are written later: in memory, or of a long log in a file."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (closed when it is gone)
        self._sizes: list[tuple[int, int]] = []

    def add(self, packed: tuple[bytes, int]) -> None:
        """Keep a part: its bytes, and their length when they are unpacked."""
        self._file.write(packed[0])
        self._sizes.append((len(packed[0]), packed[1]))

    def all(self) -> Iterator[tuple[bytes, int]]:
        """Yield the parts in order."""
        self._file.seek(0)
        for length, plain in self._sizes:
            yield self._file.read(length), plain


def write_directory(file: BinaryIO, directory: Directory) -> None:
    """Write the directory and the footer after everything else."""
    begin = file.tell()
    data = deflate(msgspec.json.encode(directory))
    file.write(data)
    file.write(FOOTER.pack(begin, len(data), zlib.crc32(data), MAGIC))
    file.truncate()


@contextmanager
def index_writer(
    path: Path, of: str = "", told: Callable[[bytes, int], None] | None = None
) -> Iterator[IndexWriter]:
    """Write an index that replaces the file at the end, all at once. An error leaves the old file.

    Raises OSError if the file cannot be written.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    _unfinished.add(part)
    try:
        with part.open("wb") as file:
            yield IndexWriter(file, of, told)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
        _unfinished.discard(part)


@atexit.register
def _remove_unfinished() -> None:
    """Remove what a thread was writing when the process ended."""
    for part in list(_unfinished):
        part.unlink(missing_ok=True)


def index_bytes(events: Iterable[Any], *, has_keyframes: bool = True) -> bytes:
    """Return the index of a log. Raises LogError for an event that does not fit what came before."""
    writer = IndexWriter(file := io.BytesIO(), has_keyframes=has_keyframes)
    with without_gc():
        writer.add(events)
        writer.end()
    return file.getvalue()


class IndexFile:
    """Reads an index. Raises LogError if it is damaged or of another version."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = path.stat().st_size
        if size < len(MAGIC) + FOOTER.size:
            raise LogError(f"the index has only {size} bytes: it was cut off")
        begin, length, crc, magic = FOOTER.unpack(self._read(size - FOOTER.size, FOOTER.size))
        if magic != MAGIC or begin + length + FOOTER.size != size:
            raise LogError("the end of the index cannot be used: it was cut off or overwritten")
        data = checked(self._read(begin, length), crc, "the directory")
        with suppress(msgspec.ValidationError):  # another version may have another directory
            self.directory = msgspec.json.decode(inflate(data), type=Directory)
            if self.directory.vocabulary == checksum_of_types():
                self._begin(begin)
                return
        raise LogError("another version of Underglass wrote the index; the log itself is whole")

    def _begin(self, begin: int) -> None:
        self.end_of_chunks = begin
        self.ends = list(accumulate(chunk.events for chunk in self.directory.chunks))
        self._steps = [chunk.step for chunk in self.directory.chunks]
        self.vocabulary = vocabulary_of(cluster=self.directory.cluster)

    def chunk_of(self, step: int) -> int:
        """Return the number of the chunk in which a step starts; after the last step, the next one."""
        return bisect_left(self._steps, step)

    def part(self, part: Part, what: str) -> bytes:
        """Return the bytes of a part. Raises LogError, which names `what`, if it is damaged."""
        return checked(self._read(part.offset, part.length), part.crc, what)

    def events(self, number: int, only: Collection[type] | None = None) -> Sequence[Any]:
        """Return the events of a chunk, or those of some kinds.

        Raises LogError, which names the events, if the chunk is damaged.
        """
        chunk = self.directory.chunks[number]
        end = self.directory.first + self.ends[number]
        data = self.part(chunk, f"events {end - chunk.events} to {end - 1}")
        return unpack_events(data, self.vocabulary, only)

    def facts(self, *kinds: type[Fact], without: Collection[str] = ()) -> Iterator[Fact]:
        """Yield what is known of steps and requests; fields `without` are None.

        Raises LogError if it is damaged.
        """
        for number in range(self.parts):
            yield from self.facts_in(number, *kinds, without=without)

    @property
    def parts(self) -> int:
        """How many parts the facts of each kind have."""
        return len(self.directory.facts.get("steps", ()))

    def facts_in(
        self, number: int, *kinds: type[Fact], without: Collection[str] = ()
    ) -> Sequence[Fact]:
        """Return those in one of the parts, which are in the order in which they became final."""
        facts = list[Fact]()
        for kind in kinds:
            data = self.packed(number, kind)
            own = unpack_events(data, AnyFact, {kind}, without) if data else ()
            if kind is Request:
                self._complete(own, number, without)
            facts += own
        return facts

    def _complete(self, requests: Sequence[Any], number: int, without: Collection[str]) -> None:
        for kind, names in SPLIT.items():
            if wanted := names - {*without}:
                split = self.facts_in(number, kind, without=without)
                for request, one in zip(requests, split, strict=True):
                    for name in wanted:
                        setattr(request, name, getattr(one, name))

    def packed(self, number: int, kind: type[Fact]) -> bytes:
        """Return a chunk of facts; b"" if the part has none of its kind."""
        part = self.directory.facts[PLACES[kind]][number]
        return self.part(part, "what is known of steps")

    def answer(self, question: str, compute: Callable[[], Any]) -> Any:
        """Return the stored answer to a question, as JSON values, or compute and store it.

        An answer belongs to the version of Underglass that computed it.
        """
        key = f"{question}, {underglass.__version__}"
        if key not in self.directory.answers:
            with without_gc():
                self.directory.answers[key] = compute()
            with suppress(OSError), self.path.open("r+b") as file:  # the folder may be read-only
                file.seek(self.end_of_chunks)
                write_directory(file, self.directory)
        return self.directory.answers[key]

    def _read(self, offset: int, length: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)
