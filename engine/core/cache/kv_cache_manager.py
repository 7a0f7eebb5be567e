"""The KV cache manager: block tables, on top of a block pool and a prefix cache.

Each method completes its changes to pool, cache and request before it emits its event, so the log
never shows an intermediate state. One rule covers all references: a block's count is the number of
block tables that contain it, plus one while the prefix cache holds it (`prefix_cache.py`).

Source: vLLM's `vllm/v1/core/kv_cache_manager.py`.

Differs from vLLM, which runs samples as separate requests that share full blocks only. Here the
samples of one prompt also share its partly filled block until the first write.
"""

from collections.abc import Callable

from engine.core.cache.block_pool import BlockPool
from engine.core.cache.prefix_cache import (
    BlockOwner,
    PrefixCache,
    PrefixLookup,
    PrefixMatch,
    WindowPages,
)
from engine.core.log.vocabulary import BlockCopied, BlocksAllocated, BlocksTrimmed, Event
from engine.core.request import Request


class KVCacheManager:
    """The blocks of an engine.

    pages   the window pages of a model with sliding layers; None if no layer slides, or if memory has
            room for all layers of every block
    lookup  finds the cached prefixes that a request can use
    """

    def __init__(
        self,
        pool: BlockPool,
        prefix_cache: PrefixCache,
        emit: Callable[[Event], None],
        pages: WindowPages | None = None,
    ) -> None:
        self.pool = pool
        self.prefix_cache = prefix_cache
        self.pages = pages
        self.lookup: PrefixLookup = prefix_cache.lookup
        if pages is not None:
            self.lookup = pages.limited(prefix_cache.lookup)
        self.block_size = self.lookup.block_size
        self._emit = emit

    # Counting

    @property
    def num_available_blocks(self) -> int:
        """The number of blocks that can be allocated: free ones and evictable ones."""
        return len(self.pool.free) + self.prefix_cache.num_evictable_blocks

    def num_available_blocks_beside(self, match: PrefixMatch) -> int:
        """Count the blocks that a request can allocate once it has attached `match`."""
        return self.num_available_blocks - sum(map(self.is_evictable, match.blocks))

    def is_evictable(self, cached_block: int) -> bool:
        """Return whether only the prefix cache holds this block."""
        return self.pool.refs[cached_block] == 1

    def match_prefix(self, request: Request) -> PrefixMatch:
        """Return the cached prefix of a waiting request. Changes nothing.

        At least one token is left to compute, because its logits are needed. A prompt that still
        has tokens to score is computed in full, because the cache keeps no log-probabilities.
        """
        reads = self.lookup.enabled
        if request.params.prompt_logprobs is not None and request.unscored:
            reads = False
        limit = (len(request.tokens) - 1) // self.block_size if reads else 0
        return self.lookup.match(request.tokens, limit)

    def blocks_needed(self, request: Request, count: int) -> int:
        """Count the blocks to allocate so that the next `count` tokens can be written."""
        total = -(-(request.num_scheduled_tokens + count) // self.block_size)
        return total - len(request.block_table) + self.writes_shared_block(request)

    def writes_shared_block(self, request: Request) -> bool:
        """Return whether the next token goes into a shared block, which must be copied first.

        A block that became findable earlier in this step needs no copy, because the requests that
        found it read only the tokens that this request writes.
        """
        index, filled = divmod(request.num_scheduled_tokens, self.block_size)
        if not filled:
            return False
        block = request.block_table[index]
        return self.pool.refs[block] > 1 and not self.prefix_cache.is_scheduled(block)

    # Allocating

    def attach(self, owner: BlockOwner, match: PrefixMatch) -> None:
        """Give an owner the blocks of its match, so that they stay. The caller emits the event."""
        self.prefix_cache.attach(owner, match)
        if self.pages is not None:
            self.pages.touch(owner.block_table)

    def allocate_slots(
        self, request: Request, count: int, drafts: int = 0
    ) -> list[tuple[int, int]] | None:
        """Make slots for the next `count` tokens writable: evict, copy on write, allocate.

        The last `drafts` of the tokens may be rejected. If the request writes to a shared block,
        returns the copy to make before the forward pass, as (source, destination). Returns None, and
        changes nothing, if too few blocks are available.
        """
        copies: list[tuple[int, int]] = []
        if need := self.blocks_needed(request, count):
            if need > self.num_available_blocks:
                return None
            while len(self.pool.free) < need:
                self.prefix_cache.evict(request)
            if self.pages is not None:
                self.pages.make_room(need, request.id)
            if self.writes_shared_block(request):
                source = request.block_table[-1]
                block = request.block_table[-1] = self.pool.writable(source)
                if self.pages is not None:
                    self.pages.assign([block])
                self._emit(BlockCopied(request.id, len(request.block_table) - 1, source, block))
                copies.append((source, block))
                need -= 1
            if need:
                blocks = self.pool.allocate(need)
                request.block_table += blocks
                if self.pages is not None:
                    self.pages.assign(blocks)
                self._emit(BlocksAllocated(request.id, blocks))
        # A placeholder's token id is not known yet, so its block cannot have a key.
        end = min(request.num_scheduled_tokens + count - drafts, len(request.tokens))
        self.prefix_cache.cache_scheduled(request, end)
        return copies

    def share_with(self, parent: Request, sample: Request) -> None:
        """Let a forked sample share all blocks of its parent."""
        sample.num_computed_tokens = parent.num_computed_tokens
        self.prefix_cache.share(parent, sample)

    # Releasing

    def free(self, owner: BlockOwner) -> None:
        """Release all blocks of an owner. Safe to call twice."""
        self.prefix_cache.release(owner)
        owner.num_computed_tokens = 0

    def trim(self, request: Request) -> None:
        """Release the blocks past the scheduled tokens, which rejected drafts left unused."""
        keep = -(-request.num_scheduled_tokens // self.block_size)
        if keep < len(request.block_table):
            self.prefix_cache.release(request, keep)
            self._emit(BlocksTrimmed(request.id, keep))
