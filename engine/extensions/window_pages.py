"""Window pages: sliding layers keep the KV of a block only while a window needs it.

In a layer with a sliding window of W tokens, a token reads the W - 1 tokens before it. Tokens further
back are never read again, so sliding layers need not store their KV. Sliding layers have a memory of
their own, which is divided into window pages of one block each and is smaller than the memory of the
other layers:

    block 0  block 1  block 2  block 3  block 4     full layers: KV of every block in use
    -        -        page 5   page 0   page 3      sliding layers: only blocks in a window have a page

Block tables, prefix cache and log work as for any model, because only this module and the runner know
which page a block has. A block gets its page when it is allocated. A page is *idle* once no running
request's window contains its block. Idle pages stay, because a later request may find the block in the
prefix cache; when pages run short, the least recently used idle ones are evicted. A block that becomes
free loses its page at once.

A prefix can be used only if the blocks in the window before its end have their pages. A match is cut to
the longest usable prefix.

The memory has pages for the window of each seat and for the tokens of a step (`num_window_pages`). So
pages never run out, and no request is rejected, delayed or preempted for lack of a page.

Source: SGLang's `SWATokenToKVPoolAllocator` (`python/sglang/srt/mem_cache/allocator/swa.py`), which
maps slots of the full memory to slots of the window memory, and its `SWARadixCache`
(`python/sglang/srt/mem_cache/swa_radix_cache.py`), whose tombstones are our blocks without a page.

Differs from SGLang, where a ratio sets the size of the window memory (`swa_full_tokens_ratio`), and a
request waits or is retracted if either memory is short. In SGLang, a node has either all of its window
slots or none, and the slots of a running request are freed behind its window before they enter the
tree.

Differs from vLLM, where each kind of layer has block tables of its own over one shared memory
(`kv_cache_coordinator.py` in `vllm/v1/core/`), and `SlidingWindowManager`
(`single_type_kv_cache_manager.py`) puts a null block in place of a block behind the window. In vLLM,
layers with different windows are different kinds; here all sliding layers share the widest window.
With the same blocks cached, both find the same prefix; `docs/measured.md` compares the decisions.
`grouped_cache.py` is vLLM's memory, for simulations.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from engine.core.cache.block_pool import BlockPool
from engine.core.cache.prefix_cache import NO_REQUEST, PrefixLookup, PrefixMatch
from engine.core.config import EngineConfig
from engine.core.log.vocabulary import Event, WindowPagesEvicted
from engine.core.request import Request
from engine.core.runner import Runner


def num_window_pages(config: EngineConfig, window: int | None) -> int | None:
    """Return how many window pages an engine needs for a model with this window.

    Returns None if one page per block would take no more memory, because then no page ever has to be
    freed. A window and a chunk may begin and end inside a block, so each seat gets two blocks more
    than its window fills.
    """
    if window is None:
        return None
    seats = config.max_batch_size * (config.blocks_for(window) + 2)
    pages = seats + config.blocks_for(config.token_budget)
    return pages if pages < config.num_blocks else None


def reserve(
    runner: Runner, config: EngineConfig, pool: BlockPool, emit: Callable[[Event], None]
) -> "WindowPages | None":
    """Let a runner allocate its KV memory. Return its window pages, or None if it has none."""
    pages = num_window_pages(config, runner.window)
    if pages is None or runner.window is None:
        runner.reserve(config.num_blocks, config.block_size)
        return None
    runner.reserve(config.num_blocks, config.block_size, pages)
    return WindowPages(runner, pages, config.block_size, pool, emit)


class WindowPages:
    """The window pages of an engine's blocks.

    num_pages  pages in memory
    running    the running requests, in whose windows no page is idle
    unsent     changes that the runner does not know yet: (block, its page or -1 for none)
    """

    def __init__(
        self,
        runner: Runner,
        num_pages: int,
        block_size: int,
        pool: BlockPool,
        emit: Callable[[Event], None],
    ) -> None:
        assert runner.window is not None
        self.window = runner.window
        self._runner = runner
        self.num_pages = num_pages
        self.running: Sequence[Request] = ()
        self.unsent: list[tuple[int, int]] = []
        self._block_size = block_size
        self._pool = pool
        self._emit = emit
        self._free = list(range(num_pages - 1, -1, -1))
        # By block, the least recently used first. When a block becomes free, its entry stays until
        # its page is reclaimed.
        self._page_of: OrderedDict[int, int] = OrderedDict()
        # Blocks with idle pages, in the order of eviction. They are searched for once per step, so
        # that an allocation need not look at every window. A block that is used again is removed.
        self._idle: OrderedDict[int, None] = OrderedDict()
        # This many blocks at the bottom of the pool's free stack are known to have no page.
        self._num_searched = 0

    def has_page(self, block: int) -> bool:
        """Return whether a block is in use and has a window page."""
        return block in self._page_of and self._pool.refs[block] > 0

    @property
    def blocks(self) -> list[int]:
        """The blocks that have a window page, in ascending order."""
        return sorted(block for block in self._page_of if self._pool.refs[block])

    def limited(self, lookup: PrefixLookup) -> "WindowLookup":
        """Return a lookup that finds only prefixes whose window pages are present."""
        return WindowLookup(lookup, self)

    def first_needed(self, num_tokens: int) -> int:
        """Return the index of the first block that the token after `num_tokens` tokens reads."""
        return max(num_tokens - self.window + 1, 0) // self._block_size

    def usable(self, blocks: Iterable[int]) -> int:
        """Return how many leading blocks of a cached prefix a request can use.

        A prefix is usable if every block in the window before its end has its page.
        """
        longest = in_a_row = 0
        for count, block in enumerate(blocks, start=1):
            in_a_row = in_a_row + 1 if self.has_page(block) else 0
            if in_a_row >= count - self.first_needed(count * self._block_size):
                longest = count
        return longest

    # Giving pages to blocks

    def make_room(self, count: int, needed_by: int = NO_REQUEST) -> None:
        """Evict idle pages, the least recently used first, until `count` pages are free."""
        if len(self._free) < count:
            self._reclaim()
        evicted: list[int] = []
        while len(self._free) < count:
            if not self._idle:
                self._find_idle()
            block, _ = self._idle.popitem(last=False)
            self._free.append(self._page_of.pop(block))
            if self._pool.refs[block]:
                evicted.append(block)
        if evicted:
            self.unsent += [(block, -1) for block in evicted]
            self._emit(WindowPagesEvicted(evicted, needed_by))

    def _reclaim(self) -> None:
        """Reclaim the pages of the blocks that have become free since the last call.

        These blocks are at the top of the pool's free stack. A custom pool that is not a stack may
        hide some of them; their pages are then found by `_find_idle`.
        """
        for block in self._pool.free[self._num_searched :]:
            self._give_back(block)
        self._num_searched = len(self._pool.free)

    def _find_idle(self) -> None:
        needed = self._needed()
        self._idle = OrderedDict.fromkeys(block for block in self._page_of if block not in needed)
        assert self._idle, "there is a page for every window"

    def assign(self, blocks: Iterable[int]) -> None:
        """Give each newly allocated block a page. The caller makes room first and emits the event."""
        self._num_searched = min(self._num_searched, len(self._pool.free))
        for block in blocks:
            page = self._take(block)
            if page is None:
                page = self._free.pop()
                self.unsent.append((block, page))
            self._page_of[block] = page

    def _take(self, block: int) -> int | None:
        """Remove a block's page and return it, or return None if the block has none."""
        self._idle.pop(block, None)
        return self._page_of.pop(block, None)

    def _give_back(self, block: int) -> None:
        if (page := self._take(block)) is not None:
            self._free.append(page)

    def assign_adopted(self, blocks: Sequence[int], count: int) -> None:
        """Give the last `count` of newly allocated blocks a page, and none to the others."""
        without = blocks[: len(blocks) - count]
        for block in without:
            self._give_back(block)
        self.unsent += [(block, -1) for block in without]
        self.assign(blocks[len(without) :])

    def move(self, own: Iterable[int], cached: Iterable[int]) -> None:
        """Move the pages of a request's own blocks to equal cached blocks that have none.

        The request is about to use the cached blocks in place of its own.
        """
        for source, block in zip(own, cached, strict=True):
            self._idle.pop(block, None)
            if self.has_page(source) and not self.has_page(block):
                page = self._take(source)
                assert page is not None
                self._page_of[block] = page
                self.unsent.append((block, page))

    def touch(self, blocks: Sequence[int]) -> None:
        """Mark the pages in the window of a request or hold that uses these blocks as just used."""
        for block in blocks[self.first_needed(len(blocks) * self._block_size) :]:
            if block in self._page_of:
                self._idle.pop(block, None)
                self._page_of.move_to_end(block)

    @property
    def num_available(self) -> int:
        """The number of pages that are free or idle."""
        return self.num_pages - len(self._needed())

    def send(self) -> None:
        """Send the unsent changes to the runner. Do not call this while a forward pass runs."""
        self._runner.map_window_pages(self.take_unsent())

    def take_unsent(self) -> list[tuple[int, int]]:
        """Return the changes that the runner does not know yet, in order. Called once per step."""
        self._idle.clear()  # the windows move on in the next step
        unsent, self.unsent = self.unsent, []
        return unsent

    def _needed(self) -> set[int]:
        """Return the blocks that the next tokens of running requests read."""
        return {
            block
            for request in self.running
            for block in request.block_table[self.first_needed(request.num_scheduled_tokens) :]
        }

    def check_integrity(self) -> None:
        """Raise AssertionError unless each page is free or belongs to one block."""
        pages = [*self._free, *self._page_of.values()]
        assert sorted(pages) == list(range(self.num_pages)), "a window page is lost or used twice"
        assert self._idle.keys() <= self._page_of.keys(), "an idle block has no page"
        assert self._idle.keys().isdisjoint(self._needed()), "a block in a window counts as idle"
        lacking = [block for block in self._needed() if not self.has_page(block)]
        assert not lacking, f"blocks {lacking} are in a window but have no page"


class WindowLookup:
    """The lookup of a prefix cache, limited to the prefixes whose window pages are present."""

    def __init__(self, lookup: PrefixLookup, pages: WindowPages) -> None:
        self._lookup = lookup
        self._pages = pages
        self.enabled = lookup.enabled
        self.block_size = lookup.block_size

    def match(self, tokens: Sequence[int], limit: int) -> PrefixMatch:
        """Return the longest usable cached prefix of `tokens`, at most `limit` blocks."""
        match = self._lookup.match(tokens, limit)
        usable = self._pages.usable(match.blocks)
        return match if usable == len(match.blocks) else self._lookup.match(tokens, usable)
