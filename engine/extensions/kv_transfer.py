"""Move KV between engines: one engine exports the pages of a cached prefix, and another adopts them.

    sender    export(tokens)         returns the pages of the blocks in its prefix cache
    receiver  adopt(tokens, pages)   allocates blocks, writes pages, caches the blocks; emits one event

An adopted prefix is an ordinary cached prefix that no request uses: the next request with these tokens
finds it, and until then it may be evicted. So the scheduler and the policies need not know about
transfers. The receiver always computes the last token of a prompt, because a hit never covers it.

Both calls happen between two steps. With asynchronous scheduling they wait for the forward pass that
is running, because it may still write to blocks that have been released.

To make room, the receiver evicts the same blocks as for a request, and it preempts no request. If that
is not enough, it adopts only the beginning of the prefix. It holds the part of the prefix that it
already has, so that this part is not evicted to make room for its own continuation.

With sliding layers, a page has room for all layers, but the data of the sliding layers is valid only
for the blocks in the window before the end of the prefix. Only those blocks get a window page. A block
that the receiver already has but whose window page is gone does not get a new one, so the next request
may find less of the prefix.

Source: vLLM's KV connectors (`vllm/distributed/kv_transfer/kv_connector/v1/base.py`).

Differs from vLLM, which first schedules a request and then loads its blocks, layer by layer if the
connector can (`wait_for_layer_load`). Here the blocks are loaded into the prefix cache before their
request is submitted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from engine.core.cache.kv_cache_manager import KVCacheManager
from engine.core.cache.prefix_cache import NO_REQUEST
from engine.core.log.recorder import Recorder
from engine.core.runner import PageStore
from engine.core.tokenizer import Tokenizer
from engine.extensions.holds import Holds
from engine.extensions.window_pages import WindowPages

ADOPTING = "adopting"  # the label of the hold on blocks that are already cached


class Pages(NamedTuple):
    """The KV of some whole blocks of a prefix; `data` has one page per block."""

    blocks: int
    data: bytes


@dataclass(slots=True)
class KVTransfer:
    """KV transfers from and to one engine. Call its methods between steps only.

    settle  waits until no forward pass runs; returns False if the KV memory does not match the log
    """

    _cache: KVCacheManager
    _holds: Holds
    pages: PageStore
    _tokenizer: Tokenizer
    _recorder: Recorder
    _settle: Callable[[], bool]

    def cached_blocks(self, tokens: Sequence[int]) -> int:
        """Return the number of leading whole blocks of `tokens` that are cached."""
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
        """Put blocks that another engine computed into the prefix cache, and return their number.

        tokens  from the beginning of the prefix; a last block that is not full is ignored
        pages   the KV of the prefix's whole blocks from block `first` on
        source  the engine that computed them, for the log

        Blocks that are already cached are not overwritten. Nothing is adopted if a block before
        `first` is not cached, because a prefix must not have a hole. Raises ValueError if `pages` has
        the wrong length for `tokens`, and passes on the errors of a custom pool or eviction order.
        """
        began = self._recorder.now()
        size, page_bytes = self._cache.block_size, self.pages.kv_format().page_bytes
        end = len(tokens) // size
        count = max(end - first, 0)
        if len(pages) != count * page_bytes:
            raise ValueError(
                f"pages must have {count * page_bytes} bytes ({page_bytes} for each of the {count} "
                f"blocks from block {first} on), got {len(pages)}"
            )
        num_cached = len(self._cached(tokens))
        if num_cached < first or not self._cache.tree.enabled or not self._settle():
            return 0
        end = min(end, num_cached + self._make_room(tokens, num_cached, end - num_cached))
        if end <= num_cached:
            return 0
        match = self._cache.tree.match(tokens, limit=num_cached)
        new = list(tokens[num_cached * size : end * size])
        num_window_pages = self._make_room_in_windows(match.blocks, len(tokens) // size, end)
        adopted = self._cache.adopt(match, new)
        if (window_pages := self._window_pages) is not None:
            window_pages.assign_adopted(adopted.blocks, num_window_pages)
            window_pages.send()
        view = memoryview(pages)[(num_cached - first) * page_bytes : (end - first) * page_bytes]
        self.pages.write_pages(adopted.blocks, view)
        if self._cache.tiers is not None:
            self._cache.tiers.adopted(tokens[: end * size], adopted.blocks)
        texts = self._tokenizer.pieces(list(tokens[: end * size]))[num_cached * size :]
        self._recorder.prefix_adopted(
            adopted, new, texts, source, num_window_pages=num_window_pages, began=began
        )
        return end - num_cached

    def _make_room_in_windows(self, prefix: list[int], sent: int, end: int) -> int:
        """Free window pages for new blocks. Return how many blocks before `end` get a page.

        These are the new blocks in the window before the end of the `sent` blocks. If there are not
        enough pages for all of them, none gets one, because a hole in the window makes a prefix
        useless.
        """
        if (pages := self._window_pages) is None:
            return 0
        first = pages.first_needed(sent * self._cache.block_size)
        count = max(0, end - max(first, len(prefix)))
        if count > pages.num_available:
            return 0
        pages.touch(prefix)
        pages.make_room(count)
        return count

    @property
    def _window_pages(self) -> WindowPages | None:
        """The window pages of the cache, which the core knows by its protocol only."""
        return cast(WindowPages | None, self._cache.pages)

    def _cached(self, tokens: Sequence[int]) -> list[int]:
        lookup = self._cache.tree
        return lookup.match(tokens, limit=len(tokens) // self._cache.block_size).blocks

    def _make_room(self, tokens: Sequence[int], num_cached: int, wanted: int) -> int:
        """Evict blocks until `wanted` are free. Return how many of them could be freed.

        The first `num_cached` blocks of the prefix are cached and stay cached.
        """
        pool, match = self._cache.pool, self._cached(tokens)
        room = self._cache.num_available_blocks - sum(map(self._cache.is_evictable, match))
        wanted = min(wanted, room)
        if len(pool.free) >= wanted:
            return wanted
        hold = self._holds.pin(tokens, num_cached, label=ADOPTING) if num_cached else None
        try:
            while len(pool.free) < wanted:
                self._cache.evict(NO_REQUEST, "adopted")
        finally:
            if hold is not None:
                self._holds.release(hold.id)
        return wanted
