"""Lesson 05's exercise: right pools are accepted and run in the engine."""

from collections import deque

import numpy as np
import pytest

from checks import check
from checks.judging import Verdict, judge
from checks.lesson_05 import Promise, attempt, cases
from engine import Cost, simulate
from engine.cache.block_pool import BlockPool
from engine.events.vocabulary import BlockCopied, BlocksAllocated
from engine.simulation.scenarios import scenario
from solutions.lesson_05 import BlockPool as Solution


def verdict(part: type) -> Verdict:
    return judge(part, cases(), attempt)


class WritesWhereOthersRead(Solution):
    """Copies only if a block is free, and otherwise writes into the shared one."""

    def writable(self, block):
        return super().writable(block) or (block, False)


def test_a_copy_without_room_is_refused_and_not_left_out() -> None:
    found = verdict(WritesWhereOthersRead).broken
    assert found is not None and found.promise is Promise.NO_ROOM


class AsAQueue:
    """The block that has been free the longest is taken first; tuples instead of lists."""

    def __init__(self, num_blocks):
        self.queue = deque(range(num_blocks))
        self.count = {}

    def allocate(self, n):
        if len(self.queue) < n:
            return None
        taken = tuple(self.queue.popleft() for _ in range(n))
        self.count.update(dict.fromkeys(taken, 1))
        return taken

    def share(self, block):
        self.count[block] += 1

    def release(self, block):
        self.count[block] -= 1
        if not self.count[block]:
            del self.count[block]
            self.queue.append(block)

    def writable(self, block):
        if self.count[block] == 1:
            return [block, False]
        if not self.queue:
            return None
        self.count[block] -= 1
        return [self.allocate(1)[0], True]


class AsASetOfFreeIds:
    """A block that is not counted is free; any free block will do."""

    def __init__(self, num_blocks):
        self.free, self.more = set(range(num_blocks)), {}

    def allocate(self, n):
        if n > len(self.free):
            return None
        return [self.free.pop() for _ in range(n)]

    def share(self, block):
        self.more[block] = self.more.get(block, 0) + 1

    def release(self, block):
        if self.more.get(block):
            self.more[block] -= 1
        else:
            self.free.add(block)

    def writable(self, block):
        if not self.more.get(block):
            return block, False
        own = self.allocate(1)
        if own:
            self.release(block)
            return own[0], True
        return None


class WithoutAListOfFreeBlocks:
    """A block with no holder is free."""

    def __init__(self, num_blocks):
        self.holders = np.zeros(num_blocks, dtype=int)

    def allocate(self, n):
        free = np.flatnonzero(self.holders == 0)[:n]
        if len(free) < n:
            return None
        self.holders[free] = 1
        return free.tolist()

    def share(self, block):
        self.holders[block] += 1

    def release(self, block):
        self.holders[block] -= 1

    def writable(self, block):
        if self.holders[block] == 1:
            return block, False
        if (fresh := self.allocate(1)) is None:
            return None
        self.release(block)
        return fresh[0], True


@pytest.mark.parametrize("right", [Solution, AsAQueue, AsASetOfFreeIds, WithoutAListOfFreeBlocks])
def test_every_right_pool_is_accepted_and_runs_in_the_engine(right, capsys) -> None:
    pool_of = check.lesson_05(right)
    assert f"{right.__name__} keeps its promises in all" in capsys.readouterr().out
    for name in ("copy_on_write", "preemption", "eviction", "first_look"):
        one = scenario(name)
        log = simulate(
            one.workload, one.config, cost=Cost(10, 0.25), pool=pool_of(one.config.num_blocks)
        )
        assert log[0].classes["pool"] == "YourPool"
        own = one.run()
        # The same decisions as with the engine's own pool; only block numbers may differ.
        assert log.requests.equals(own.requests)
        assert log.steps.equals(own.steps)
        assert len(log.of(BlockCopied)) == len(own.of(BlockCopied))


def test_the_engine_uses_the_learners_part(capsys) -> None:
    class FromTheOtherEnd(Solution):
        def __init__(self, num_blocks):
            super().__init__(num_blocks)
            self.free.reverse()

    one = scenario("copy_on_write")
    pool = check.lesson_05(FromTheOtherEnd)(one.config.num_blocks)
    log = simulate(one.workload, one.config, cost=Cost(10, 0.25), pool=pool)
    assert log.of(BlocksAllocated)[0].blocks == [0, 1, 2]
    assert [(event.source, event.block) for event in log.of(BlockCopied)] == [(2, 3), (2, 4)]
    pool = check.lesson_05(Solution)(one.config.num_blocks)
    log = simulate(one.workload, one.config, cost=Cost(10, 0.25), pool=pool)
    assert [(event.source, event.block) for event in log.of(BlockCopied)] == [(13, 12), (13, 11)]


class Stub:
    """A pool."""

    def __init__(self, num_blocks): ...

    def allocate(self, n):
        """Take n free blocks."""
        ...

    def share(self, block): ...

    def release(self, block): ...

    def writable(self, block): ...


class Later(Solution):
    def allocate(self, n):
        raise NotImplementedError


@pytest.mark.parametrize("untouched", [Stub, Later])
def test_an_untouched_stub_counts_as_unwritten_and_the_engine_uses_its_own(
    untouched, capsys
) -> None:
    pool_of = check.lesson_05(untouched)
    assert "not written yet" in capsys.readouterr().out
    assert type(pool_of(8)) is BlockPool


def test_a_method_that_is_missing_is_named() -> None:
    class Half(Solution):
        def writable(self, block): ...

    assert "writable: not written yet" in str(verdict(Half))


def test_cases_come_smallest_first() -> None:
    lengths = [len(story.acts) for story in cases()]
    assert lengths == sorted(lengths)
