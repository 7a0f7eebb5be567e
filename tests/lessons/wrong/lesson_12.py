"""Lesson 12: plausible wrong parts and the promises that they break."""

from checks.lesson_12 import Promise
from tests.lessons.wrong import Wrong

FORCED = "return [self.marks.output_start, *answer, self.marks.output_end]"
NO_CALL = "self.call: list[int] | None = None"
DECODED = "self.tokenizer.decode(self.call)"
WRONG = [
    Wrong("ReturnsATuple", Promise.LIST, {"return []": "return ()"}),
    Wrong("SharesItsCall", Promise.OWN_STATE, {"self.call": "ToolState.call"}),
    Wrong(
        "KeepsItsCallInTheClass",
        Promise.OWN_STATE,
        {
            NO_CALL: "pass",
            "self.call": "ToolState.call",
            "    def __init__": "    call = None\n\n    def __init__",
        },
    ),
    Wrong(
        "BeginsTheResultAtTheStart",
        Promise.ONLY_AFTER_END,
        {"self.call = []": "self.call = []\n            return [self.marks.output_start]"},
    ),
    Wrong("NeverStarts", Promise.NO_START, {NO_CALL: "self.call = []"}),
    Wrong("NeverCloses", Promise.NO_START, {"            self.call = None\n": ""}),
    Wrong(
        "ForcesAnError",
        Promise.NO_RESULT,
        {f"self.evaluate({DECODED})": f'self.evaluate({DECODED}) or "error"'},
    ),
    Wrong(
        "KeepsTheFirstStart", Promise.NO_RESULT, {"self.call = []": "self.call = self.call or []"}
    ),
    Wrong(
        "DecodesTokenByToken",
        Promise.DECODED_TOGETHER,
        {DECODED: '"".join(self.tokenizer.decode([one]) for one in self.call)'},
    ),
    Wrong("NeverAnswers", Promise.ANSWERED, {"if result is not None": "if result is True"}),
    Wrong("AnswersWithoutAFrame", Promise.FRAMED, {FORCED: "return answer"}),
    Wrong(
        "ForcesAllResultsSoFar",
        Promise.FRAMED,
        {
            NO_CALL: "self.call, self.forced = None, []",
            FORCED: FORCED.replace("return [", "self.forced = [*self.forced, ")
            + "\n                return self.forced",
        },
    ),
]
