"""The block pool: which KV blocks are free, and how many references each block in use has.

Memory for keys and values is divided into equal-sized blocks. A block's reference count is the number
of block tables that contain it, plus one while the prefix cache holds it. A block with count 0 is free.

Write your own pool by subclassing `BlockPool` and pass it in: `Engine(runner, config,
pool=Mine(blocks))`. `allocate` and `writable` may choose any free block; everything else must work
as it does here.

Differs from vLLM (`vllm/v1/core/block_pool.py`), where one queue has all free blocks: the blocks
without a key, which are used as a stack, and behind them the cached blocks. Here the free list is only
that stack. A cached block is not free, because the prefix cache keeps a reference until it evicts it.
"""

from collections.abc import Iterable


class BlockPool:
    """A pool of `num_blocks` KV blocks. `free` is a stack: blocks leave and return at its end."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.free = list(range(num_blocks - 1, -1, -1))
        self.refs = [0] * num_blocks

    def allocate(self, count: int) -> list[int]:
        """Allocate `count` free blocks, each with one reference.

        If fewer blocks are free, raises ValueError and allocates nothing.
        """
        if count > len(self.free):
            raise ValueError(
                f"count must be at most {len(self.free)}, the number of free blocks, got {count}"
            )
        blocks = list[int]()
        for _ in range(count):
            blocks.append(self.free.pop())
            self.refs[blocks[-1]] = 1
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """Add one reference to each of `blocks`, which must be in use."""
        for block in blocks:
            if self.refs[block] == 0:
                raise ValueError(f"block {block} is free and cannot be shared: allocate it first")
            self.refs[block] += 1

    def release(self, blocks: list[int]) -> None:
        """Drop one reference from each block, from the last to the first.

        The first block of a table thus ends up on top of the stack and is reused first.
        """
        for block in reversed(blocks):
            if self.refs[block] == 0:
                raise ValueError(f"block {block} is free already: it was released twice")
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.free.append(block)

    def writable(self, block: int) -> int:
        """Return a writable block: this one if it is not shared, otherwise a fresh one.

        A fresh block takes over one reference of `block`, and the caller copies the contents. If a
        fresh block is needed and none is free, raises ValueError and changes nothing.
        """
        if self.refs[block] == 1:
            return block
        [fresh] = self.allocate(1)
        self.release([block])
        return fresh

    def check_integrity(self) -> None:
        """Raise AssertionError unless the free list has each block with count 0 exactly once."""
        assert len(set(self.free)) == len(self.free), "a block is on the free stack twice"
        unused = {block for block, refs in enumerate(self.refs) if refs == 0}
        assert unused == set(self.free), "free stack and reference counts disagree"
