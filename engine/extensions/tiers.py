"""Memory below the GPU: blocks that leave the prefix cache go to host memory, then to disk, and return.

    tier_keys.py     what a block is called: the hash of its prefix
    tier_places.py   which blocks are in host memory and on disk, and in which order they leave
    tier_down.py     how they come there: write-back or write-through
    tier_up.py       how they come back: prefetch and fetch
    tier_prices.py   whether fetching costs less than computing
    tier_disk.py     a disk that is slow, fails or hangs holds nothing up
    tier_files.py    the files of the disk tier

This file has what the engine calls. `KVCacheManager.tiers` is the one place that holds the tiers.

Nothing here can make an answer wrong or lose it. A block that the disk cannot read, whose file was cut
off or altered, or that was dropped, is computed again, and the log has the reason.

With "write_back" the engine waits until an evicted block is in host memory; all other copies downwards
overlap with its forward passes.

Source: vLLM's `vllm/v1/kv_offload/cpu/manager.py`; SGLang's HiCache,
`python/sglang/srt/mem_cache/hiradix_cache.py`.

Differs from vLLM and SGLang, whose engines compute for other requests during a fetch, and which fetch
without comparing prices (see `tier_prices.py`).
"""

from collections.abc import Callable, Sequence
from typing import Any

from engine.core.config import ConfigError, EngineConfig
from engine.core.log import vocabulary as v
from engine.core.log.recorder import VirtualTime
from engine.core.request import Request
from engine.extensions.tier_disk import Disk
from engine.extensions.tier_down import Down
from engine.extensions.tier_keys import Keys
from engine.extensions.tier_places import Places, Tier
from engine.extensions.tier_prices import MeasuredPrices, ModelledPrices, Prices
from engine.extensions.tier_up import Up


class Tiers:
    """The tiers of one engine."""

    def __init__(self, engine: Any, prices: Prices) -> None:
        config: EngineConfig = engine.config
        self._size, self._prices = config.block_size, prices
        self._pages = engine.kv_transfer.pages
        self._keys = Keys(self._size)
        self.host = Tier("host", config.host_kv_tokens // self._size)
        self.disk = Tier("disk", config.disk_kv_tokens // self._size)
        self.places = Places(
            self.host, self.disk, engine.clock, engine.loop.emit, Disk(engine.clock)
        )
        self.down = Down(config, self.places, self._pages, engine.tokenizer)
        self.up = Up(
            config, engine.cache, self._pages, engine.clock, self._keys, self.places, self.down, prices
        )  # fmt: skip
        self._computed: dict[int, int] = {}  # by request: blocks that it had
        if self.disk.limit and self._pages.kv_format().page_bytes:
            self.places.io.use_own_folder()

    @property
    def choose(self) -> Callable[[Sequence[float], Sequence[float]], int]:
        """How many blocks to fetch: `fetch_or_compute`, or yours."""
        return self.up.choose

    @choose.setter
    def choose(self, choose: Callable[[Sequence[float], Sequence[float]], int]) -> None:
        self.up.choose = choose

    @property
    def slots(self) -> dict[str, list[int]]:
        """The used places of each tier, the least recently used one first."""
        return {tier.name: tier.slots_of(tier.blocks) for tier in self.places.tiers}

    # What the engine calls

    def arrived(self, request: Request) -> None:
        """Begin to read from disk what a waiting request will need, if that pays."""
        self._look()
        self.up.prefetch(request)

    def fetch(self, request: Request) -> None:
        """Fetch the blocks that an admitted request would otherwise compute, as far as that pays."""
        self._keys.admitted(request)
        self._look()
        self.up.fetch(request)

    def computed(self, request: Request) -> None:
        """Note the blocks that a request has just computed; with "write_through", copy the new ones."""
        end = request.num_computed_tokens // self._size
        self._keys.computed(request, end)
        first = self._computed.get(request.id, 0)
        if end <= first:
            return
        self._computed[request.id] = end
        if not self.down.writes_through:
            return
        keys, blocks = self._keys.of(request, end)[first:], request.block_table[first:end]
        tokens = request.tokens[first * self._size :]
        for tier in self.places.tiers:
            self.down.store(tier, keys, blocks, tokens, reason="computed", request=request.id)

    def finished(self, request: Request) -> None:
        """A finished request's blocks were used last, its first block after its last."""
        keys = self._keys.of(request, self._computed.pop(request.id, 0))
        self._keys.forget(request)
        for tier in self.places.tiers:
            used = [key for key in keys if key in tier.blocks]
            tier.use(used)
            self.places.stay(tier, used, "used", request.id)

    def adopted(self, tokens: Sequence[int], blocks: list[int]) -> None:
        """Note blocks that another engine has computed: the last ones of these tokens."""
        self._keys.adopted(tokens, blocks)

    def evicted(self, node: Any, blocks: list[int], reason: v.EvictionReason) -> None:
        """Move the blocks of an evicted node down, unless they are there already."""
        if self.down.writes_through or reason == "cleared":
            return
        self._look()
        upper = self.host if self.host.limit else self.disk
        keys = self._keys.of_blocks(blocks)
        stored = self.down.store(upper, keys, blocks, node.tokens, reason="evicted")
        self.up.pass_time(self._prices.fetch_us("host", stored * self._size))

    def clear(self) -> None:
        """Drop every block."""
        self._look()
        self.places.coming.clear()
        for tier in self.places.tiers:
            self.places.drop(tier, list(tier.blocks), "cleared")

    def _look(self) -> None:
        """Look what the disk has done in the meantime."""
        self.down.take_failures()
        self.up.take_arrivals()


def attached(engine: Any) -> Tiers:
    """Return the tiers of an engine. Raises ConfigError if its settings or its model exclude them."""
    config: EngineConfig = engine.config
    name = "host_kv_tokens" if config.host_kv_tokens else "disk_kv_tokens"
    if engine.cache.pages is not None:
        raise ConfigError(
            f"{name} cannot be used with a model whose sliding layers free KV: a block of the prefix "
            "cache may lack a part of its KV"
        )
    virtual = isinstance(engine.clock, VirtualTime) and hasattr(engine.runner, "rows_ms")
    return Tiers(engine, ModelledPrices(engine.runner) if virtual else MeasuredPrices(engine))
