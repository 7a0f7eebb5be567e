"""Lesson 13's exercise: right outboxes are accepted and feed many readers."""

import asyncio
import threading

import pytest

from checks import check, lesson_13
from checks.judging import judge
from checks.lesson_13 import PlainOutbox, Promise, attempt, cases
from engine import CostRunner, Engine, EngineConfig, SamplingParams
from solutions.lesson_13 import Outbox as Solution
from visualizer import read

OWN = PlainOutbox


def size(one):
    return len(one.acts)


class KeepsTheThreadWaiting(Solution):
    def put(self, text):
        threading.Event().wait()
        return True


class SleepsOn(Solution):
    """Polls, but for a text alone: it misses the end."""

    async def get(self):
        while not self._text:
            await asyncio.sleep(0.001)
        return await super().get()


@pytest.mark.parametrize(
    ("wrong", "promise"), [(KeepsTheThreadWaiting, Promise.NEVER_WAITS), (SleepsOn, Promise.WAKES)]
)
def test_an_outbox_that_sleeps_for_ever_is_rejected(wrong, promise, monkeypatch) -> None:
    monkeypatch.setattr(lesson_13, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(lesson_13, "POLL_SECONDS", 0.2)
    found = judge(wrong, cases(), attempt).broken
    assert found is not None and found.promise is promise


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


class OneLetterAtATime(Solution):
    async def get(self):
        await self._ready.wait()
        letter, self._text = self._text[:1], self._text[1:]
        if not self._text and self._reason is None:
            self._ready.clear()
        return letter, None if self._text else self._reason


class GivesTheReasonOnce(Solution):
    """Text and reason leave together, so no `get` follows the reason."""

    async def get(self):
        await self._ready.wait()
        self._ready.clear()
        text, self._text, reason, self._reason = self._text, "", self._reason, None
        return text, reason


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


RIGHT = [
    Solution,
    PlainOutbox,
    LetsAllGoWhenItIsFull,
    Polls,
    OneLetterAtATime,
    GivesTheReasonOnce,
    WithAFuture,
]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_outbox_is_accepted_and_cuts_off_the_sleeping_reader_alone(right) -> None:
    assert check.lesson_13(right) is right
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
    assert read(engine.log).requests.finish_reason.tolist() == ["length", "length", "abort"]
    assert read(engine.log).requests.output_tokens.tolist() == [30, 30, 9]
