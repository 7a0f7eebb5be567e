"""Lesson 11's exercise: wrong outboxes are refused helpfully, right ones feed thirty readers."""

import asyncio
import threading
from collections import deque

import pytest

from checks import check, lesson_11
from checks.judging import Verdict, judge
from checks.lesson_11 import PlainOutbox, attempt, cases
from engine import CostRunner, Engine, EngineConfig, SamplingParams
from solutions.lesson_11 import Outbox as Solution


def verdict(outbox) -> Verdict:
    return judge(outbox, cases(), attempt)


# Wrong


class WaitsForTheReader(Solution):
    async def put(self, text):
        while not Solution.put(self, text):
            await asyncio.sleep(0)
        return True


class KeepsTheThreadWaiting(Solution):
    def put(self, text):
        threading.Event().wait()
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


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (WaitsForTheReader, ["put() gave a coroutine", "29 readers wait with it"]),
        (
            DropsTheOldest,
            ["put('He') said True.", "no more waits than the limit", "2 bytes waited"],
        ),
        (NeverSaysNo, ["no more waits than the limit", "the limit is 3, and 'He' has 2"]),
        (CountsLetters, ["no more waits than the limit", "'é' has 2"]),
        (CountsWhatHasLeft, ["put('He') said False.", "what fits is taken", "0 bytes waited"]),
        (FillsToTheBrimOnly, ["put('llo') said False.", "what fits is taken"]),
        (SaysNothing, ["gave None", "put() says True, or False"]),
        (NeverWakes, ["The reader slept although 'He' was there.", "Who wakes a reader"]),
        (EndsWithoutWaking, ["The reader slept although the end had come."]),
        (EndsBeforeTheText, ["was told 'stop' while 'He' still waited", "the reason comes last"]),
        (DoesNotWait, ["get() came back with nothing.", "asks again at once"]),
        (TheLastReasonCounts, ["was told 'stop'", "Here close('slow_reader') came first."]),
        (SharesItsList, ["every reader has an outbox of its own", "with the class?"]),
        (DoesNotLetItselfBeAwaited, ["get() gave ('', None) at once.", "before `def`?"]),
        (GivesTextOnly, ["get() gave '", "a text and a reason"]),
    ],
)
def test_a_wrong_outbox_is_refused_with_the_story_and_the_promise(wrong, said: list[str]) -> None:
    found = verdict(wrong)
    assert not found.passed
    message = " ".join(str(found).split())
    assert "An outbox of" in message
    for words in said:
        assert words in message


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


def test_dropping_the_oldest_is_told_by_what_the_reader_received() -> None:
    class Quiet(ForgetsTheBeginning):
        def put(self, text):
            held = len((self._text + text).encode())
            super().put(text)
            return held <= self._limit

    message = " ".join(str(verdict(Quiet)).split())
    assert "The reader received 'eHe', and 'He' was sent." in message


def test_a_reader_who_comes_later_must_not_sleep_over_what_is_there() -> None:
    assert "The reader slept although" in str(verdict(LosesWhatCameWhileItWasBusy))


def test_an_outbox_that_blocks_the_thread_is_told_so(monkeypatch) -> None:
    monkeypatch.setattr(lesson_11, "PATIENCE_SECONDS", 0.5)
    found = verdict(KeepsTheThreadWaiting)
    message = " ".join(str(found).split())
    assert "Everything stood still" in message
    assert "put() and close() never wait" in message


# Right


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
    """Like the server's own: whoever is cut off is told so, and gets nothing more."""

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


def test_a_reader_that_polls_but_misses_the_end_is_told_so(monkeypatch) -> None:
    monkeypatch.setattr(lesson_11, "POLL_SECONDS", 0.5)
    assert "The reader slept although the end had come." in str(verdict(SleepsOn))


RIGHT = [Solution, Polls, PlainOutbox, DequeWithACount, LetsAllGoWhenItIsFull]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_outbox_is_accepted(right, capsys) -> None:
    assert check.lesson_11(right) is right
    assert "keeps its promises in all" in capsys.readouterr().out


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_outbox_cuts_off_the_one_who_sleeps_and_nobody_else(right) -> None:
    runner = CostRunner(10, 0.25)
    engine = Engine(runner, EngineConfig(max_batch_size=4), clock=runner.clock)
    for name in ("Ada", "Bo", "Kim"):
        engine.submit(name, SamplingParams(max_tokens=30, ignore_eos=True), label=name)

    async def laptop(outbox):
        said, reason = "", None
        while reason is None:
            text, reason = await outbox.get()
            said += text
        return len(said), reason

    async def serve():
        outboxes = {id_: right(8) for id_ in engine.requests}
        awake = [asyncio.create_task(laptop(outboxes[id_])) for id_ in (1, 2)]
        while engine.has_work():
            output = await asyncio.to_thread(engine.step)
            for gained in output.tokens:
                if not outboxes[gained.request.id].put("".join(gained.texts)):
                    outboxes[gained.request.id].close("slow_reader")
                    engine.abort(gained.request.id)
            for request in output.finished:
                outboxes[request.id].close(request.finish_reason)
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


def test_an_untouched_stub_is_not_written_yet_and_the_lesson_uses_its_own(capsys) -> None:
    assert check.lesson_11(Stub) is PlainOutbox
    assert "put, close and get: not written yet" in capsys.readouterr().out


def test_cases_come_shortest_first_and_end_once() -> None:
    lengths = [len(story.acts) for story in cases()]
    assert lengths == sorted(lengths)
