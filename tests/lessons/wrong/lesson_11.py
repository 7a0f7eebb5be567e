"""Lesson 11: plausible wrong parts and the promises that they break."""

from checks.lesson_11 import Promise
from tests.lessons.wrong import Wrong

FULL = "if len((self._text + text).encode()) > self._limit:"
TAKEN = 'text, self._text = self._text, ""'
WAIT = "        await self._ready.wait()\n"
CLEAR = "        if self._reason is None:\n            self._ready.clear()\n"
END = "return text, self._reason"
WRONG = [
    Wrong("WaitsForTheReader", Promise.NEVER_WAITS, {"def put": "async def put"}),
    Wrong("DoesNotLetItselfBeAwaited", Promise.GET_WAITS, {"async def get": "def get", WAIT: ""}),
    Wrong("SaysNothing", Promise.PUT_ANSWERS, {"return True": "return None"}),
    Wrong("NeverSaysNo", Promise.BOUNDED, {FULL: "if not text:"}),
    Wrong("CountsLetters", Promise.BOUNDED, {FULL: "if len(self._text + text) > self._limit:"}),
    Wrong("LimitsASingleText", Promise.BOUNDED, {FULL: "if len(text.encode()) > self._limit:"}),
    Wrong("FillsToTheBrimOnly", Promise.TAKES_WHAT_FITS, {"> self._limit": ">= self._limit"}),
    Wrong(
        "CountsWhatHasLeft",
        Promise.TAKES_WHAT_FITS,
        {
            "        self._reason: str": '        self._sent = ""\n        self._reason: str',
            "(self._text + text)": "(self._sent + text)",
            "self._text += text": "self._text += text\n        self._sent += text",
        },
    ),
    Wrong(
        "NeverWakes",
        Promise.WAKES,
        {"self._text += text\n        self._ready.set()": "self._text += text"},
    ),
    Wrong(
        "EndsWithoutWaking",
        Promise.WAKES,
        {"self._reason = reason\n        self._ready.set()": "self._reason = reason"},
    ),
    Wrong(
        "FallsAsleepBeforeTheReason",
        Promise.WAKES,
        {
            CLEAR: "        self._ready.clear()\n",
            END: 'return (text, None) if text else ("", self._reason)',
        },
    ),
    Wrong(
        "LosesWhatCameWhileItWasBusy", Promise.WAKES, {WAIT: f"        self._ready.clear()\n{WAIT}"}
    ),
    Wrong("GivesTextOnly", Promise.GET_ANSWERS, {END: "return text"}),
    Wrong("ReasonSwapped", Promise.GET_ANSWERS, {END: "return self._reason, text"}),
    Wrong("KeepsWhatIsRead", Promise.SAME_TEXT, {TAKEN: "text = self._text"}),
    Wrong(
        "MakesRoomForWhatItRejects",
        Promise.SAME_TEXT,
        {
            "return False": "self._text = (self._text + text)[-self._limit :]\n            return False"
        },
    ),
    Wrong("DoesNotWait", Promise.NOT_EMPTY, {WAIT: ""}),
    Wrong(
        "TheLastReasonCounts",
        Promise.FIRST_REASON,
        {
            "if self._reason is None:\n            self._reason": "if reason:\n            self._reason"
        },
    ),
    Wrong("EmptyStringForNoReason", Promise.FIRST_REASON, {END: f'{END} or ""'}),
    Wrong(
        "EndsBeforeTheText",
        Promise.REASON_LAST,
        {
            WAIT: f'{WAIT}        if self._reason is not None:\n            return "", self._reason\n'
        },
    ),
    Wrong(
        "KeepsItsTextInTheClass",
        Promise.OWN_OUTBOX,
        {
            TAKEN: 'text = self._text\n        self._text = text if self._reason else ""',
            "self._text": "Outbox._text",
        },
    ),
]
