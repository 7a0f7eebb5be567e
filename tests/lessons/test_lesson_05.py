"""Lesson 05's exercise: wrong pools are refused helpfully, right ones run in the engine."""

from collections import deque

import pytest

from checks import check
from checks.judging import Verdict, judge
from checks.lesson_05 import attempt, cases
from engine import Cost, simulate
from engine.cache.block_pool import BlockPool
from engine.events.vocabulary import BlockCopied, BlocksAllocated
from engine.simulation.scenarios import scenario
from solutions.lesson_05 import BlockPool as Solution


def verdict(part: type) -> Verdict:
    return judge(part, cases(), attempt)


# Wrong


class FindsOutTooLate(Solution):
    def allocate(self, n):
        blocks = []
        for _ in range(n):
            if not self.free:
                return None
            blocks.append(self.free.pop())
            self.holders[blocks[-1]] = 1
        return blocks


class FreesWhileShared(Solution):
    def release(self, block):
        self.holders[block] -= 1
        self.free.append(block)


class AlwaysCopies(Solution):
    def writable(self, block):
        taken = self.allocate(1)
        if taken is None:
            return None
        self.release(block)
        return taken[0], True


class NeverCopies(Solution):
    def writable(self, block):
        return block, False


class CopiesAndKeepsTheOldOne(Solution):
    def writable(self, block):
        if self.holders[block] == 1:
            return block, False
        taken = self.allocate(1)
        return None if taken is None else (taken[0], True)


class LetsGoBeforeItKnows(Solution):
    def writable(self, block):
        if self.holders[block] == 1:
            return block, False
        self.release(block)
        taken = self.allocate(1)
        return None if taken is None else (taken[0], True)


class GivesWhatThereIs(Solution):
    def allocate(self, n):
        return super().allocate(min(n, len(self.free)))


class NeverFrees(Solution):
    def release(self, block):
        self.holders[block] -= 1


class KeepsOneBack(Solution):
    def allocate(self, n):
        return None if n >= len(self.free) else super().allocate(n)


class TakesNothingOut(Solution):
    def allocate(self, n):
        if n > len(self.free):
            return None
        for block in self.free[:n]:
            self.holders[block] = 1
        return self.free[:n]


class CountsFromOne(Solution):
    def __init__(self, num_blocks):
        self.free = list(range(1, num_blocks + 1))
        self.holders = [0] * (num_blocks + 1)


class SaysNothingOfTheCopy(Solution):
    def writable(self, block):
        answer = super().writable(block)
        return answer and (answer[0], False)


class ReturnsTheBlockAlone(Solution):
    def writable(self, block):
        return block


class SaysTheCopyFirst(Solution):
    def writable(self, block):
        answer = super().writable(block)
        return answer and (answer[1], answer[0])


class RefusesWithFalse(Solution):
    def allocate(self, n):
        return super().allocate(n) or False


class CountsToTwo(Solution):
    def share(self, block):
        self.holders[block] = 2


class ForgetsToCountSharing(Solution):
    def share(self, block):
        self.shared = block


class Raises(Solution):
    def allocate(self, n):
        return [self.free.pop() for _ in range(n)]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            FindsOutTooLate,
            [
                "A pool of 1 block. A asks for 2 blocks.",
                "nobody holds a block, so 1 block should be free. None can be had.",
                "free blocks and held blocks together are all blocks",
                "A asked for 2, you had 1: 1 leaked.",
            ],
        ),
        (
            FreesWhileShared,
            [
                "A asks for 1 block; then B shares all that A has; then A leaves.",
                "you handed out block 2. B still holds it.",
                "a block is free when the last of its holders has let go, and not before",
                "A left and let go of block 2. How many held it before that?",
            ],
        ),
        (
            AlwaysCopies,
            [
                "A asks for 1 block; then A writes into the last of A's blocks.",
                "a block is copied only if somebody else holds it",
                "Nobody else holds block 2. What is the copy for?",
            ],
        ),
        (
            NeverCopies,
            [
                "You returned (2, False).",
                "nobody's data changes under them",
                "B reads block 2, too.",
            ],
        ),
        (
            CopiesAndKeepsTheOldOne,
            [
                "then A writes into the last of A's blocks; then B leaves.",
                "1 leaked. B has left. Who ever held what B held",
            ],
        ),
        (LetsGoBeforeItKnows, ["then A writes into the last", "let go, and not before"]),
        (
            GivesWhatThereIs,
            [
                "none is free, you returned []",
                "all or nothing: who asks for more than there is gets None",
            ],
        ),
        (NeverFrees, ["1 leaked. A has left. Who ever held what A held, and who does now?"]),
        (
            KeepsOneBack,
            ["A holds block 2, so 2 blocks should be free. 1 can be had.", "1 cannot be had"],
        ),
        (TakesNothingOut, ["you handed out block 0. A still holds it."]),
        (CountsFromOne, ["you handed out 3.", "A pool of 3 blocks has 0, 1 and 2."]),
        (SaysNothingOfTheCopy, ["the answer says whether contents have to be copied"]),
        (ReturnsTheBlockAlone, ["You returned 2.", "a block, and whether it is a copy"]),
        (SaysTheCopyFirst, ["You returned (False, 2).", "Which of the two comes first?"]),
        (RefusesWithFalse, ["none is free, you returned False", "gets None"]),
        (
            CountsToTwo,
            ["B shares all that A has; then C shares all that A has;", "C still holds it."],
        ),
        (ForgetsToCountSharing, ["B shares all that A has; then A leaves.", "and not before"]),
        (Raises, ["Raises raised IndexError", "self.free.pop()"]),
    ],
)
def test_a_wrong_pool_is_refused_with_the_case_and_the_promise(wrong, said: list[str]) -> None:
    found = verdict(wrong)
    assert not found.passed
    message = " ".join(str(found).split())
    for words in said:
        assert words in message


class WritesWhereOthersRead(Solution):
    """Copies only if there is room, and else hopes for the best."""

    def writable(self, block):
        return super().writable(block) or (block, False)


def test_a_copy_without_room_is_refused_and_not_left_out() -> None:
    assert "None if a copy is needed" in str(verdict(WritesWhereOthersRead))


# Right


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
    """Whoever is not counted is free; any of them will do."""

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


@pytest.mark.parametrize("right", [Solution, AsAQueue, AsASetOfFreeIds])
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
        # The same decisions as with the engine's own; only the numbers of the blocks may differ.
        assert log.requests.equals(own.requests)
        assert log.steps.equals(own.steps)
        assert len(log.of(BlockCopied)) == len(own.of(BlockCopied))


def test_the_engine_asks_the_learners_part_and_not_its_own(capsys) -> None:
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
def test_an_untouched_stub_is_not_written_yet_and_the_engine_runs_its_own(
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
