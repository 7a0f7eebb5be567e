"""Lesson 16: plausible wrong parts, the promises that they break, and facts of the messages."""

from checks.lesson_16 import Promise
from tests.lessons.wrong import Wrong

REACHED = "if self.computed == self.known + self.placeholders:"
RESTART = 'known tokens."""\n        self.placeholders = self.computed = 0'
LOST = "        if self.ended or self.lost:\n            self.lost = False\n"
WRONG = [
    Wrong("SaysWhetherItGoesOn", Promise.NUMBER, {"return 0 if": "return None if"}, [None]),
    Wrong(
        "ForgetsToCountTheToken",
        Promise.NUMBER,
        {
            "self.known += 1": "self.known += 0",
            "self.ended = ends or self.known": "self.ended = ends or self.known + 1",
        },
        ["-1"],
    ),
    Wrong(
        "CountsWhenAsked",
        Promise.ONLY_ASKS,
        {"        length =": "        self.computed += 1\n        length ="},
        [1],
    ),
    Wrong("KeepsItsCountsInTheClass", Promise.OWN_COUNTS, {"self.known": "Ahead.known"}, [1]),
    Wrong("APlaceholderForEachChunk", Promise.ALL_TOKENS, {REACHED: "if count:"}, [2, 0]),
    Wrong(
        "CountsOnlyKnownTokens",
        Promise.GOES_ON,
        {"else length - self.computed": "else max(0, self.known - self.computed)"},
        [0, 1, "max_tokens=2"],
    ),
    Wrong(
        "ForgetsWhatHadARow",
        Promise.EXISTS,
        {"self.placeholders += 1": "self.placeholders += 1\n        self.computed -= count"},
        [1, 2],
    ),
    Wrong(
        "ForgetsMaxTokens", Promise.MAX_TOKENS, {" or length == self.last": ""}, [1, "max_tokens=1"]
    ),
    Wrong("WantsAfterTheEnd", Promise.ENDED, {"0 if self.ended or": "0 if"}, [1]),
    Wrong("KeepsItsMemory", Promise.AGAIN, {RESTART: RESTART.replace("self.computed = ", "")}, [2]),
    Wrong(
        "TakesOffOnePlaceholderTooMany",
        Promise.AGAIN,
        {"max(0, self.placeholders - 1)": "self.placeholders - 1"},
        [2],
    ),
    Wrong("ReturnsNothing", Promise.TRUE_OR_FALSE, {"return True": "return None"}, [None]),
    Wrong(
        "LeavesTheStopTokenOut",
        Promise.IN_THE_TEXT,
        {"return True": "return not ends"},
        [1, False, "stop token"],
    ),
    Wrong(
        "DropsTheTokenInFlight",
        Promise.IN_THE_TEXT,
        {
            "self.ended = False": "self.ended = self.lost = False",
            "        if self.ended:\n": LOST,
            RESTART: f"{RESTART}\n        self.lost = True",
        },
        [False],
    ),
    Wrong("AppendsAfterTheEnd", Promise.AFTER_THE_END, {"return False": "return True"}, [2, True]),
]
