"""Holds: prefixes that stay in the prefix cache although no request currently uses them.

A client that will come back, such as an LMTP client with a buffer, asks the engine to hold the KV
of its tokens. To the cache, a hold is like a request: it has a block table and locks its path, so
reference counts and locks work as usual. A hold computes nothing and takes no seat in the batch.

Held blocks cannot be evicted, so holds have three bounds. If a prefix exceeds a bound, only its
beginning is held:

- All holds together use at most `HELD_SHARE` of the blocks.
- Every request must still fit into memory. Submitting a request releases the oldest holds until it
  would fit, and no new hold takes blocks that a live request may need.
- With preemption off, a hold locks no block that running requests have reserved: it leaves as many
  free and evictable blocks as they may still allocate. In turn, an admission does not count blocks
  that a hold has locked.

With sliding layers, a hold keeps the blocks but not their window pages. If a page is evicted, the
next request finds less of the prefix.

Differs from vLLM and SGLang, where a client cannot lock a prefix. SGLang's `inc_lock_ref`
(`python/sglang/srt/mem_cache/radix_cache.py`) is for requests only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.core.cache.kv_cache_manager import KVCacheManager
from engine.core.config import EngineConfig
from engine.core.log.vocabulary import Event, HoldEnd, PrefixHeld, PrefixReleased
from engine.core.request import Request
from engine.core.scheduling.admission import required_blocks

HELD_SHARE = 0.25


@dataclass(slots=True, eq=False)
class Hold:
    """A held prefix: its block table, its lock, and its number of tokens."""

    id: int
    label: str = ""
    block_table: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    last_node: int = 0


@dataclass(slots=True, eq=False)
class Holds:
    """The holds of one engine. Call its methods between steps only.

    requests         live requests by id
    reserved_blocks  see `Scheduler.reserved_blocks`
    live             holds by id, oldest first
    """

    _cache: KVCacheManager
    _config: EngineConfig
    _requests: Mapping[int, Request]
    _reserved_blocks: Callable[[], int]
    _emit: Callable[[Event], None]
    live: dict[int, Hold] = field(default_factory=dict)
    _next_id: int = 1

    def hold(self, tokens: Sequence[int], *, label: str = "") -> Hold:
        """Hold as much of a prefix as is cached and the bounds allow.

        If nothing can be held, the returned hold has an empty block table and need not be released.
        """
        lookup = self._cache.lookup
        match = lookup.match(tokens, limit=len(tokens) // self._config.block_size)
        held, holdable, allowed = self._held_blocks(), self._num_holdable_blocks(), 0
        available = self._cache.num_available_blocks - self._reserved_blocks()
        for block in match.blocks:
            holdable -= block not in held
            available -= self._cache.is_evictable(block)
            if holdable < 0 or available < 0:
                break
            allowed += 1
        return self.pin(tokens, allowed, label=label) if allowed else Hold(0)

    def pin(self, tokens: Sequence[int], blocks: int, *, label: str) -> Hold:
        """Hold the first `blocks` blocks of a cached prefix, without checking the bounds.

        The caller releases the hold before the next step.
        """
        lookup = self._cache.tree
        hold = Hold(self._next_id, label)
        self._next_id += 1
        self._cache.attach(hold, lookup.match(tokens, limit=blocks))
        self.live[hold.id] = hold
        self._emit(PrefixHeld(hold.id, hold.last_node, list(hold.block_table), label))
        return hold

    def release(self, hold_id: int) -> None:
        """End a hold. Does nothing if it has already ended."""
        self._end(hold_id, "released")

    def make_room(self, blocks: int) -> None:
        """Release the oldest holds until at least `blocks` blocks are not held."""
        while self.live and self._config.num_blocks - len(self._held_blocks()) < blocks:
            self._end(next(iter(self.live)), "room")

    def release_blocks(self, lost: set[int]) -> None:
        """Release the holds of blocks that a failed forward pass has not written."""
        for hold in list(self.live.values()):
            if not lost.isdisjoint(hold.block_table):
                self._end(hold.id, "room")

    def _end(self, hold_id: int, reason: HoldEnd) -> None:
        hold = self.live.pop(hold_id, None)
        if hold is not None:
            self._cache.free(hold)
            self._emit(PrefixReleased(hold.id, reason))

    def _held_blocks(self) -> set[int]:
        return {block for hold in self.live.values() for block in hold.block_table}

    def _num_holdable_blocks(self) -> int:
        """Count the blocks that may be held in addition to those already held."""
        config = self._config
        needs = (
            required_blocks(request.prompt_length, request.params, config)
            for request in self._requests.values()
        )
        spare = config.num_blocks - max(needs, default=0)
        return min(spare, int(config.num_blocks * HELD_SHARE)) - len(self._held_blocks())
