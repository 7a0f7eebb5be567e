"""Lesson 05: a pool of KV blocks, shared by reference counts and copied when written."""


class BlockPool:
    """A stack of free blocks, and a reference count for each of the others."""

    def __init__(self, num_blocks: int) -> None:
        self.free = list(range(num_blocks))
        self.holders = [0] * num_blocks

    def allocate(self, n: int) -> list[int] | None:
        """Check first, then allocate."""
        if n > len(self.free):
            return None
        blocks = [self.free.pop() for _ in range(n)]
        for block in blocks:
            self.holders[block] = 1
        return blocks

    def share(self, block: int) -> None:
        """Add a holder."""
        self.holders[block] += 1

    def release(self, block: int) -> None:
        """Remove a holder; after the last one the block is free."""
        self.holders[block] -= 1
        if self.holders[block] == 0:
            self.free.append(block)

    def writable(self, block: int) -> tuple[int, bool] | None:
        """Return the block itself to its only holder, otherwise a free one."""
        if self.holders[block] == 1:
            return block, False
        taken = self.allocate(1)
        if taken is None:
            return None
        self.release(block)
        return taken[0], True
