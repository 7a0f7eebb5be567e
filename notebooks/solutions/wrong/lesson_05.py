"""Lesson 05: plausible wrong parts and the promises that they break."""

from checks.lesson_05 import Promise

TOO_MANY = "if n > len(self.free):"
ALONE = "if self.holders[block] == 1:"
COPY = "return taken[0], True"

WRONG = {
    Promise.OWN_BLOCKS: {
        "KeepsItsCountsInTheClass": {
            "    def __init__": "    holders = [0] * 10\n\n    def __init__",
            "        self.holders = [0] * num_blocks\n": "",
        },
    },
    Promise.PAIR: {
        "ReturnsAListForTheBlock": {COPY: "return taken, True"},
        "ReturnsTheBlockAlone": {"return block, False": "return block"},
        "SaysTheCopyFirst": {"return block, False": "return False, block"},
    },
    Promise.LIST: {
        "AllocatesListsOfOne": {"return blocks": "return [[block] for block in blocks]"},
        "AllocatesOneTooFew": {"range(n)": "range(n - 1)"},
    },
    Promise.EMPTY: {
        "NoneForNothing": {TOO_MANY: "if n not in range(1, len(self.free) + 1):"},
        "TakesTheTailOfTheList": {
            "blocks = [self.free.pop() for _ in range(n)]": "blocks = self.free[-n:]\n"
            "        del self.free[-n:]"
        },
    },
    Promise.ALL_OR_NOTHING: {
        "AnEmptyListForNone": {
            f"{TOO_MANY}\n            return None": f"{TOO_MANY}\n            return []"
        },
    },
    Promise.NO_LEAK: {
        "FindsOutTooLate": {TOO_MANY: f"{TOO_MANY}\n            self.free.clear()"},
        "CopiesAndKeepsTheOldOne": {"        self.release(block)\n": ""},
    },
    Promise.NOT_SHARED: {
        "FreesWhileShared": {"if self.holders[block] == 0:": "if block >= 0:"},
        "LetsGoBeforeItKnows": {
            "        self.release(block)\n": "",
            "        taken =": "        self.release(block)\n        taken =",
        },
        "CountsToTwo": {"self.holders[block] += 1": "self.holders[block] = 2"},
    },
    Promise.NO_OVERWRITE: {"NeverCopies": {ALONE: "if block >= 0:"}},
    Promise.COPY_IF_SHARED: {"AlwaysCopies": {ALONE: "if block < 0:"}},
    Promise.NO_ROOM: {
        "WritesWhereOthersRead": {
            "return None\n        self.release": "return block, False\n        self.release"
        }
    },
    Promise.SAYS_COPY: {"SaysNothingOfTheCopy": {COPY: "return taken[0], False"}},
    Promise.NUMBERED: {
        "CountsFromOne": {
            "range(num_blocks)": "range(1, num_blocks + 1)",
            "[0] * num_blocks": "[0] * (num_blocks + 1)",
        }
    },
    Promise.ONCE: {"AllocatesTheSameTwice": {"return blocks": "return blocks[:1] * n"}},
    Promise.ALONE: {"NoBlockForItsOnlyHolder": {"return block, False": "return None"}},
    Promise.ALLOCATES: {"NoneIfAllAreAsked": {TOO_MANY: "if n == 1:"}},
}
