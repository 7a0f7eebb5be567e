"""Lesson 16: plausible wrong parts and the promises that they break."""

from checks.lesson_16 import Promise
from tests.lessons.wrong import Wrong

REACHED = "if self.computed == self.known + self.placeholders:"
RESTART = 'known tokens."""\n        self.placeholders = self.computed = 0'
LOST = "        if self.ended or self.lost:\n            self.lost = False\n"
WRONG = [
    Wrong("SaysWhetherItGoesOn", Promise.NUMBER, {"return 0 if": "return None if"}),
    Wrong(
        "ForgetsToCountTheToken",
        Promise.NUMBER,
        {
            "self.known += 1": "self.known += 0",
            "self.ended = ends or self.known": "self.ended = ends or self.known + 1",
        },
    ),
    Wrong(
        "CountsWhenAsked",
        Promise.ONLY_ASKS,
        {"        length =": "        self.computed += 1\n        length ="},
    ),
    Wrong("KeepsItsCountsInTheClass", Promise.OWN_COUNTS, {"self.known": "Ahead.known"}),
    Wrong("APlaceholderForEachChunk", Promise.ALL_TOKENS, {REACHED: "if count:"}),
    Wrong(
        "CountsOnlyKnownTokens",
        Promise.GOES_ON,
        {"else length - self.computed": "else max(0, self.known - self.computed)"},
    ),
    Wrong(
        "ForgetsWhatHadARow",
        Promise.EXISTS,
        {"self.placeholders += 1": "self.placeholders += 1\n        self.computed -= count"},
    ),
    Wrong("ForgetsMaxTokens", Promise.MAX_TOKENS, {" or length == self.last": ""}),
    Wrong("WantsAfterTheEnd", Promise.ENDED, {"0 if self.ended or": "0 if"}),
    Wrong("KeepsItsMemory", Promise.AGAIN, {RESTART: RESTART.replace("self.computed = ", "")}),
    Wrong(
        "TakesOffOnePlaceholderTooMany",
        Promise.AGAIN,
        {"max(0, self.placeholders - 1)": "self.placeholders - 1"},
    ),
    Wrong("ReturnsNothing", Promise.TRUE_OR_FALSE, {"return True": "return None"}),
    Wrong("LeavesTheStopTokenOut", Promise.IN_THE_TEXT, {"return True": "return not ends"}),
    Wrong(
        "DropsTheTokenInFlight",
        Promise.IN_THE_TEXT,
        {
            "self.ended = False": "self.ended = self.lost = False",
            "        if self.ended:\n": LOST,
            RESTART: f"{RESTART}\n        self.lost = True",
        },
    ),
    Wrong("AppendsAfterTheEnd", Promise.AFTER_THE_END, {"return False": "return True"}),
]
