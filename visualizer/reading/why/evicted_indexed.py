"""Where the last eviction of a prefix is in an index, however long before a request it was.

A prefix is cached from when a request computes it until it is evicted, and it cannot be evicted while a
request holds it. So after the last request with this prefix had ended or was preempted, the prefix was
cached up to its eviction and never again. The index has the nodes of the cache at many moments, and a
bisection finds the two between which the prefix was evicted.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator

from visualizer.indexed.chunk import unpack_events
from visualizer.indexed.facts import AnyFact, LiveNode, Request, Slice
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.indexed.known import IndexedKnown, known_of

_UNREAD = {*Slice.__struct_fields__} - {"nodes"}


class Sharing:
    """The requests of a log that begin with some of a request's blocks, and may share their KV.

    size  of a block, in tokens
    """

    def __init__(self, log: IndexedLog, size: int) -> None:
        self._log, self._size, self._first = log, size, log.next_seq - len(log)
        # Columns, because a long log has many: tokens in common and the request.
        self._agree, self._ids = array("i"), array("q")
        # Tokens in common, and the chunk with the event or the step in which the request released them.
        self._released = set[tuple[int, int]]()
        self._ends = log.index.ends
        self._slices = [log.index.ends[one.chunk - 1] for one in log.index.directory.slices]

    @classmethod
    def of(cls, log: IndexedLog, tokens: list[int], key: list[str], size: int) -> "Sharing":
        """Return those of the request that has these tokens and `extra_key`."""
        sharing, known = cls(log, size), known_of(log)
        assert isinstance(known, IndexedKnown)
        for one, agree in known.agreements(tokens):
            if one.extra_key == key:
                sharing.add(one, agree)
        return sharing

    def add(self, one: Request, agree: int) -> None:
        """Add a request that has its first `agree` tokens in common with the one asked about."""
        if agree < self._size:
            return
        self._agree.append(agree)
        self._ids.append(one.id)
        if one.finished:
            self._released.add((agree, bisect_right(self._ends, one.finished[3] - self._first)))
        for step, *_ in one.preemptions:
            self._released.add((agree, self._log.index.chunk_of(step)))

    def evictions(self, prefix: int, end: int) -> Iterator[range]:
        """Yield ranges of events before the index `end`, the last first.

        The first of them in which a prefix of so many tokens was evicted has its last eviction.
        """
        ids = {id_ for agree, id_ in zip(self._agree, self._ids, strict=True) if agree >= prefix}
        chunks = {chunk for agree, chunk in self._released if agree >= prefix}
        for chunk in sorted(chunks, reverse=True):
            if (begin := self._ends[chunk - 1] if chunk else 0) >= end:
                continue
            # The step may end in the next chunk, and what it computed may be stored only then.
            least = bisect_left(self._slices, self._ends[min(chunk + 1, len(self._ends) - 1)])
            most = max(least, bisect_left(self._slices, end))
            low, high = least - 1, most  # if it was ever cached, then at `low`, and not at `high`
            while high - low > 1:
                middle = (low + high) // 2
                if self._is_cached(middle, prefix, ids):
                    low = middle
                else:
                    high = middle
            last = self._slices[high] if high < most else end
            yield range(begin if low < least else self._slices[low], last)
            end = begin

    def _is_cached(self, number: int, prefix: int, ids: Container[int]) -> bool:
        """Return whether the prefix was cached at a moment."""
        return any(
            node.origin in ids
            and node.begin < prefix <= node.begin + max(1, len(node.blocks)) * self._size
            and (node.blocks or node.copies)
            for node in self._nodes(number)
        )

    def _nodes(self, number: int) -> list[LiveNode]:
        packed = self._log.index.part(self._log.index.directory.slices[number], "the cache's nodes")
        [state] = unpack_events(packed, AnyFact, without=_UNREAD)
        nodes: list[LiveNode] = state.nodes
        return nodes

    def own_blocks(self, index: int) -> dict[int, int]:
        """Return where the nodes begin that are blocks of the request, at a keyframe before `index`."""
        number = bisect_left(self._slices, index)
        if self._slices[number : number + 1] != [index]:
            return {}
        agree = dict(zip(self._ids, self._agree, strict=True))
        return {
            node.id: node.begin
            for node in self._nodes(number)
            if node.begin + self._size <= agree.get(node.origin, 0)
        }
