"""KV events of vLLM and SGLang: they describe the prefix cache, but no requests.

Each message becomes a step of the log, because the board's cursor, strip and tree move by steps. The
step has no rows, and its number is not the engine's step number. If the messages' numbers skip, the
missing messages become a gap in the log. If they go back, the engine was started again with an empty
cache.
"""

from collections.abc import Iterator, Mapping

from engine.core.log import LogError
from engine.core.log.fold import State
from engine.core.log.vocabulary import Event, StepFinished, StepStarted
from engine.simulation.facts import Fact, Knowledge
from visualizer.sources.frames import gap_before, holds_map, read_frame
from visualizer.sources.kv_messages import (
    Batch,
    Cleared,
    Removed,
    Stored,
    hash_name,
    read_batch,
)
from visualizer.sources.kv_tree import KVTree, Place
from visualizer.sources.reader import Reader, Translator, foreign_start

MOST_HELD = 10_000  # messages that are held back until one of them gives the block size
MAX_BLOCK_SIZE = 1 << 20  # tokens
FACTS: Mapping[Fact, Knowledge] = {
    "prefix_tree": "recorded",
    "evictions": "recorded",
    "token_ids": "recorded",
}


class KVTranslator(Translator):
    """Translates the messages of one publisher or of several ranks."""

    def __init__(self) -> None:
        self._state = State()  # after the events that were returned
        self._tree = KVTree(self._state)
        self._has_begun = self._is_broken = False
        self._held: list[Batch] = []  # messages held back until the block size is known
        self._next: dict[tuple[str, int], int] = {}  # the next expected number, by topic and rank
        self._start = 0  # when the run started, in microseconds since 1970
        self._now = 0  # when the last message was published, in microseconds since `_start`
        self._step = 0

    def feed(self, message: bytes) -> list[Event]:
        """Return the events of a line of a capture. Raises LogError for a damaged line."""
        batch = read_batch(read_frame(message))
        if not self._has_begun:
            self._held.append(batch)
            sizes = [one.block_size for one in batch.events if isinstance(one, Stored)]
            size = next((size for size in sizes if size), None)
            if size is None and len(self._held) < MOST_HELD:
                return []
            return self._begin(size or 1)
        self._is_broken = True  # until the state has all of its events
        events = list(self._message(batch))
        self._is_broken = False
        return events

    def skip(self, why: str, line: bytes) -> list[Event] | None:
        """See `Translator`. The number of the next message shows that one is missing."""
        return None if self._is_broken or not self._has_begun else []

    def end(self) -> list[Event]:
        """Return the events that are held back if no message gave the block size."""
        return self._begin(1) if not self._has_begun and self._held else []

    def _begin(self, size: int) -> list[Event]:
        if not 1 <= size <= MAX_BLOCK_SIZE:
            raise LogError(f"block_size must be from 1 to {MAX_BLOCK_SIZE:,}, got {size}")
        held, self._held = self._held, []
        self._start = _microseconds(held[0].at)
        self._has_begun = True
        settings = {"block_size": size, "num_blocks": 0, "prefix_cache": "hash"}
        start = foreign_start("vLLM or SGLang", "KV events", FACTS, settings, self._start)
        self._state.apply(start)
        return [start, *(event for one in held for event in self._message(one))]

    def _message(self, batch: Batch) -> Iterator[Event]:
        """Yield the events of a message, each after the state has folded it."""
        for event in self._events(batch):
            self._state.apply(event)
            yield event

    def _events(self, batch: Batch) -> Iterator[Event]:
        # Messages of several ranks may arrive slightly out of order.
        self._now = max(self._now, _microseconds(batch.at) - self._start)
        publisher = (batch.topic, batch.rank)
        expected = self._next.get(publisher, batch.seq)
        self._next[publisher] = batch.seq + 1
        if batch.seq != expected:
            yield gap_before(batch.seq, expected, self._now)
        self._step += 1
        yield StepStarted(self._step)
        if batch.seq < expected:
            yield from self._tree.clear(batch.rank)
        for event in batch.events:
            yield from self._change(batch.rank, event)
        t = dict.fromkeys(("start", "scheduled", "end"), self._now)
        yield StepFinished([], self._step, t=t)

    def _change(self, rank: int, event: Stored | Removed | Cleared) -> Iterator[Event]:
        tree = self._tree
        if isinstance(event, Cleared):
            yield from tree.clear(rank)
            return
        hashes = [hash_name(one) for one in event.block_hashes]
        if isinstance(event, Removed):
            words = _words(event.medium, rank)
            yield from tree.remove(hashes, Place(rank, event.medium, event.group_idx, words))
        elif hashes:
            words = _words(event.medium, rank, event.lora_name, event.lora_id)
            place = Place(rank, event.medium, event.group_idx, words)
            above = None if event.parent_block_hash is None else hash_name(event.parent_block_hash)
            yield from tree.store(hashes, above, event.token_ids, place)


def _words(medium: str | None, rank: int, name: str | None = None, lora: int | None = None) -> str:
    """Return words for the place of blocks: "GPU", "CPU, rank 1, LoRA sql"."""
    parts = [medium or "GPU"]
    if rank:
        parts.append(f"rank {rank}")
    if name is not None or lora is not None:
        parts.append(f"LoRA {lora if name is None else name}")
    return ", ".join(parts)


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


KV_EVENTS = Reader(
    name="kv-events",
    title="KV events of vLLM or SGLang",
    facts=FACTS,
    recognizes=lambda line: holds_map(line) is False,
    translator=KVTranslator,
)
