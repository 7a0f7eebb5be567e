"""The block pool: which KV blocks are free, and how many hold each of the others.

Memory for keys and values is cut into equal blocks. A block's reference count is the number of
block tables that name it, plus one while it is in the radix tree; a block with count 0 is free.
Nothing else is recorded, so nothing else can disagree.

vLLM's pool (`vllm/v1/core/block_pool.py`) keeps freed but still cached blocks in its free queue and
forgets them lazily; here a cached block is held by the tree until the tree evicts it.

Write your own by subclassing `BlockPool` and pass it in: `Engine(runner, config, pool=Mine(blocks))`.
Which free blocks `allocate` and `writable` hand out is the pool's choice; the log relies on all the
rest.
"""

from collections.abc import Iterable

from engine.part_errors import PoolError, ask, named


class BlockPool:
    """`num_blocks` KV blocks. `free` is a stack: blocks leave and return at its end."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.free = list(range(num_blocks - 1, -1, -1))
        self.refs = [0] * num_blocks

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, each with one reference.

        Raises ValueError, and takes nothing, when fewer are free.
        """
        if count > len(self.free):
            raise ValueError(f"{count} blocks asked for, {len(self.free)} free")
        blocks = [self.free.pop() for _ in range(count)]
        for block in blocks:
            self.refs[block] = 1
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """Add one reference to each of `blocks`, which somebody must hold already."""
        for block in blocks:
            if self.refs[block] == 0:
                raise ValueError(f"block {block} is free: it has nothing to share")
            self.refs[block] += 1

    def release(self, blocks: list[int]) -> None:
        """Drop one reference from each, the last block first, so that a tail is reused first."""
        for block in reversed(blocks):
            if self.refs[block] == 0:
                raise ValueError(f"block {block} is free already: released twice")
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.free.append(block)

    def writable(self, block: int) -> int:
        """Where one of the holders of `block` may write: into `block` itself if nobody else holds it,
        else into a free block, which that holder has in its place from now on.

        The contents are for the caller to copy. Raises ValueError, and changes nothing, when a free
        block is needed and there is none.
        """
        if self.refs[block] == 1:
            return block
        [own] = allocate_checked(self, 1)
        self.release([block])
        return own

    def check_integrity(self) -> None:
        """Raise AssertionError unless the free blocks are those with count 0, each listed once."""
        assert len(set(self.free)) == len(self.free), "a block is on the free stack twice"
        unheld = {block for block, refs in enumerate(self.refs) if refs == 0}
        assert unheld == set(self.free), "free stack and reference counts disagree"


def allocate_checked(pool: BlockPool, count: int) -> list[int]:
    """`pool.allocate(count)`, watched if somebody wrote it: `count` blocks that were free.

    Raises PoolError, which names class and method, for anything else. The pool is not to be used
    after that.
    """
    if type(pool).allocate is BlockPool.allocate:
        return pool.allocate(count)
    free, name = list(pool.free), named(pool, "allocate")
    blocks = ask(PoolError, pool.allocate, count)
    if not isinstance(blocks, list) or len(blocks) != count:
        raise PoolError(f"{name} must return a list of {count} blocks, got {blocks!r}")
    _check_handed_out(pool, name, blocks, free)
    return blocks


def writable_checked(pool: BlockPool, block: int) -> int:
    """`pool.writable(block)` for a shared block, watched if somebody wrote it.

    Raises PoolError as `allocate_checked` does, and if the holder's reference stayed behind.
    """
    if type(pool).writable is BlockPool.writable:
        return pool.writable(block)
    free, holders, name = list(pool.free), pool.refs[block], named(pool, "writable")
    own = ask(PoolError, pool.writable, block)
    _check_handed_out(pool, name, [own], free)
    if pool.refs[block] != holders - 1:
        raise PoolError(f"{name} must take one reference from block {block} in `refs`")
    return own


def _check_handed_out(pool: BlockPool, name: str, blocks: list[int], free: list[int]) -> None:
    for index, block in enumerate(blocks):
        if block in blocks[:index]:
            raise PoolError(f"{name} handed out block {block} twice")
        if block not in free:
            raise PoolError(f"{name} handed out block {block}, which is held or does not exist")
    if pool.free != [block for block in free if block not in blocks]:
        raise PoolError(f"{name} must leave the other blocks in `free`, in their order")
    if any(pool.refs[block] != 1 for block in blocks):
        raise PoolError(f"{name} must give each block one reference in `refs`")
