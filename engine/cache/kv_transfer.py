"""Move KV between engines: read a cached prefix's pages here, adopt pages that another engine computed.

    there   export(tokens)         pages of the blocks that its prefix cache has
    here    adopt(tokens, pages)   blocks allocated, pages written, blocks cached: one event

An adopted prefix is an ordinary cached prefix that no request uses: the next request with these tokens
finds it, and until then it may be evicted. So neither the scheduler nor a policy knows of moves, and
the last token of a prompt is computed here, because a hit never covers it.

Both calls happen between two steps. With asynchronous scheduling they wait for the forward pass that
is running, because it may still write to blocks that have been released.

Making room evicts what would be evicted for a request, and preempts nothing. If it is not enough, the
beginning of the prefix is adopted. What is here of the prefix already is held meanwhile, so that it is
not evicted for its own continuation.

With sliding layers, a page has room for all layers, and the part of the sliding ones counts only for
the blocks in the window before the end of the prefix. Only those get a window page here. Blocks that
are here already get none, even if they lack one; the next request then finds less of the prefix.

Source: vLLM's KV connectors (`vllm/distributed/kv_transfer/kv_connector/v1/base.py`).

Differs from vLLM: there, a request is scheduled first, and its own blocks are then loaded, layer by
layer if the connector can (`wait_for_layer_load`). Here the blocks are loaded into the prefix cache
before their request is submitted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.cache.holds import Holds
from engine.cache.kv_cache_manager import KVCacheManager
from engine.recorder import Recorder
from engine.runner import PageStore
from engine.text.tokenizer import Tokenizer

ADOPTING = "adopting"  # the label of the hold on what is here already


class Pages(NamedTuple):
    """The KV of some whole blocks of a prefix; `data` has one page for each."""

    blocks: int
    data: bytes


@dataclass(slots=True)
class KVTransfer:
    """The moves of one engine. Call its methods between steps only.

    settle  waits until no forward pass runs; False if the KV memory is not as the log says
    """

    _cache: KVCacheManager
    _holds: Holds
    pages: PageStore
    _tokenizer: Tokenizer
    _recorder: Recorder
    _settle: Callable[[], bool]

    def cached_blocks(self, tokens: Sequence[int]) -> int:
        """Return how many leading whole blocks of `tokens` are cached."""
        return len(self._cached(tokens))

    def export(self, tokens: Sequence[int], first: int = 0) -> Pages:
        """Return the pages of the cached prefix of `tokens` from its block `first` on.

        The prefix stays cached. The pages are a copy, so nothing needs to be held afterwards.
        """
        usable = self._cache.lookup.match(tokens, limit=len(tokens) // self._cache.block_size)
        blocks = usable.blocks[first:] if self._settle() else []
        if not blocks:
            return Pages(0, b"")
        if self._cache.pages is not None:
            self._cache.pages.send()
        return Pages(len(blocks), self.pages.read_pages(blocks))

    def adopt(
        self,
        tokens: Sequence[int],
        pages: bytes,
        *,
        first: int = 0,
        source: str = "another replica",
    ) -> int:
        """Put blocks that another engine computed into the prefix cache; return how many.

        tokens  from the beginning of the prefix; a last block that is not full is ignored
        pages   the KV of the prefix's whole blocks from block `first` on
        source  the engine that computed them, for the log

        Blocks that are here already are not written. Nothing is adopted if a block before `first` is
        not cached: a prefix has no hole. Raises ValueError if `pages` does not fit `tokens`, and what a
        learner's pool or eviction order raises.
        """
        began = self._recorder.now()
        size, page_bytes = self._cache.block_size, self.pages.kv_format().page_bytes
        end = len(tokens) // size
        if len(pages) != max(end - first, 0) * page_bytes:
            raise ValueError(
                f"pages must have {page_bytes} bytes for each of the blocks {first} to {end}, got "
                f"{len(pages)} bytes"
            )
        here = len(self._cached(tokens))
        if here < first or not self._cache.prefix_cache.lookup.enabled or not self._settle():
            return 0
        end = min(end, here + self._make_room(tokens, here, end - here))
        if end <= here:
            return 0
        prefix_cache = self._cache.prefix_cache
        match = prefix_cache.lookup.match(tokens, limit=here)
        new = list(tokens[here * size : end * size])
        num_window_pages = self._make_room_in_windows(match.blocks, len(tokens) // size, end)
        adopted = prefix_cache.adopt(match, new)
        if self._cache.pages is not None:
            self._cache.pages.assign_adopted(adopted.blocks, num_window_pages)
            self._cache.pages.send()
        view = memoryview(pages)[(here - first) * page_bytes : (end - first) * page_bytes]
        self.pages.write_pages(adopted.blocks, view)
        texts = self._tokenizer.pieces(list(tokens[: end * size]))[here * size :]
        self._recorder.prefix_adopted(
            adopted, new, texts, source, num_window_pages=num_window_pages, began=began
        )
        return end - here

    def _make_room_in_windows(self, prefix: list[int], sent: int, end: int) -> int:
        """Return how many blocks before `end` get a window page; so many pages are free then.

        They are those in the window before the end of what was `sent`. If not all of them can have a
        page, none gets one, because a prefix with a hole in its window is of no use.
        """
        if (pages := self._cache.pages) is None:
            return 0
        first = pages.first_needed(sent * self._cache.block_size)
        count = max(0, end - max(first, len(prefix)))
        if count > pages.num_available:
            return 0
        pages.touch(prefix)
        pages.make_room(count)
        return count

    def _cached(self, tokens: Sequence[int]) -> list[int]:
        lookup = self._cache.prefix_cache.lookup
        return lookup.match(tokens, limit=len(tokens) // self._cache.block_size).blocks

    def _make_room(self, tokens: Sequence[int], here: int, wanted: int) -> int:
        """Evict until `wanted` blocks are free; return how many of them are.

        The first `here` blocks of the prefix are cached and stay.
        """
        pool, match = self._cache.pool, self._cached(tokens)
        room = self._cache.num_available_blocks - sum(map(self._cache.is_evictable, match))
        wanted = min(wanted, room)
        if len(pool.free) >= wanted:
            return wanted
        hold = self._holds.pin(tokens, here, label=ADOPTING) if here else None
        try:
            while len(pool.free) < wanted:
                self._cache.prefix_cache.evict(None)
        finally:
            if hold is not None:
                self._holds.release(hold.id)
        return wanted
