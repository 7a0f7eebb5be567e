"""The tiers below the GPU: which blocks are in them, in which order they leave, and what the log says.

A tier is a set of blocks under a limit, each under its key. The least recently used block leaves first.
Blocks are used when they come and when a request that has them ends.

Source: `LRUCachePolicy` in vLLM's `vllm/v1/kv_offload/cpu/policies/lru.py`.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from engine.core.cache.prefix_cache import NO_REQUEST
from engine.core.log import vocabulary as v
from engine.core.log.recorder import Clock
from engine.extensions.tier_disk import Disk


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

    def slots_of(self, keys: Iterable[bytes]) -> list[int]:
        """Return the numbers of those of the blocks that are here."""
        return [self.blocks[key].slot for key in keys if key in self.blocks]

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


@dataclass(slots=True)
class Places:
    """Both tiers of an engine.

    coming    blocks on their way from disk to host memory, which stay
    fetching  blocks on their way to the GPU, which stay, too
    """

    host: Tier
    disk: Tier
    _clock: Clock
    _emit: Callable[[v.Event], None]
    io: Disk
    coming: dict[bytes, Any] = field(default_factory=dict)
    fetching: Sequence[bytes] = ()

    @property
    def tiers(self) -> tuple[Tier, Tier]:
        """Host memory, then disk."""
        return self.host, self.disk

    def have(self, key: bytes) -> bool:
        """Return whether a block can be had from a tier."""
        return key in self.host.blocks or (key in self.disk.blocks and not self.io.refusal)

    def drop(self, tier: Tier, keys: list[bytes], reason: v.MoveReason, detail: str = "") -> None:
        """Remove blocks from a tier for good, as far as they are in it."""
        if keys := [key for key in keys if key in tier.blocks]:
            slots = [tier.remove(key).slot for key in keys]
            if tier is self.disk:
                self.io.delete(keys)
            self.moved(tier.name, "", reason, slots, [], detail=detail)

    def stay(
        self,
        tier: Tier,
        keys: list[bytes],
        reason: v.MoveReason,
        request: int,
        *,
        detail: str = "",
        t: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Say why blocks stay where they are, if there are any."""
        if slots := tier.slots_of(keys):
            place = tier.name
            self.moved(place, place, reason, slots, slots, request=request, detail=detail, t=t)

    def moved(
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
