"""KV blocks on their way up: from disk to host memory, and to the GPU if that is the cheaper way.

    prefetch   from disk to host memory, while its request waits in the queue
    fetch      to the GPU, when its request is admitted

A fetched block is written to a block that the admitted request has allocated, as if the request had
computed it. So scheduler, policies and both prefix caches need not know about tiers. It also stays in
its tier, so that evicting it again costs nothing. The engine waits for a fetch.

Source: SGLang's `python/sglang/srt/mem_cache/hiradix_cache.py` (`prefetch_from_storage`, `load_back`).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

from engine.core.cache.kv_cache_manager import KVCacheManager
from engine.core.config import EngineConfig
from engine.core.log import vocabulary as v
from engine.core.log.recorder import Clock, VirtualTime
from engine.core.request import Request
from engine.core.runner import PageStore
from engine.extensions.tier_disk import LateBlock
from engine.extensions.tier_down import Down
from engine.extensions.tier_files import BadBlock
from engine.extensions.tier_keys import Keys
from engine.extensions.tier_places import Places
from engine.extensions.tier_prices import Prices, fetch_or_compute


class _Coming(NamedTuple):
    """A block on its way from disk to host memory: its page, and when a virtual clock has it."""

    request: int
    page: "Future[bytes]"
    ready_at: int


@dataclass(slots=True)
class Up:
    """Brings blocks back. `choose` is `fetch_or_compute` or yours."""

    _config: EngineConfig
    _cache: KVCacheManager
    _pages: PageStore
    _clock: Clock
    _keys: Keys
    _places: Places
    _down: Down
    prices: Prices
    choose: Callable[[Sequence[float], Sequence[float]], int] = fetch_or_compute
    _virtual: VirtualTime | None = field(init=False)
    _disk_is_free_at: int = 0

    def __post_init__(self) -> None:
        self._virtual = self._clock if isinstance(self._clock, VirtualTime) else None

    def prefetch(self, request: Request) -> None:
        """Begin to read from disk what a waiting request will need, if that pays."""
        host = self._places.host
        if not host.limit:
            return
        first = len(self._cache.match_prefix(request).blocks)
        stored = self._stored(request, first)
        count = self.choose(*self._both_prices(stored, first))
        read = [key for key in stored[:count] if key not in host.blocks]
        read = [key for key in read if key not in self._places.coming][: host.limit]
        for key in read:
            self._places.coming[key] = self._begin(key, request.id)

    def fetch(self, request: Request) -> None:
        """Fetch the blocks that an admitted request would otherwise compute, as far as that pays."""
        first = len(request.block_table)
        stored = self._stored(request, first)
        if not stored:
            self._say_late(request, first)
            return
        prices = self._both_prices(stored, first)
        count = self._fitting(request, self.choose(*prices))
        fetch_us, compute_us = (sum(price[: count or None]) for price in prices)
        t = {"fetch_us": round(fetch_us), "compute_us": _rounded(compute_us)}
        if not count:
            host, disk = self._places.tiers
            tier = host if stored[0] in host.blocks else disk
            self._places.stay(tier, stored, "dearer", request.id, t=t)
            return
        began = self._clock.now()
        self._places.fetching = stored[:count]
        pages, places = self._load(stored[:count], request.id)
        t["us"] = self._clock.now() - began
        if pages:
            self._write(request, stored[: len(pages)], pages, places, t=t)
        self._places.fetching = ()
        if len(pages) == len(stored):
            self._say_late(request, first + len(pages))

    def pass_time(self, us: float) -> None:
        """Let time pass on a virtual clock: that of a transfer for which the engine waits."""
        if self._virtual is not None:
            self._virtual.advance(max(0, round(us)))

    def take_arrivals(self) -> None:
        """Put what has been read from disk in the meantime into host memory."""
        now = self._clock.now()
        for key, coming in list(self._places.coming.items()):
            ready = coming.page.done() if self._virtual is None else coming.ready_at <= now
            if ready:
                try:
                    self._raise(key, coming.page.result(), "prefetched", coming.request)
                except BadBlock as error:
                    self._places.drop(self._places.disk, [key], "damaged", str(error))
                # As long as it is coming, it does not leave the disk.
                del self._places.coming[key]

    def _stored(self, request: Request, first: int) -> list[bytes]:
        """Return the keys of a request's blocks from block `first` on that a tier has, up to a gap.

        A prompt that is scored is computed in full, see `match_prefix`.
        """
        if request.params.prompt_logprobs is not None:
            return []
        return list(takewhile(self._places.have, self._keys.of(request)[first:]))

    def _both_prices(self, stored: list[bytes], first: int) -> tuple[list[float], list[float]]:
        """Return the prices of fetching and of computing each of these blocks."""
        size, now = self._config.block_size, self._clock.now()
        fetch: list[float] = []
        for key in stored:
            us = self.prices.fetch_us("host", size)
            if (coming := self._places.coming.get(key)) is not None:
                us += max(0, coming.ready_at - now)
                now = max(now, coming.ready_at)  # the ones after it come later
            elif key not in self._places.host.blocks:
                us += self.prices.fetch_us("disk", size)
            fetch.append(us)
        compute = [
            self.prices.compute_us((first + index) * size, size) for index in range(len(stored))
        ]
        return fetch, compute

    def _fitting(self, request: Request, count: int) -> int:
        """Limit a fetch so that the request's first chunk still fits into memory behind it."""
        budget, size = self._config.token_budget, self._config.block_size
        have = self._cache.num_available_blocks
        while count:
            left = request.num_uncomputed_tokens - count * size
            if self._cache.blocks_needed(request, count * size + min(left, budget)) <= have:
                break
            count -= 1
        return count

    def _load(self, keys: list[bytes], request: int) -> tuple[list[bytes], dict[str, list[int]]]:
        """Return the pages of blocks, up to the first that cannot be read.

        The dict has the positions of the blocks that came from each tier. A block that is read from
        disk is in host memory afterwards, too.
        """
        pages, places, size = list[bytes](), dict[str, list[int]](), self._config.block_size
        host, until = self._places.host, self._places.io.deadline()
        for index, key in enumerate(keys):
            place = "host"
            if key in host.blocks:
                page = host.blocks[key].page
            else:
                place, began = "disk", self._clock.now()
                coming = self._places.coming.pop(key, None)
                if coming is None:
                    coming = self._begin(key, request)
                self.pass_time(coming.ready_at - began)
                try:
                    page = self._places.io.page(coming.page, until)
                except LateBlock as error:
                    late = keys[index:]
                    self._places.stay(self._places.disk, late, "late", request, detail=str(error))
                    break
                except BadBlock as error:
                    self._places.drop(self._places.disk, [key], "damaged", str(error))
                    break
                self.prices.paid("disk", size, self._clock.now() - began)
                self._raise(key, page, "fetched", request)
            self.pass_time(self.prices.fetch_us("host", size))
            pages.append(page)
            places.setdefault(place, []).append(index)
        return pages, places

    def _begin(self, key: bytes, request: int) -> _Coming:
        """Begin to read a block from disk, after the ones before it."""
        us = round(self.prices.fetch_us("disk", self._config.block_size))
        self._disk_is_free_at = max(self._disk_is_free_at, self._clock.now()) + us
        return _Coming(request, self._places.io.load(key), self._disk_is_free_at)

    def _say_late(self, request: Request, first: int) -> None:
        """Say which blocks from block `first` on stay on disk because it is not asked."""
        disk = self._places.disk
        if refusal := self._places.io.refusal:
            late = takewhile(disk.blocks.__contains__, self._keys.of(request)[first:])
            self._places.stay(disk, list(late), "late", request.id, detail=refusal)

    def _raise(self, key: bytes, page: bytes, reason: v.MoveReason, request: int) -> None:
        """Copy a block from disk to host memory, if it is not there and there is room for it."""
        host, disk = self._places.tiers
        if key not in host.blocks and self._down.make_room(host, 1, [key]):
            block = disk.blocks[key]
            slot = host.put(key, block.text, page)
            self._places.moved("disk", "host", reason, [block.slot], [slot], request=request)

    def _write(
        self,
        request: Request,
        keys: list[bytes],
        pages: list[bytes],
        places: dict[str, list[int]],
        *,
        t: dict[str, Any],
    ) -> None:
        """Write pages to blocks that the request allocates, as if it had computed them."""
        first, size = len(request.block_table), self._config.block_size
        copies = self._cache.allocate_slots(request, len(keys) * size)
        assert copies == [], "a fetch begins at a block's first slot, and its blocks were counted"
        blocks = request.block_table[first : first + len(keys)]
        copying = self._clock.now()
        self._pages.write_pages(blocks, memoryview(b"".join(pages)))
        self.prices.paid("host", len(keys) * size, self._clock.now() - copying)
        t["us"] += self._clock.now() - copying
        for tier in self._places.tiers:
            if places.get(tier.name):
                here = [keys[index] for index in places[tier.name]]
                slots = tier.slots_of(here)
                there = [blocks[index] for index in places[tier.name]]
                request.num_computed_tokens += len(there) * size
                self._places.moved(
                    tier.name, "gpu", "cheaper", slots, there, request=request.id, t=t
                )
                t = {}  # the price is that of both tiers together
        self._cache.cache_computed(request)


def _rounded(us: float) -> int | None:
    """Return whole microseconds, or None if nothing has been measured yet."""
    return None if us == float("inf") else round(us)
