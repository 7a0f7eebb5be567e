"""Lesson 13: plausible wrong parts and the promises that they break."""

from checks.lesson_13 import Promise

FULL = "if len((self._text + text).encode()) > self._limit:"
TAKEN = 'text, self._text = self._text, ""'
WAIT = "        await self._ready.wait()\n"
CLEAR = "        if self._reason is None:\n            self._ready.clear()\n"
END = "return text, self._reason"

WRONG = {
    Promise.NEVER_WAITS: {"WaitsForTheReader": {"def put": "async def put"}},
    Promise.GET_WAITS: {"DoesNotLetItselfBeAwaited": {"async def get": "def get", WAIT: ""}},
    Promise.PUT_ANSWERS: {"SaysNothing": {"return True": "return None"}},
    Promise.BOUNDED: {
        "CountsLetters": {FULL: "if len(self._text + text) > self._limit:"},
    },
    Promise.TAKES_WHAT_FITS: {
        "FillsToTheBrimOnly": {"> self._limit": ">= self._limit"},
        "CountsWhatHasLeft": {
            "        self._reason: str": '        self._sent = ""\n        self._reason: str',
            "(self._text + text)": "(self._sent + text)",
            "self._text += text": "self._text += text\n        self._sent += text",
        },
    },
    Promise.WAKES: {
        "NeverWakes": {"self._text += text\n        self._ready.set()": "self._text += text"},
        "EndsWithoutWaking": {
            "self._reason = reason\n        self._ready.set()": "self._reason = reason"
        },
        "FallsAsleepBeforeTheReason": {
            CLEAR: "        self._ready.clear()\n",
            END: 'return (text, None) if text else ("", self._reason)',
        },
    },
    Promise.GET_ANSWERS: {
        "GivesTextOnly": {END: "return text"},
        "ReasonSwapped": {END: "return self._reason, text"},
    },
    Promise.SAME_TEXT: {
        "KeepsWhatIsRead": {TAKEN: "text = self._text"},
        "MakesRoomForWhatItRejects": {
            "return False": "self._text = (self._text + text)[-self._limit :]\n            return False"
        },
    },
    Promise.NOT_EMPTY: {"DoesNotWait": {WAIT: ""}},
    Promise.FIRST_REASON: {
        "TheLastReasonCounts": {
            "if self._reason is None:\n            self._reason": "if reason:\n            self._reason"
        },
        "EmptyStringForNoReason": {END: f'{END} or ""'},
    },
    Promise.REASON_LAST: {
        "EndsBeforeTheText": {
            WAIT: f'{WAIT}        if self._reason is not None:\n            return "", self._reason\n'
        }
    },
    Promise.OWN_OUTBOX: {
        "KeepsItsTextInTheClass": {
            TAKEN: 'text = self._text\n        self._text = text if self._reason else ""',
            "self._text": "Outbox._text",
        }
    },
}
