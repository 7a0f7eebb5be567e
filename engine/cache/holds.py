"""Holds: prefixes that stay in the prefix cache although no request reads them just now.

Somebody who will come back, such as a client of LMTP with a buffer, asks the engine to hold what it
has computed. A hold is to the cache what a request is: it has a block table and locks its path, so no
count of references or locks needs a second rule. It never computes, and takes no place in the batch.

Blocks that a hold has locked cannot be evicted, so holds are bounded three times. Of a prefix that
exceeds a bound, the beginning is held:

- All holds together have at most `HELD_SHARE` of the blocks.
- A request that may need more than holds leave is served all the same: the oldest holds are let go
  when it is submitted, and nothing is held that a live request may need. Alone in memory every request
  fits, as it does without holds.
- With preemption off, a hold locks no block that running requests have reserved: it leaves as many
  free and evictable blocks as they may still allocate. An admission in turn counts only blocks that
  no hold has locked.

Neither vLLM nor SGLang lets a client lock a prefix; SGLang's `inc_lock_ref`
(`python/sglang/srt/mem_cache/radix_cache.py`) is what its requests use.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.cache.kv_cache_manager import KVCacheManager
from engine.config import EngineConfig
from engine.events.vocabulary import Event, HoldEnd, PrefixHeld, PrefixReleased
from engine.scheduling.admission import most_blocks
from engine.scheduling.request import Request

HELD_SHARE = 0.25


@dataclass(slots=True, eq=False)
class Hold:
    """A held prefix: its block table, its lock, and how many tokens that are."""

    id: int
    label: str = ""
    block_table: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    last_node: int = 0


class Holds:
    """The holds of one engine; between steps only.

    requests         the live ones
    reserved_blocks  counts the blocks that running requests may still allocate and must get
    """

    def __init__(
        self,
        cache: KVCacheManager,
        config: EngineConfig,
        requests: Mapping[int, Request],
        reserved_blocks: Callable[[], int],
        emit: Callable[[Event], None],
    ) -> None:
        self.live: dict[int, Hold] = {}  # the oldest first
        self._cache = cache
        self._config = config
        self._requests = requests
        self._reserved_blocks = reserved_blocks
        self._emit = emit
        self._next_id = 1

    def hold(self, tokens: Sequence[int], *, label: str = "") -> Hold:
        """Hold as much of a prefix as the cache has and the bounds allow.

        The table of what is returned is empty where that is nothing; then there is nothing to let go.
        """
        found = self._cache.tree.match(tokens, limit=len(tokens) // self._config.block_size)
        held, left, allowed = self._held(), self._left(), 0
        for block in found.blocks:
            left -= block not in held
            if left < 0:
                break
            allowed += 1
        # Blocks that requests or holds have locked already are no loss, and they come first.
        locked, spare = self._cache.tree.locked_part(found), self._cache.num_available_blocks
        allowed = min(allowed, locked + spare - self._reserved_blocks())
        if allowed < 1:
            return Hold(0)
        hold = Hold(self._next_id, label)
        self._next_id += 1
        self._cache.attach_prefix(hold, self._cache.tree.match(tokens, limit=allowed))
        self.live[hold.id] = hold
        self._emit(PrefixHeld(hold.id, hold.last_node, list(hold.block_table), label))
        return hold

    def let_go(self, hold_id: int) -> None:
        """End a hold. Harmless for one that has ended."""
        self._end(hold_id, "released")

    def make_way(self, blocks: int) -> None:
        """Let go of the oldest holds until `blocks` blocks are not held by any."""
        while self.live and self._config.num_blocks - len(self._held()) < blocks:
            self._end(next(iter(self.live)), "room")

    def _end(self, hold_id: int, reason: HoldEnd) -> None:
        hold = self.live.pop(hold_id, None)
        if hold is not None:
            self._cache.free(hold)
            self._emit(PrefixReleased(hold.id, reason))

    def _held(self) -> set[int]:
        return {block for hold in self.live.values() for block in hold.block_table}

    def _left(self) -> int:
        """Blocks that may be held beside those that are."""
        config = self._config
        needs = (
            most_blocks(request.prompt_length, request.params, config)
            for request in self._requests.values()
        )
        spare = config.num_blocks - max(needs, default=0)
        return min(spare, int(config.num_blocks * HELD_SHARE)) - len(self._held())
