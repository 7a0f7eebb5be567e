"""Memory below the GPU: blocks that leave the prefix cache go to host memory, then to disk, and return.

    down    write_back      a block moves down when it is evicted
            write_through   a block is copied to all tiers when it has been computed
    up      prefetch        from disk to host memory, while its request waits in the queue
            fetch           to the GPU, when its request is admitted, if that costs less than computing

A tier is a set of blocks under a limit, each under the hash of its prefix. When a tier is full, the
least recently used blocks leave it: from host memory to disk, from disk for good. Blocks are used when
they come and when a request that has them ends. A block that is fetched stays in its tier, so that
evicting it again costs nothing.

A fetched block is written to a block that the admitted request has allocated, as if the request had
computed it. So scheduler, policies and both prefix caches need not know about tiers. The engine waits
for a fetch. With "write_back" it also waits until an evicted block is in host memory; all other copies
overlap with its forward passes.

Nothing here can make an answer wrong or lose it. A block that the disk cannot read, whose file was cut
off or altered, or that was dropped, is computed again, and the log has the reason. A disk that fails
three times in a row is not written to any more.

Source: vLLM's `vllm/v1/kv_offload/cpu/manager.py` (what is stored, in which order blocks are used and
leave); SGLang's HiCache, `python/sglang/srt/mem_cache/hiradix_cache.py` (write-back, prefetch from disk
to host memory while a request waits).

Differs from vLLM and SGLang, whose engines compute for other requests during a fetch, and which fetch
without comparing prices (see `tier_prices.py`).
"""

import os
import tempfile
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice, takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from engine.core.cache.kv_cache_manager import KVCacheManager
from engine.core.cache.prefix_cache import NO_REQUEST
from engine.core.config import ConfigError, EngineConfig
from engine.core.log import vocabulary as v
from engine.core.log.recorder import Clock, VirtualTime
from engine.core.request import Request
from engine.core.runner import PageStore
from engine.core.tokenizer import Tokenizer
from engine.extensions.tier_files import BadBlock, BlockFiles, NoFiles
from engine.extensions.tier_prices import (
    MeasuredPrices,
    ModelledPrices,
    Prices,
    fetch_or_compute,
)

MAX_FAILURES = 3  # of writes in a row, until a disk is given up
_KEY_BYTES = 16
# Part of the keys of prefixes with an adapter: its name may mean other weights in the next run, which
# must not find their blocks on disk.
_RUN = os.urandom(_KEY_BYTES)


class Block(NamedTuple):
    """A block in a tier: its number there, its text, and in host memory its page."""

    slot: int
    text: str
    page: bytes = b""


@dataclass(slots=True)
class Tier:
    """The blocks of a tier by key, the least recently used one first."""

    name: v.Tier
    limit: int
    blocks: OrderedDict[bytes, Block] = field(default_factory=OrderedDict)
    _free: list[int] = field(default_factory=list)  # numbers below the next one

    def use(self, keys: Sequence[bytes]) -> None:
        """Make blocks the most recently used ones; the last of them leaves first."""
        for key in reversed(keys):
            self.blocks.move_to_end(key)

    @property
    def num_free(self) -> int:
        """The number of blocks for which there is room."""
        return self.limit - len(self.blocks)

    def leaving(self, count: int, kept: Set[bytes]) -> list[bytes]:
        """Return the `count` blocks that leave first, without those that are `kept`."""
        return list(islice((key for key in self.blocks if key not in kept), max(count, 0)))

    def put(self, key: bytes, text: str, page: bytes) -> int:
        """Add a block; a number must be free. Return the number."""
        slot = self._free.pop() if self._free else len(self.blocks)
        self.blocks[key] = Block(slot, text, page)
        return slot

    def remove(self, key: bytes) -> Block:
        """Remove a block."""
        block = self.blocks.pop(key)
        self._free.append(block.slot)
        return block


class _Coming(NamedTuple):
    """A block on its way from disk to host memory: its page, and when a virtual clock has it."""

    request: int
    page: "Future[bytes]"
    ready_at: int


@dataclass(slots=True)
class Tiers:
    """The tiers of one engine; see the top of the file. `choose` is `fetch_or_compute` or yours."""

    _config: EngineConfig
    _cache: KVCacheManager
    _pages: PageStore
    _tokenizer: Tokenizer
    _clock: Clock
    prices: Prices
    _emit: Callable[[v.Event], None]
    choose: Callable[[Sequence[float], Sequence[float]], int] = fetch_or_compute
    host: Tier = field(init=False)
    disk: Tier = field(init=False)
    files: BlockFiles | NoFiles = field(default_factory=NoFiles)
    _virtual: VirtualTime | None = None
    _coming: dict[bytes, _Coming] = field(default_factory=dict)
    _fetching: Sequence[bytes] = ()  # they stay while they are fetched
    _disk_is_free_at: int = 0
    _failures: int = 0
    _chains: dict[int, list[bytes]] = field(default_factory=dict)  # by request: keys of its blocks
    _computed: dict[int, int] = field(default_factory=dict)  # by request: blocks that it had
    _node_keys: dict[int, bytes] = field(default_factory=dict)  # by node of the hash table
    _folder: Any = None  # that of the engine's own files, which ends with the engine
    _reader: ThreadPoolExecutor | None = None

    def __post_init__(self) -> None:
        size = self._config.block_size
        self.host = Tier("host", self._config.host_kv_tokens // size)
        self.disk = Tier("disk", self._config.disk_kv_tokens // size)
        self._virtual = self._clock if isinstance(self._clock, VirtualTime) else None
        if self.disk.limit and self._pages.kv_format().page_bytes:
            self._folder = tempfile.TemporaryDirectory(prefix="underglass-kv-")
            self.open_folder(self._folder.name)

    @property
    def slots(self) -> dict[str, list[int]]:
        """The used places of each tier, the least recently used one first."""
        return {
            tier.name: [block.slot for block in tier.blocks.values()]
            for tier in (self.host, self.disk)
        }

    @property
    def writes_through(self) -> bool:
        """Whether blocks are copied to all tiers as soon as they are computed."""
        return self._config.kv_write == "write_through"

    def open_folder(self, folder: str | Path) -> None:
        """Keep the disk tier's files in a folder, and use the blocks that an earlier run left there."""
        files = self.files = BlockFiles(folder, self._form())
        keys = list(files.found())
        for key in keys[: -self.disk.limit]:
            files.delete(key)
        keys = keys[-self.disk.limit :]
        slots = [self.disk.put(key, "", b"") for key in keys]
        if slots:
            self._moved("", "disk", "found", slots, slots, texts=[""] * len(slots))

    # What the engine calls

    def arrived(self, request: Request) -> None:
        """Begin to read from disk what a waiting request will need, if that pays."""
        self._take_arrivals()
        if not self.host.limit:
            return
        first = len(self._cache.match_prefix(request).blocks)
        stored = self._stored(request, first)
        count = self.choose(*self._both_prices(stored, first))
        read = [key for key in stored[:count] if key not in self.host.blocks]
        read = [key for key in read if key not in self._coming][: self.host.limit]
        for key in read:
            self._coming[key] = self._begin(key, request.id)

    def fetch(self, request: Request) -> None:
        """Fetch the blocks that an admitted request would otherwise compute, as far as that pays."""
        self._take_arrivals()
        first = len(request.block_table)
        stored = self._stored(request, first)
        if not stored:
            return
        prices = self._both_prices(stored, first)
        count = self._fitting(request, self.choose(*prices))
        fetch_us, compute_us = (sum(price[: count or None]) for price in prices)
        t = {"fetch_us": round(fetch_us), "compute_us": _rounded(compute_us)}
        if not count:
            tier = self.host if stored[0] in self.host.blocks else self.disk
            slots = [tier.blocks[key].slot for key in stored if key in tier.blocks]
            self._moved(tier.name, tier.name, "dearer", slots, slots, request=request.id, t=t)
            return
        self._fetching, began = stored[:count], self._clock.now()
        pages, places = self._load(stored[:count], request.id)
        t["us"] = self._clock.now() - began
        if pages:
            self._write(request, stored[: len(pages)], pages, places, t=t)
        self._fetching = ()

    def computed(self, request: Request) -> None:
        """With "write_through", copy the blocks that a request has just computed to all tiers."""
        end = request.num_computed_tokens // self._config.block_size
        first = self._computed.get(request.id, 0)
        if end <= first:
            return
        self._computed[request.id] = end
        if not self.writes_through:
            return
        keys, blocks = self._keys(request, end)[first:], request.block_table[first:end]
        tokens = request.tokens[first * self._config.block_size :]
        for tier in (self.host, self.disk):
            self._store(tier, keys, blocks, tokens, reason="computed", request=request.id)

    def finished(self, request: Request) -> None:
        """A finished request's blocks were used last, its first block after its last."""
        keys = self._keys(request, self._computed.pop(request.id, 0))
        del self._chains[request.id]
        for tier in (self.host, self.disk):
            used = [key for key in keys if key in tier.blocks]
            if used:
                tier.use(used)
                slots = [tier.blocks[key].slot for key in used]
                self._moved(tier.name, tier.name, "used", slots, slots, request=request.id)

    def evicted(self, node: Any, blocks: list[int], reason: v.EvictionReason) -> None:
        """Move the blocks of an evicted node down, unless they are there already."""
        keys = self._keys_to(node, len(blocks))
        if self.writes_through or reason == "cleared":
            return
        self._take_arrivals()
        upper = self.host if self.host.limit else self.disk
        stored = self._store(upper, keys, blocks, node.tokens, reason="evicted")
        self._pass(round(self.prices.fetch_us("host", stored * self._config.block_size)))

    def clear(self) -> None:
        """Drop every block."""
        self._take_arrivals(wait=True)
        for tier in (self.host, self.disk):
            self._drop(tier, list(tier.blocks), "cleared")

    # Keys

    def _stored(self, request: Request, first: int) -> list[bytes]:
        """Return the keys of a request's blocks from block `first` on that a tier has, up to a gap.

        A prompt that still has tokens to score is computed in full.
        """
        if request.params.prompt_logprobs is not None and request.unscored:
            return []
        keys = self._keys(request)[first:]
        return list(takewhile(lambda key: key in self.host.blocks or key in self.disk.blocks, keys))

    def _keys(self, request: Request, count: int | None = None) -> list[bytes]:
        """Return the keys of a request's blocks: `count`, or those that a hit can cover."""
        size = self._config.block_size
        if count is None:
            count = (len(request.tokens) - 1) // size
        chain = self._chains.setdefault(request.id, [])
        key = chain[-1] if chain else self._form()
        for start in range(len(chain) * size, count * size, size):
            extra_key = () if start else request.extra_key
            key = _key(key, request.tokens[start : start + size], extra_key)
            chain.append(key)
        return chain[:count]

    def _keys_to(self, node: Any, count: int) -> list[bytes]:
        """Return the keys of the last `count` blocks of the prefix that ends at a node of the cache.

        A node of the hash table stands for one block and never changes, so its key is kept.
        """
        size, hashed = self._config.block_size, self._config.prefix_cache == "hash"
        path: list[Any] = []
        while node.parent is not None and not (hashed and node.id in self._node_keys):
            path.append(node)
            node = node.parent
        key = self._node_keys.get(node.id, self._form()) if hashed else self._form()
        keys = [key]
        for below in reversed(path):
            for start in range(0, len(below.tokens), size):
                extra_key = () if start else below.extra_key  # only below the root
                key = _key(key, below.tokens[start : start + size], extra_key)
                keys.append(key)
            if hashed:
                self._node_keys[below.id] = key
        if hashed and path:
            del self._node_keys[path[0].id]
        elif hashed:
            del self._node_keys[node.id]
        return keys[-count:]

    def _form(self) -> bytes:
        """Return what stands before a prefix: blocks of another model have other keys."""
        form = repr((self._pages.kv_format(), self._config.block_size))
        return blake2b(form.encode(), digest_size=_KEY_BYTES).digest()

    # Prices

    def _both_prices(self, stored: list[bytes], first: int) -> tuple[list[float], list[float]]:
        """Return the prices of fetching and of computing each of these blocks."""
        size, now = self._config.block_size, self._clock.now()
        fetch: list[float] = []
        for key in stored:
            us = self.prices.fetch_us("host", size)
            if (coming := self._coming.get(key)) is not None:
                us += max(0, coming.ready_at - now)
                now = max(now, coming.ready_at)  # the ones after it come later
            elif key not in self.host.blocks:
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

    # Up

    def _load(self, keys: list[bytes], request: int) -> tuple[list[bytes], dict[str, list[int]]]:
        """Return the pages of blocks, up to the first that cannot be read.

        The dict has the positions of the blocks that came from each tier. A block that is read from
        disk is in host memory afterwards, too.
        """
        pages, places, size = list[bytes](), dict[str, list[int]](), self._config.block_size
        for index, key in enumerate(keys):
            place = "host"
            if key in self.host.blocks:
                page = self.host.blocks[key].page
            else:
                place, began = "disk", self._clock.now()
                coming = self._coming.pop(key, None)
                if coming is None:
                    coming = self._begin(key, request)
                self._pass(coming.ready_at - began)
                try:
                    page = coming.page.result()
                except BadBlock as error:
                    self._drop(self.disk, [key], "damaged", str(error))
                    break
                self.prices.paid("disk", size, self._clock.now() - began)
                self._raise(key, page, "fetched", request)
            self._pass(round(self.prices.fetch_us("host", size)))
            pages.append(page)
            places.setdefault(place, []).append(index)
        return pages, places

    def _begin(self, key: bytes, request: int) -> _Coming:
        """Begin to read a block from disk, after the ones before it."""
        us = round(self.prices.fetch_us("disk", self._config.block_size))
        self._disk_is_free_at = max(self._disk_is_free_at, self._clock.now()) + us
        if self._virtual is None:
            self._reader = self._reader or ThreadPoolExecutor(1, "underglass-disk")
            page = self._reader.submit(self.files.load, key)
        else:
            page = Future()
            try:
                page.set_result(self.files.load(key))
            except BadBlock as error:
                page.set_exception(error)
        return _Coming(request, page, self._disk_is_free_at)

    def _pass(self, us: int) -> None:
        """Let time pass on a virtual clock: that of a transfer for which the engine waits."""
        if self._virtual is not None:
            self._virtual.advance(max(0, us))

    def _take_arrivals(self, *, wait: bool = False) -> None:
        """Put what has been read from disk in the meantime into host memory."""
        now = self._clock.now()
        for key, coming in list(self._coming.items()):
            ready = coming.page.done() if self._virtual is None else coming.ready_at <= now
            if ready or wait:
                try:
                    self._raise(key, coming.page.result(), "prefetched", coming.request)
                except BadBlock as error:
                    self._drop(self.disk, [key], "damaged", str(error))
                del self._coming[key]  # this comes last, so that the block does not leave the disk

    def _raise(self, key: bytes, page: bytes, reason: v.MoveReason, request: int) -> None:
        """Copy a block from disk to host memory, if it is not there and there is room for it."""
        if key not in self.host.blocks and self._make_room(self.host, 1, [key]):
            block = self.disk.blocks[key]
            slot = self.host.put(key, block.text, page)
            self._moved("disk", "host", reason, [block.slot], [slot], request=request)

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
        for tier in (self.host, self.disk):
            if places.get(tier.name):
                here = [keys[index] for index in places[tier.name]]
                slots = [tier.blocks[key].slot for key in here]
                there = [blocks[index] for index in places[tier.name]]
                request.num_computed_tokens += len(there) * size
                self._moved(tier.name, "gpu", "cheaper", slots, there, request=request.id, t=t)
                t = {}  # the price is that of both tiers together
        self._cache.cache_computed(request)

    # Down

    def _store(
        self,
        tier: Tier,
        keys: list[bytes],
        blocks: list[int],
        tokens: Sequence[int],
        *,
        reason: v.MoveReason,
        request: int = NO_REQUEST,
    ) -> int:
        """Copy GPU blocks to a tier: the new ones, from the first on as far as there is room.

        `tokens` are those of the blocks. Returns the number of blocks that were copied.
        """
        size = self._config.block_size
        new = [index for index, key in enumerate(keys) if key not in tier.blocks]
        new = new[: self._make_room(tier, len(new), keys, whole=reason == "computed")]
        if not new:
            return 0
        numbers = [blocks[index] for index in new]
        data, page = self._pages.read_pages(numbers), self._pages.kv_format().page_bytes
        contents = [
            (
                keys[index],
                self._tokenizer.decode(list(tokens[index * size : (index + 1) * size])),
                data[at * page : (at + 1) * page],
            )
            for at, index in enumerate(new)
        ]
        return self._put("gpu", tier, numbers, contents, reason=reason, request=request)

    def _put(
        self,
        source: v.Tier,
        tier: Tier,
        numbers: list[int],
        contents: list[tuple[bytes, str, bytes]],
        *,
        reason: v.MoveReason,
        request: int = NO_REQUEST,
    ) -> int:
        """Add blocks to a tier with room for them: `contents` has key, text and page of each.

        Returns how many were added: a disk may fail.
        """
        error, slots = "", list[int]()
        for key, text, page in contents:
            if tier is self.disk:
                try:
                    self.files.save(key, page)
                    self._failures = 0
                except OSError as failed:
                    self._failures += 1
                    error = f"the disk cannot write it: {failed.strerror or failed}"
                    break
            slots.append(tier.put(key, text, page if tier is self.host else b""))
        stored = len(slots)
        if slots:
            texts = [text for _, text, _ in contents[:stored]] if source == "gpu" else []
            self._moved(
                source, tier.name, reason, numbers[:stored], slots, request=request, texts=texts
            )
        if error:
            if self._failures == MAX_FAILURES:
                error += f"; after {MAX_FAILURES} failures in a row, nothing more is written to it"
            self._moved(source, "", "failed", numbers[stored:], [], request=request, detail=error)
        return stored

    def _make_room(
        self, tier: Tier, count: int, keep: Iterable[bytes], *, whole: bool = False
    ) -> int:
        """Let the least recently used blocks leave a tier; return for how many there is room.

        Blocks of `keep`, and those that are being fetched, stay. If that leaves no room for all and
        they are wanted as a `whole`, none leaves.
        """
        if not count or not tier.limit or (tier is self.disk and self._failures >= MAX_FAILURES):
            return 0
        kept = {*keep, *self._fetching, *self._coming}
        room = tier.num_free + sum(key not in kept for key in tier.blocks)
        if whole and room < count:
            return 0
        count = min(count, room)
        leaving = tier.leaving(count - tier.num_free, kept)
        if tier is self.host and self.disk.limit and not self.writes_through:
            self._move_to_disk([key for key in leaving if key not in self.disk.blocks])
        self._drop(tier, [key for key in leaving if key in tier.blocks], "room")
        return count

    def _move_to_disk(self, keys: list[bytes]) -> None:
        """Move blocks from host memory to disk, as far as the disk takes them."""
        keys = keys[: self._make_room(self.disk, len(keys), keys)]
        if keys:
            removed = [self.host.remove(key) for key in keys]
            contents = [(key, one.text, one.page) for key, one in zip(keys, removed, strict=True)]
            numbers = [one.slot for one in removed]
            self._put("host", self.disk, numbers, contents, reason="room")

    def _drop(self, tier: Tier, keys: list[bytes], reason: v.MoveReason, detail: str = "") -> None:
        """Remove blocks from a tier for good."""
        if keys:
            slots = [tier.remove(key).slot for key in keys]
            if tier is self.disk:
                for key in keys:
                    self.files.delete(key)
            self._moved(tier.name, "", reason, slots, [], detail=detail)

    def _moved(
        self,
        source: v.Tier,
        target: v.Tier,
        reason: v.MoveReason,
        blocks: list[int],
        slots: list[int],
        *,
        request: int = NO_REQUEST,
        texts: Sequence[str] = (),
        detail: str = "",
        t: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Emit a move; see `BlocksMoved`."""
        at = {"at": self._clock.now()}
        self._emit(
            v.BlocksMoved(
                source, target, reason, blocks, slots, request, list(texts), detail, at | dict(t)
            )
        )


def _rounded(us: float) -> int | None:
    """Return whole microseconds, or None if nothing has been measured yet."""
    return None if us == float("inf") else round(us)


def _key(before: bytes, tokens: Sequence[int], extra_key: tuple[str, ...]) -> bytes:
    """Return the key of the block with these tokens after the block with the key `before`."""
    extra = _RUN + repr(extra_key).encode() if extra_key else b""
    values = before + array("q", tokens).tobytes() + extra
    return blake2b(values, digest_size=_KEY_BYTES).digest()


def attached(engine: Any) -> Tiers:
    """Return the tiers of an engine, which from now on tells them what happens.

    Raises ConfigError if its settings or its model exclude tiers.
    """
    config: EngineConfig = engine.config
    name = "host_kv_tokens" if config.host_kv_tokens else "disk_kv_tokens"
    if engine.cache.pages is not None:
        raise ConfigError(
            f"{name} cannot be used with a model whose sliding layers free KV: a block of the prefix "
            "cache may lack a part of its KV"
        )
    models = engine.runner, engine.clock
    virtual = isinstance(models[1], VirtualTime) and hasattr(models[0], "rows_ms")
    prices = ModelledPrices(engine.runner) if virtual else MeasuredPrices(engine)
    tiers = Tiers(
        config, engine.cache, engine.kv_transfer.pages, engine.tokenizer, engine.clock, prices,
        engine.loop.emit,
    )  # fmt: skip
    engine.loop.tiers = engine.scheduler.tiers = engine.cache.tiers = tiers
    return tiers
