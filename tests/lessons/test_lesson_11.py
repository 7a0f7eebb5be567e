"""Lesson 11's exercise: right outboxes are accepted and feed many readers."""

import asyncio
import threading
from collections import deque

import pytest

from checks import check, lesson_11
from checks.judging import Verdict, judge
from checks.lesson_11 import PlainOutbox, Promise, attempt, cases
from engine import CostRunner, Engine, EngineConfig, SamplingParams
from solutions.lesson_11 import Outbox as Solution
from tests.facts import assert_names
from tests.lessons.wrong.lesson_11 import Plain


def verdict(outbox) -> Verdict:
    return judge(outbox, cases(), attempt)


class KeepsTheThreadWaiting(Solution):
    def put(self, text):
        threading.Event().wait()
        return True


class ForgetsTheBeginning(Solution):
    """Bounded, and says so, but makes room by throwing away what waits."""

    def put(self, text):
        while len((self._text + text).encode()) > self._limit and self._text:
            self._text = self._text[1:]
        return super().put(text)


class LosesWhatCameWhileItWasBusy(Solution):
    async def get(self):
        self._ready.clear()
        await self._ready.wait()
        text, self._text = self._text, ""
        return text, self._reason


def test_an_outbox_that_drops_text_is_caught_by_what_the_reader_received() -> None:
    class Quiet(ForgetsTheBeginning):
        def put(self, text):
            held = len((self._text + text).encode())
            super().put(text)
            return held <= self._limit

    found = verdict(Quiet).broken
    assert found is not None and found.promise is Promise.SAME_TEXT
    assert_names(found.did, "'eHe'", "'He'")


def test_a_reader_that_comes_later_must_get_what_is_buffered() -> None:
    found = verdict(LosesWhatCameWhileItWasBusy).broken
    assert found is not None and found.promise is Promise.WAKES


def test_an_outbox_that_blocks_the_thread_is_rejected(monkeypatch) -> None:
    monkeypatch.setattr(lesson_11, "TIMEOUT_SECONDS", 0.5)
    found = verdict(KeepsTheThreadWaiting)
    assert found.broken is not None and found.broken.promise is Promise.NEVER_WAITS


class DequeWithACount:
    def __init__(self, limit):
        self.limit, self.held, self.pieces = limit, 0, deque()
        self.reason, self.ready = None, asyncio.Event()

    def put(self, text):
        size = len(text.encode())
        if self.held + size > self.limit:
            return False
        self.pieces.append(text)
        self.held += size
        self.ready.set()
        return True

    def close(self, reason):
        if self.reason is None:
            self.reason = reason
        self.ready.set()

    async def get(self):
        while not self.pieces and self.reason is None:
            self.ready.clear()
            await self.ready.wait()
        if not self.pieces:
            return "", self.reason
        text = self.pieces.popleft()
        self.held -= len(text.encode())
        return text, None


class LetsAllGoWhenItIsFull(Solution):
    """Like the server's own: a reader that is cut off gets the reason and no more text."""

    def put(self, text):
        fits = super().put(text)
        if not fits:
            self._text = ""
        return fits


class Polls(Solution):
    """Sleeps a little and looks again; nothing wakes it."""

    async def get(self):
        while not self._text and self._reason is None:
            await asyncio.sleep(0.001)
        return await super().get()


class SleepsOn(Solution):
    """Polls, but for a text alone: it misses the end."""

    async def get(self):
        while not self._text:
            await asyncio.sleep(0.001)
        return await super().get()


def test_a_reader_that_polls_but_misses_the_end_is_rejected(monkeypatch) -> None:
    monkeypatch.setattr(lesson_11, "POLL_SECONDS", 0.5)
    found = verdict(SleepsOn).broken
    assert found is not None and found.promise is Promise.WAKES


class OneLetterAtATime(Solution):
    async def get(self):
        await self._ready.wait()
        letter, self._text = self._text[:1], self._text[1:]
        if not self._text and self._reason is None:
            self._ready.clear()
        return letter, None if self._text else self._reason


class ClearsInAnyCase(Solution):
    """Text and reason leave together, so no `get` follows the reason."""

    async def get(self):
        await self._ready.wait()
        self._ready.clear()
        text, self._text = self._text, ""
        return text, self._reason


class WithAFuture:
    def __init__(self, limit):
        self.free, self.text, self.reason, self.woken = limit, "", None, None

    def wake(self):
        if self.woken and not self.woken.done():
            self.woken.set_result(None)

    def put(self, text):
        if (size := len(text.encode())) > self.free:
            return False
        self.free, self.text = self.free - size, self.text + text
        self.wake()
        return True

    def close(self, reason):
        self.reason = self.reason or reason
        self.wake()

    async def get(self):
        if not self.text and self.reason is None:
            self.woken = asyncio.get_running_loop().create_future()
            await self.woken
        text, self.text = self.text, ""
        self.free += len(text.encode())
        return text, self.reason


class GetReturnsTheReasonOnce(Plain):
    async def get(self):
        await self.ready.wait()
        text, self.text = self.text, ""
        reason = self.reason
        self.reason = None
        self.ready.clear()
        return text, reason


class ListOfPieces:
    def __init__(self, limit):
        self.pieces, self.limit, self.why = [], limit, None
        self.ready = asyncio.Event()

    def size(self):
        return sum(len(piece.encode()) for piece in self.pieces)

    def put(self, text):
        fits = self.size() + len(text.encode()) <= self.limit
        if fits:
            self.pieces.append(text)
            self.ready.set()
        return fits

    def close(self, reason):
        self.why = self.why or reason
        self.ready.set()

    async def get(self):
        while not self.pieces and not self.why:
            await self.ready.wait()
            if not self.pieces and not self.why:
                self.ready.clear()
        whole = "".join(self.pieces)
        self.pieces.clear()
        self.ready.clear()
        return whole, self.why


class WithACondition(Plain):
    """A queue of one wake-up call."""

    def __init__(self, limit):
        super().__init__(limit)
        self.bell = asyncio.Queue()

    def put(self, text):
        if len(self.text.encode()) + len(text.encode()) > self.limit:
            return False
        self.text += text
        self.bell.put_nowait(None)
        return True

    def close(self, reason):
        if self.reason is None:
            self.reason = reason
        self.bell.put_nowait(None)

    async def get(self):
        while not self.text and self.reason is None:
            await self.bell.get()
        text, self.text = self.text, ""
        return text, self.reason


class Bytes:
    """Keeps bytes, and gives the reason in a get of its own."""

    def __init__(self, limit):
        self.limit, self.held, self.reason = limit, bytearray(), None
        self.ready = asyncio.Event()

    def put(self, text):
        data = text.encode()
        if len(data) > self.limit - len(self.held):
            return False
        self.held += data
        self.ready.set()
        return True

    def close(self, reason):
        if self.reason is None:
            self.reason = reason
        self.ready.set()

    async def get(self):
        while True:
            if self.held:
                text = self.held.decode()
                self.held.clear()
                return text, None
            if self.reason is not None:
                return "", self.reason
            self.ready.clear()
            await self.ready.wait()


RIGHT = [
    Solution,
    Polls,
    PlainOutbox,
    DequeWithACount,
    LetsAllGoWhenItIsFull,
    OneLetterAtATime,
    ClearsInAnyCase,
    WithAFuture,
    GetReturnsTheReasonOnce,
    ListOfPieces,
    WithACondition,
    Bytes,
]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_outbox_is_accepted(right, capsys) -> None:
    assert check.lesson_11(right) is right
    assert "keeps its promises in all" in capsys.readouterr().out


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_outbox_cuts_off_the_sleeping_reader_and_no_other(right) -> None:
    runner = CostRunner(10, 0.25)
    engine = Engine(runner, EngineConfig(max_batch_size=4), clock=runner.clock)
    for name in ("Ada", "Bo", "Kim"):
        engine.submit(name, SamplingParams(max_tokens=30, ignore_eos=True), label=name)

    lengths = {1: 0, 2: 0}  # what the laptops that are awake have read

    async def laptop(id_, outbox):
        reason = None
        while reason is None:
            text, reason = await outbox.get()
            lengths[id_] += len(text)
        return lengths[id_], reason

    async def serve():
        outboxes = {id_: right(8) for id_ in engine.requests}
        awake = [asyncio.create_task(laptop(id_, outboxes[id_])) for id_ in (1, 2)]
        written = 0
        while engine.has_work():
            output = await asyncio.to_thread(engine.step)
            for gained in output.tokens:
                if not outboxes[gained.request.id].put("".join(gained.texts)):
                    outboxes[gained.request.id].close("slow_reader")
                    engine.abort(gained.request.id)
            for request in output.finished:
                outboxes[request.id].close(request.finish_reason)
            written += sum(
                len("".join(one.texts)) for one in output.tokens if one.request.id in lengths
            )
            while sum(lengths.values()) < written:
                await asyncio.sleep(0)
        return await asyncio.gather(*awake)

    assert asyncio.run(serve()) == [(30, "length"), (30, "length")]
    assert engine.log.requests.finish_reason.tolist() == ["length", "length", "abort"]
    assert engine.log.requests.output_tokens.tolist() == [30, 30, 9]


class Stub:
    def __init__(self, limit):
        self.limit = limit

    def put(self, text):
        """Add text."""
        ...

    def close(self, reason):
        """The end."""
        ...

    async def get(self):
        """The text."""
        ...


def test_an_untouched_stub_counts_as_unwritten_and_the_lesson_uses_its_own(capsys) -> None:
    assert check.lesson_11(Stub) is PlainOutbox
    assert "put, close and get: not written yet" in capsys.readouterr().out


def test_cases_come_shortest_first_and_end_once() -> None:
    lengths = [len(story.acts) for story in cases()]
    assert lengths == sorted(lengths)
