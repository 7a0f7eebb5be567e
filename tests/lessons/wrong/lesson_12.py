"""Lesson 12: plausible wrong parts and the promises that they break."""

from checks.lesson_12 import Promise

FORCED = "return [self.marks.output_start, *answer, self.marks.output_end]"
NO_CALL = "self.call: list[int] | None = None"
DECODED = "self.tokenizer.decode(self.call)"

WRONG = {
    Promise.LIST: {"ReturnsATuple": {"return []": "return ()"}},
    Promise.OWN_STATE: {
        "KeepsItsCallInTheClass": {
            NO_CALL: "pass",
            "self.call": "ToolState.call",
            "    def __init__": "    call = None\n\n    def __init__",
        },
    },
    Promise.ONLY_AFTER_END: {
        "BeginsTheResultAtTheStart": {
            "self.call = []": "self.call = []\n            return [self.marks.output_start]"
        }
    },
    Promise.NO_START: {
        "NeverStarts": {NO_CALL: "self.call = []"},
        "NeverCloses": {"            self.call = None\n": ""},
    },
    Promise.NO_RESULT: {
        "KeepsTheFirstStart": {"self.call = []": "self.call = self.call or []"},
    },
    Promise.DECODED_TOGETHER: {
        "DecodesTokenByToken": {
            DECODED: '"".join(self.tokenizer.decode([one]) for one in self.call)'
        }
    },
    Promise.ANSWERED: {"NeverAnswers": {"if result is not None": "if result is True"}},
    Promise.FRAMED: {
        "ForcesAllResultsSoFar": {
            NO_CALL: "self.call, self.forced = None, []",
            FORCED: FORCED.replace("return [", "self.forced = [*self.forced, ")
            + "\n                return self.forced",
        },
    },
}
