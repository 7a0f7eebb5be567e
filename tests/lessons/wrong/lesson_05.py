"""Lesson 05: plausible wrong parts and the promises that they break."""

from checks.lesson_05 import Promise
from tests.lessons.wrong import Wrong

TOO_MANY = "if n > len(self.free):"
ALONE = "if self.holders[block] == 1:"
COPY = "return taken[0], True"
WRONG = [
    Wrong(
        "KeepsItsFreeBlocksInTheClass",
        Promise.OWN_BLOCKS,
        {
            "    def __init__": "    free = []\n\n    def __init__",
            "self.free = list(": "self.free.extend(",
        },
    ),
    Wrong(
        "KeepsItsCountsInTheClass",
        Promise.OWN_BLOCKS,
        {
            "    def __init__": "    holders = [0] * 10\n\n    def __init__",
            "        self.holders = [0] * num_blocks\n": "",
        },
    ),
    Wrong("ReturnsAListForTheBlock", Promise.PAIR, {COPY: "return taken, True"}),
    Wrong("ReturnsTheBlockAlone", Promise.PAIR, {"return block, False": "return block"}),
    Wrong("SaysTheCopyFirst", Promise.PAIR, {"return block, False": "return False, block"}),
    Wrong(
        "AllocatesListsOfOne",
        Promise.LIST,
        {"return blocks": "return [[block] for block in blocks]"},
    ),
    Wrong("AllocatesOneTooFew", Promise.LIST, {"range(n)": "range(n - 1)"}),
    Wrong(
        "AnEmptyListForNone",
        Promise.ALL_OR_NOTHING,
        {f"{TOO_MANY}\n            return None": f"{TOO_MANY}\n            return []"},
    ),
    Wrong(
        "GivesWhatThereIs",
        Promise.ALL_OR_NOTHING,
        {f"{TOO_MANY}\n            return None": "n = min(n, len(self.free))"},
    ),
    Wrong(
        "FindsOutTooLate", Promise.NO_LEAK, {TOO_MANY: f"{TOO_MANY}\n            self.free.clear()"}
    ),
    Wrong("CopiesAndKeepsTheOldOne", Promise.NO_LEAK, {"        self.release(block)\n": ""}),
    Wrong("NeverFrees", Promise.NO_LEAK, {"self.free.append(block)": "return"}),
    Wrong("KeepsOneBack", Promise.NO_LEAK, {TOO_MANY: "if n >= len(self.free):"}),
    Wrong(
        "FreesWhileShared", Promise.NOT_SHARED, {"if self.holders[block] == 0:": "if block >= 0:"}
    ),
    Wrong(
        "LetsGoBeforeItKnows",
        Promise.NOT_SHARED,
        {
            "        self.release(block)\n": "",
            "        taken =": "        self.release(block)\n        taken =",
        },
    ),
    Wrong(
        "TakesNothingOut",
        Promise.NOT_SHARED,
        {"[self.free.pop() for _ in range(n)]": "self.free[:n]"},
    ),
    Wrong(
        "CountsToTwo", Promise.NOT_SHARED, {"self.holders[block] += 1": "self.holders[block] = 2"}
    ),
    Wrong("NeverCopies", Promise.NO_OVERWRITE, {ALONE: "if block >= 0:"}),
    Wrong("AlwaysCopies", Promise.COPY_IF_SHARED, {ALONE: "if block < 0:"}),
    Wrong(
        "WritesWhereOthersRead",
        Promise.NO_ROOM,
        {"return None\n        self.release": "return block, False\n        self.release"},
    ),
    Wrong("SaysNothingOfTheCopy", Promise.SAYS_COPY, {COPY: "return taken[0], False"}),
    Wrong(
        "CountsFromOne",
        Promise.NUMBERED,
        {
            "range(num_blocks)": "range(1, num_blocks + 1)",
            "[0] * num_blocks": "[0] * (num_blocks + 1)",
        },
    ),
    Wrong("AllocatesTheSameTwice", Promise.ONCE, {"return blocks": "return blocks[:1] * n"}),
    Wrong("NoBlockForItsOnlyHolder", Promise.ALONE, {"return block, False": "return None"}),
    Wrong("NoneIfAllAreAsked", Promise.ALLOCATES, {TOO_MANY: "if n == 1:"}),
]
