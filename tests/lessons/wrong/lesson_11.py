"""Lesson 11: plausible wrong parts, the promises that they break, and facts of the messages."""

import asyncio
from collections import deque

from checks.broken import CommonPromise
from checks.lesson_11 import Promise
from solutions.lesson_11 import Outbox as Solution


class WaitsForTheReader(Solution):
    async def put(self, text):
        while not Solution.put(self, text):
            await asyncio.sleep(0)
        return True


class DropsTheOldest(Solution):
    def put(self, text):
        self._text = (self._text + text).encode()[-self._limit :].decode(errors="ignore")
        self._ready.set()
        return True


class NeverSaysNo(Solution):
    def put(self, text):
        self._text += text
        self._ready.set()
        return True


class CountsLetters(Solution):
    def put(self, text):
        if len(self._text) + len(text) > self._limit:
            return False
        self._text += text
        self._ready.set()
        return True


class CountsWhatHasLeft(Solution):
    def __init__(self, limit):
        super().__init__(limit)
        self.bytes = 0

    def put(self, text):
        self.bytes += len(text.encode())
        return self.bytes <= self._limit and super().put(text)


class FillsToTheBrimOnly(Solution):
    def put(self, text):
        if len((self._text + text).encode()) >= self._limit:
            return False
        return super().put(text)


class SaysNothing(Solution):
    def put(self, text):
        super().put(text)


class NeverWakes(Solution):
    def put(self, text):
        if len((self._text + text).encode()) > self._limit:
            return False
        self._text += text
        return True


class EndsWithoutWaking(Solution):
    def close(self, reason):
        self._reason = self._reason or reason


class EndsBeforeTheText(Solution):
    async def get(self):
        await self._ready.wait()
        if self._reason is not None:
            return "", self._reason
        text, self._text = self._text, ""
        self._ready.clear()
        return text, None


class DoesNotWait(Solution):
    async def get(self):
        text, self._text = self._text, ""
        return text, self._reason


class TheLastReasonCounts(Solution):
    def close(self, reason):
        self._reason = reason
        self._ready.set()


class SharesItsList:
    waiting = deque()

    def __init__(self, limit):
        self.limit, self.reason, self.ready = limit, None, asyncio.Event()

    def put(self, text):
        if sum(len(one.encode()) for one in self.waiting) + len(text.encode()) > self.limit:
            return False
        self.waiting.append(text)
        self.ready.set()
        return True

    def close(self, reason):
        self.reason = self.reason or reason
        self.ready.set()

    async def get(self):
        await self.ready.wait()
        text = "".join(self.waiting)
        if self.reason is None:
            self.waiting.clear()
            self.ready.clear()
        return text, self.reason


class DoesNotLetItselfBeAwaited(Solution):
    def get(self):
        text, self._text = self._text, ""
        return text, self._reason


class GivesTextOnly(Solution):
    async def get(self):
        return (await super().get())[0]


class FallsAsleepBeforeTheReason(Solution):
    """Text and reason in two answers, but the first one clears the event for good."""

    async def get(self):
        await self._ready.wait()
        self._ready.clear()
        text, self._text = self._text, ""
        return (text, None) if text else ("", self._reason)


class CountsPieces(Solution):
    def __init__(self, limit):
        super().__init__(limit)
        self.pieces = []

    def put(self, text):
        if len(self.pieces) >= self._limit:
            return False
        self.pieces.append(text)
        self._ready.set()
        return True

    async def get(self):
        await self._ready.wait()
        self._text, self.pieces = "".join(self.pieces), []
        return await super().get()


class KeepsWhatIsRead(Solution):
    async def get(self):
        await self._ready.wait()
        if self._reason is None:
            self._ready.clear()
        return self._text, self._reason


class TakesAPart(Solution):
    """Cuts the text where the outbox is full."""

    def put(self, text):
        free = self._limit - len(self._text.encode())
        self._text += text.encode()[:free].decode(errors="ignore")
        self._ready.set()
        return free > 0


class AppendsTheReason(Solution):
    def close(self, reason):
        if self._reason is None:
            self._text += reason
        super().close(reason)


class LimitsASingleText(Solution):
    def put(self, text):
        if len(text.encode()) > self._limit:
            return False
        self._text += text
        self._ready.set()
        return True


class Plain:
    def __init__(self, limit):
        self.limit = limit
        self.text = ""
        self.reason = None
        self.ready = asyncio.Event()

    def put(self, text):
        if len((self.text + text).encode("utf-8")) > self.limit:
            return False
        self.text += text
        self.ready.set()
        return True

    def close(self, reason):
        if self.reason is None:
            self.reason = reason
            self.ready.set()

    async def get(self):
        await self.ready.wait()
        text = self.text
        self.text = ""
        if self.reason is None:
            self.ready.clear()
        return text, self.reason


class StrictlyLess(Plain):
    def put(self, text):
        if len(self.text.encode()) + len(text.encode()) < self.limit:
            self.text += text
            self.ready.set()
            return True
        return False


class ReturnsNothingWhenItFits(Plain):
    def put(self, text):
        if len((self.text + text).encode()) > self.limit:
            return False
        self.text += text
        self.ready.set()
        return None


class LimitOfTheNewTextOnly(Plain):
    def put(self, text):
        if len(text.encode()) > self.limit - len(self.text):
            return False
        self.text += text
        self.ready.set()
        return True


class ClosesInPut(Plain):
    def put(self, text):
        if len((self.text + text).encode()) > self.limit:
            self.reason = "full"
            return False
        self.text += text
        self.ready.set()
        return True


class ReplacesTheText(Plain):
    def put(self, text):
        if len((self.text + text).encode()) > self.limit:
            return False
        self.text = text
        self.ready.set()
        return True


class AddsThenChecks(Plain):
    def put(self, text):
        self.text += text
        self.ready.set()
        return not len(self.text.encode()) > self.limit


class NeverClears(Plain):
    async def get(self):
        await self.ready.wait()
        text, self.text = self.text, ""
        return text, self.reason


class ClearsBeforeItWaits(Plain):
    async def get(self):
        self.ready.clear()
        await self.ready.wait()
        text, self.text = self.text, ""
        return text, self.reason


class ReasonBeforeText(Plain):
    """Looks at the reason first and leaves the text behind."""

    async def get(self):
        await self.ready.wait()
        if self.reason is not None:
            return "", self.reason
        text, self.text = self.text, ""
        self.ready.clear()
        return text, None


class CloseEmptiesTheText(Plain):
    def close(self, reason):
        self.text = ""
        if self.reason is None:
            self.reason = reason
        self.ready.set()


class ReasonSwapped(Plain):
    async def get(self):
        text, reason = await super().get()
        return reason, text


class WaitsForTheEnd(Plain):
    """Returns only when the stream is closed."""

    async def get(self):
        while self.reason is None:
            self.ready.clear()
            await self.ready.wait()
        text, self.text = self.text, ""
        return text, self.reason


class PutAfterReadingCountsAll(Plain):
    """The count never goes down."""

    def __init__(self, limit):
        super().__init__(limit)
        self.used = 0

    def put(self, text):
        self.used += len(text.encode())
        if self.used > self.limit:
            return False
        self.text += text
        self.ready.set()
        return True


class BusyLoop(Plain):
    async def get(self):
        while not self.text and self.reason is None:
            pass
        text, self.text = self.text, ""
        return text, self.reason


class SleepsInGet(Plain):
    """Lets others run once, and then returns what there is."""

    async def get(self):
        if not self.text:
            await asyncio.sleep(0)
        text, self.text = self.text, ""
        return text, self.reason


class SetIsMissingInPut(Plain):
    def put(self, text):
        if len((self.text + text).encode()) > self.limit:
            return False
        self.text += text
        return True


class EmptyStringForNoReason(Plain):
    async def get(self):
        await self.ready.wait()
        text, self.text = self.text, ""
        if self.reason is None:
            self.ready.clear()
        return text, self.reason or ""


WRONG = [
    (WaitsForTheReader, Promise.NEVER_WAITS, ["put()", 29]),
    (DropsTheOldest, Promise.BOUNDED, ["'He'", 2]),
    (NeverSaysNo, Promise.BOUNDED, [3, "'He'", 2]),
    (CountsLetters, Promise.BOUNDED, ["'é'", 2]),
    (CountsWhatHasLeft, Promise.TAKES_WHAT_FITS, ["'He'", 0]),
    (FillsToTheBrimOnly, Promise.TAKES_WHAT_FITS, ["'llo'"]),
    (SaysNothing, Promise.PUT_ANSWERS, ["put()"]),
    (NeverWakes, Promise.WAKES, ["'He'"]),
    (EndsWithoutWaking, Promise.WAKES, []),
    (EndsBeforeTheText, Promise.REASON_LAST, ["'stop'", "'He'"]),
    (DoesNotWait, Promise.NOT_EMPTY, ["get()"]),
    (TheLastReasonCounts, Promise.FIRST_REASON, ["'stop'", "'slow_reader'"]),
    (SharesItsList, Promise.OWN_OUTBOX, []),
    (DoesNotLetItselfBeAwaited, Promise.GET_WAITS, ["get()", "`def`"]),
    (GivesTextOnly, Promise.GET_ANSWERS, ["get()"]),
    (FallsAsleepBeforeTheReason, Promise.WAKES, []),
    (CountsPieces, Promise.BOUNDED, []),
    (KeepsWhatIsRead, Promise.SAME_TEXT, ["'HeHe'"]),
    (TakesAPart, Promise.BOUNDED, []),
    (AppendsTheReason, Promise.SAME_TEXT, ["'stop'", "''"]),
    (LimitsASingleText, Promise.BOUNDED, []),
    (StrictlyLess, Promise.TAKES_WHAT_FITS, []),
    (ReturnsNothingWhenItFits, Promise.PUT_ANSWERS, []),
    (LimitOfTheNewTextOnly, Promise.BOUNDED, []),
    (ClosesInPut, Promise.FIRST_REASON, []),
    (ReplacesTheText, Promise.REASON_LAST, ["'He'"]),
    (AddsThenChecks, Promise.SAME_TEXT, []),
    (NeverClears, Promise.NOT_EMPTY, []),
    (ClearsBeforeItWaits, Promise.WAKES, []),
    (ReasonBeforeText, Promise.REASON_LAST, []),
    (CloseEmptiesTheText, Promise.REASON_LAST, ["'He'"]),
    (ReasonSwapped, Promise.GET_ANSWERS, ["('stop', '')"]),
    (WaitsForTheEnd, Promise.WAKES, []),
    (PutAfterReadingCountsAll, Promise.TAKES_WHAT_FITS, []),
    (BusyLoop, CommonPromise.ENDS, []),
    (SleepsInGet, Promise.NOT_EMPTY, []),
    (SetIsMissingInPut, Promise.WAKES, []),
    (EmptyStringForNoReason, Promise.FIRST_REASON, []),
]
