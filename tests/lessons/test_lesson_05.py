"""Lesson 05's exercise: right pools are accepted and run in the engine."""

from collections import deque

import numpy as np
import pytest

from checks import check
from engine import Cost, simulate
from engine.core.cache.block_pool import BlockPool
from engine.core.log.vocabulary import BlockCopied, BlocksAllocated
from engine.simulation.scenarios import scenario
from solutions.lesson_05 import BlockPool as Solution
from visualizer import read

OWN = BlockPool


def size(one):
    return len(one.acts)


class AsAQueue(Solution):
    """The block that has been free the longest is taken first; tuples instead of lists."""

    def __init__(self, num_blocks):
        super().__init__(num_blocks)
        self.free = deque(self.free)

    def allocate(self, n):
        if len(self.free) < n:
            return None
        taken = tuple(self.free.popleft() for _ in range(n))
        for block in taken:
            self.holders[block] = 1
        return taken

    def writable(self, block):
        return (answer := super().writable(block)) and list(answer)


class WithoutAListOfFreeBlocks(Solution):
    """A block with no holder is free. Blocks are integers of numpy."""

    def __init__(self, num_blocks):
        self.holders = np.zeros(num_blocks, dtype=int)

    def allocate(self, n):
        free = np.flatnonzero(self.holders == 0)[:n]
        if len(free) < n:
            return None
        self.holders[free] = 1
        return list(free)

    def release(self, block):
        self.holders[block] -= 1


@pytest.mark.parametrize("right", [Solution, AsAQueue, WithoutAListOfFreeBlocks])
def test_every_right_pool_is_accepted_and_runs_in_the_engine(right) -> None:
    pool_of = check.lesson_05(right)
    for name in ("copy_on_write", "preemption", "eviction", "first_look"):
        one = scenario(name)
        log = simulate(
            one.workload, one.config, cost=Cost(10, 0.25), pool=pool_of(one.config.num_blocks)
        )
        assert log[0].classes["pool"] == "YourPool"
        own = one.run()
        # The same decisions as with the engine's own pool; only block numbers may differ.
        assert read(log).requests.equals(read(own).requests)
        assert read(log).steps.equals(read(own).steps)
        assert len(log.of(BlockCopied)) == len(own.of(BlockCopied))


def test_the_engine_uses_the_learners_part() -> None:
    class FromTheOtherEnd(Solution):
        def __init__(self, num_blocks):
            super().__init__(num_blocks)
            self.free.reverse()

    one = scenario("copy_on_write")
    pool = check.lesson_05(FromTheOtherEnd)(one.config.num_blocks)
    log = simulate(one.workload, one.config, cost=Cost(10, 0.25), pool=pool)
    assert log.of(BlocksAllocated)[0].blocks == [0, 1, 2]
    assert [(event.source, event.block) for event in log.of(BlockCopied)] == [(2, 3), (2, 4)]
