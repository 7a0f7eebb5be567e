"""Lesson 17: plausible wrong parts and the promises that they break."""

from checks.lesson_17 import Promise

REACHED = "if self.computed == self.known + self.placeholders:"
RESTART = 'known tokens."""\n        self.placeholders = self.computed = 0'
LOST = "        if self.ended or self.lost:\n            self.lost = False\n"

WRONG = {
    Promise.NUMBER: {
        "ForgetsToCountTheToken": {
            "self.known += 1": "self.known += 0",
            "self.ended = ends or self.known": "self.ended = ends or self.known + 1",
        },
    },
    Promise.ONLY_ASKS: {
        "CountsWhenAsked": {"        length =": "        self.computed += 1\n        length ="}
    },
    Promise.OWN_COUNTS: {"KeepsItsCountsInTheClass": {"self.known": "Ahead.known"}},
    Promise.ALL_TOKENS: {"APlaceholderForEachChunk": {REACHED: "if count:"}},
    Promise.GOES_ON: {
        "CountsOnlyKnownTokens": {
            "else length - self.computed": "else max(0, self.known - self.computed)"
        }
    },
    Promise.EXISTS: {
        "ForgetsWhatHadARow": {
            "self.placeholders += 1": "self.placeholders += 1\n        self.computed -= count"
        }
    },
    Promise.MAX_TOKENS: {"ForgetsMaxTokens": {" or length == self.last": ""}},
    Promise.ENDED: {"WantsAfterTheEnd": {"0 if self.ended or": "0 if"}},
    Promise.AGAIN: {
        "TakesOffOnePlaceholderTooMany": {"max(0, self.placeholders - 1)": "self.placeholders - 1"},
    },
    Promise.TRUE_OR_FALSE: {"ReturnsNothing": {"return True": "return None"}},
    Promise.IN_THE_TEXT: {
        "LeavesTheStopTokenOut": {"return True": "return not ends"},
        "DropsTheTokenInFlight": {
            "self.ended = False": "self.ended = self.lost = False",
            "        if self.ended:\n": LOST,
            RESTART: f"{RESTART}\n        self.lost = True",
        },
    },
    Promise.AFTER_THE_END: {"AppendsAfterTheEnd": {"return False": "return True"}},
}
