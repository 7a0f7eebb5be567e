"""Lesson 05: plausible wrong parts, the promises that they break, and facts of the messages."""

from checks.broken import CommonPromise
from checks.lesson_05 import Promise
from solutions.lesson_05 import BlockPool as Solution


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


class KeepsItsFreeBlocksInTheClass(Solution):
    free = []

    def __init__(self, num_blocks):
        self.free.extend(range(num_blocks))
        self.holders = [0] * num_blocks


class KeepsItsCountsInTheClass(Solution):
    holders = [0] * 10

    def __init__(self, num_blocks):
        self.free = list(range(num_blocks))


class ReturnsAListForTheBlock(Solution):
    def writable(self, block):
        own, copied = super().writable(block) or (None, None)
        if own is None:
            return None
        return ([own], True) if copied else (own, False)


class AllocatesListsOfOne(Solution):
    def allocate(self, n):
        blocks = super().allocate(n)
        return blocks and [[block] for block in blocks]


class GivesTheCopyTwoHolders(Solution):
    def writable(self, block):
        answer = super().writable(block)
        if answer and answer[1]:
            self.share(answer[0])
        return answer


class AnEmptyListForNone(Solution):
    def allocate(self, n):
        return super().allocate(n) or []


WRONG = [
    (KeepsItsFreeBlocksInTheClass, Promise.OWN_BLOCKS, []),
    (KeepsItsCountsInTheClass, Promise.OWN_BLOCKS, []),
    (ReturnsAListForTheBlock, Promise.PAIR, ["[1]", "A"]),
    (AllocatesListsOfOne, Promise.LIST, ["A"]),
    (GivesTheCopyTwoHolders, Promise.NO_LEAK, ["A"]),
    (AnEmptyListForNone, Promise.ALL_OR_NOTHING, ["[]", "None"]),
    (FindsOutTooLate, Promise.NO_LEAK, [1, "A", 2]),
    (FreesWhileShared, Promise.NOT_SHARED, ["A", 1, "B", 2]),
    (AlwaysCopies, Promise.COPY_IF_SHARED, ["A", 1, 2]),
    (NeverCopies, Promise.NO_OVERWRITE, [2, "B"]),
    (CopiesAndKeepsTheOldOne, Promise.NO_LEAK, ["A", "B", 1]),
    (LetsGoBeforeItKnows, Promise.NOT_SHARED, ["A"]),
    (GivesWhatThereIs, Promise.ALL_OR_NOTHING, []),
    (NeverFrees, Promise.NO_LEAK, [1, "A"]),
    (KeepsOneBack, Promise.NO_LEAK, ["A", 2, 1]),
    (TakesNothingOut, Promise.NOT_SHARED, [0, "A"]),
    (CountsFromOne, Promise.NUMBERED, [3, 0, 1, 2]),
    (SaysNothingOfTheCopy, Promise.SAYS_COPY, []),
    (ReturnsTheBlockAlone, Promise.PAIR, [2]),
    (SaysTheCopyFirst, Promise.PAIR, [2]),
    (RefusesWithFalse, Promise.ALL_OR_NOTHING, []),
    (CountsToTwo, Promise.NOT_SHARED, ["B", "A", "C"]),
    (ForgetsToCountSharing, Promise.NOT_SHARED, ["B", "A"]),
    (Raises, CommonPromise.ANSWERS, ["IndexError", "pop()"]),
]
