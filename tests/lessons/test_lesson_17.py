"""Lesson 17's exercise: right counts are accepted, and run in the engine."""

import random

import numpy as np
import pytest

from checks import check
from checks.lesson_17 import YourEngine, YourRequest
from engine import CostRunner, Engine, EngineConfig, EventLog, SamplingParams
from engine.core.log import vocabulary as v
from solutions.lesson_17 import Ahead as Solution

OWN = Engine


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
        length = min(self.last - 1, self.known + self.placeholders)
        return np.int64(0 if self.ended else max(0, length - self.computed))


RIGHT = [CountsInAnArray, Solution, CountingDown, KeepsThePlaceholderOfTheStepInFlight]


def serve(make: type[Engine], seed: int) -> EventLog:
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
    return engine.log


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_part_is_accepted_and_decides_in_the_engine(right, soak: bool) -> None:
    engine = check.lesson_17(right)
    assert issubclass(engine, YourEngine) and engine.part is right
    preempted = wasted = 0
    for seed in range(20 if soak else 6):
        yours = serve(engine, seed)
        own = serve(Engine, seed)
        assert list(yours.deterministic()) == list(own.deterministic()), seed
        preempted += len(own.of(v.Preempted))
        wasted += sum(len(event.wasted) for event in own.of(v.StepFinished))
    assert preempted > 5 and wasted > 5, "the workloads show too little"


def test_the_solution_says_of_each_token_what_the_engine_does_with_it(soak: bool) -> None:
    kept, dropped = 0, 0

    class Watched(Solution):
        def commit(self, token: int, ends: bool) -> bool:
            nonlocal kept, dropped
            answer = super().commit(token, ends)
            kept, dropped = kept + answer, dropped + (not answer)
            return answer

    class Engine(YourEngine):
        part = Watched

    for seed in range(20 if soak else 6):
        kept = dropped = 0
        log = serve(Engine, seed)
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
