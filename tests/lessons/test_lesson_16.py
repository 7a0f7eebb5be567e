"""Lesson 16's exercise: right counts are accepted, and run in the engine."""

import random
from typing import Any

import numpy as np
import pytest

from checks import check
from checks.lesson_16 import YourEngine, YourRequest, _size, cases
from engine import CostRunner, Engine, EngineConfig, SamplingParams
from engine.events import EventLog
from engine.events import vocabulary as v
from solutions.lesson_16 import Ahead as Solution


class WithTheTextItself:
    """Keeps the tokens. A placeholder is None."""

    def __init__(self, prompt, max_tokens):
        self.prompt, self.max_tokens = prompt, max_tokens
        self.text, self.computed, self.over = [], 0, False

    def want(self):
        if self.over or len(self.text) == self.max_tokens:
            return 0
        return self.prompt + len(self.text) - self.computed

    def scheduled(self, count):
        self.computed += count
        if self.computed == self.prompt + len(self.text):
            self.text.append(None)

    def commit(self, token, ends):
        if self.over:
            return False
        place = self.text.index(None) if None in self.text else len(self.text)
        self.text[place : place + 1] = [token]
        self.over = ends or place + 1 == self.max_tokens
        return True

    def preempted(self):
        self.computed, self.text = 0, [one for one in self.text if one is not None]


class CountingDown:
    """Counts what is left to compute, and what may still be said."""

    def __init__(self, prompt, max_tokens):
        self.uncomputed, self.all = prompt, prompt
        self.may_say = self.must_come = max_tokens
        self.done = False

    def want(self):
        return self.uncomputed if self.may_say and not self.done else 0

    def scheduled(self, count):
        self.uncomputed -= count
        if not self.uncomputed:
            self.uncomputed, self.may_say = 1, self.may_say - 1

    def commit(self, token, ends):
        if self.done:
            return False
        self.all, self.must_come = self.all + 1, self.must_come - 1
        self.done = ends or not self.must_come
        if self.may_say > self.must_come:  # the placeholder was lost
            self.may_say, self.uncomputed = self.must_come, self.all
        return True

    def preempted(self):
        self.uncomputed, self.may_say = self.all, self.must_come


class KeepsThePlaceholderOfTheStepInFlight(Solution):
    """That step still brings its token, and its commit takes the placeholder."""

    def preempted(self):
        self.computed = 0


class CountsInAnArray(Solution):
    """An integer of numpy is a number like any other."""

    def want(self):
        return np.int64(super().want())


class ComparesWithWhatItWants(Solution):
    def scheduled(self, count):
        reaches = count == self.want()
        self.computed += count
        self.placeholders += reaches


class CutsAtTheLastToken(Solution):
    def want(self):
        length = min(self.last - 1, self.known + self.placeholders)
        return 0 if self.ended else max(0, length - self.computed)


RIGHT = [
    ComparesWithWhatItWants,
    CutsAtTheLastToken,
    CountsInAnArray,
    Solution,
    WithTheTextItself,
    CountingDown,
    KeepsThePlaceholderOfTheStepInFlight,
]


def serve(make: type[Engine], seed: int) -> tuple[EventLog, Any]:
    """Serve random requests with few seats and blocks; some answers end before max_tokens."""
    chance = random.Random(seed)
    outputs = {id_: chance.randint(1, 16) for id_ in range(1, 8) if chance.random() < 0.5}
    runner = CostRunner(10, 0.25, cpu_ms=5, outputs=outputs)
    config = EngineConfig(
        token_budget=chance.choice((4, 9, 64)), max_batch_size=4, block_size=4,
        max_kv_tokens=chance.choice((40, 44, 80)), prefix_cache="off",
        admission=chance.choice(("whole", "first_chunk")), async_scheduling=True,
    )  # fmt: skip
    engine = make(runner, config, clock=runner.clock)
    for _ in range(7):
        prompt = [7] * chance.randint(1, 20)
        engine.submit(prompt, SamplingParams(max_tokens=chance.randint(1, 20)))
        for _ in range(chance.randint(0, 4)):
            engine.step()
    while engine.has_work():
        engine.step()
    return engine.log, engine


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_part_is_accepted_and_decides_in_the_engine(right, capsys) -> None:
    engine = check.lesson_16(right)
    assert f"{right.__name__} keeps its promises in all" in capsys.readouterr().out
    assert issubclass(engine, YourEngine) and engine.part is right
    preempted = wasted = 0
    for seed in range(20):
        yours, _ = serve(engine, seed)
        own, _ = serve(Engine, seed)
        assert list(yours.deterministic()) == list(own.deterministic()), seed
        preempted += len(own.of(v.Preempted))
        wasted += sum(len(event.wasted) for event in own.of(v.StepFinished))
    assert preempted > 20 and wasted > 20, "the workloads show too little"


def test_the_solution_says_of_each_token_what_the_engine_does_with_it() -> None:
    kept, dropped = 0, 0

    class Watched(Solution):
        def commit(self, token: int, ends: bool) -> bool:
            nonlocal kept, dropped
            answer = super().commit(token, ends)
            kept, dropped = kept + answer, dropped + (not answer)
            return answer

    class Engine(YourEngine):
        part = Watched

    for seed in range(20):
        kept = dropped = 0
        log, _ = serve(Engine, seed)
        finished = log.of(v.StepFinished)
        assert kept == sum(len(event.tokens) for event in finished)
        assert dropped == sum(len(event.wasted) for event in finished)


def test_the_engine_asks_the_learners_part() -> None:
    """A part that the check rejects has a row in every second step only."""

    class Half(Solution):
        def want(self) -> int:
            return max(0, self.known - self.computed)

    class Engine(YourEngine):
        part = Half

    runner = CostRunner(10, 0.25)
    config = EngineConfig(prefix_cache="off", async_scheduling=True)
    engine = Engine(runner, config, clock=runner.clock)
    request = engine.submit("Hello", SamplingParams(max_tokens=4))
    while engine.has_work():
        engine.step()
    assert isinstance(request, YourRequest)
    rows = [len(event.rows) for event in engine.log.of(v.StepScheduled)]
    assert rows == [1, 0, 1, 0, 1, 0, 1, 0]


class Stub(Solution):
    """The lesson has `commit`; the other three are to be written."""

    def want(self):
        """How many tokens the next step may compute."""

    def scheduled(self, count):
        """A step will compute `count` tokens."""

    def preempted(self):
        """All KV is lost."""


def test_an_untouched_stub_counts_as_unwritten_and_the_engine_uses_its_own(capsys) -> None:
    assert check.lesson_16(Stub) is Engine
    message = capsys.readouterr().out
    assert "want, scheduled and preempted: not written yet" in message


def test_cases_come_smallest_first_and_are_the_same_each_time() -> None:
    assert cases() == sorted(cases(), key=_size)
    assert all(story.max_tokens <= 3 for story in cases()[:20])
