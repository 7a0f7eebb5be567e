"""What is stuck: the queue of every step equals the live one, with its ages and blockers."""

from functools import cache
from unittest import mock

import pytest

from engine import Engine, EventLog, SamplingParams
from engine.core.log import vocabulary as v
from tests.engine.workloads import make_engine, play, random_workload, simulated
from tests.facts import assert_names
from visualizer import read
from visualizer.indexed.known import known_of
from visualizer.reading.why import WhyError


class Watched(EventLog):
    """Remembers the live queue whenever a step was scheduled, and since when each request waits."""

    engine: Engine | None = None

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[int, list[tuple[int, int, bool]]] = {}  # request, steps, was preempted
        self.waited: dict[int, int] = {}

    def append(self, event: v.Event) -> None:
        super().append(event)
        if isinstance(event, v.Preempted):
            self.waited[event.request] = 0
        if isinstance(event, v.StepScheduled) and self.engine is not None:
            waiting = list(self.engine.scheduler.waiting)
            for request in waiting:
                self.waited[request.id] = self.waited.get(request.id, 0) + 1
            self.queues[self.engine.step_count] = [
                (one.id, self.waited[one.id], one.preemptions > 0) for one in waiting
            ]


@mock.patch("visualizer.reading.why.stuck.known_of", cache(known_of))  # once per finished log
def test_the_queue_of_every_step_is_the_live_one(soak: bool, first_seed: int) -> None:
    reasons = set[str | None]()
    for seed in range(first_seed, first_seed + (500 if soak else 30)):
        workload, log = random_workload(seed, may_be_async=True), Watched()
        log.engine = engine = make_engine(workload, log)
        play(engine, workload)
        steps = {}
        step = 0
        for event in log:
            step = event.step if isinstance(event, v.StepStarted) else step
            if isinstance(event, v.StepScheduled):
                steps[step] = event
        for step, queue in log.queues.items():
            found = read(log).stuck(step).requests
            assert [(one.request, one.steps, one.is_preempted) for one in found] == queue, seed
            blocked = steps[step].blocked
            for one in found:
                reasons.add(one.reason)
                if one.reason == "policy" and (one.request, "policy") in steps[step].skipped:
                    continue
                assert blocked is not None
                assert one.reason == blocked.reason
                assert one.behind in (None, blocked.request)
                assert (one.behind is None) >= (one.request == blocked.request)
                if one.need is not None:
                    assert (one.need, one.have) == (blocked.need, blocked.have)
    assert reasons >= {"batch_full", "token_budget", "whole_sequence", "static_batch"}


def two_wait() -> EventLog:
    engine = simulated(max_batch_size=1)
    for label in ("Ada", "Bo", "Cy"):
        engine.submit([1] * 10, SamplingParams(max_tokens=3, ignore_eos=True), label=label)
    engine.step()  # 20 ms
    engine.step()
    return engine.log


def test_age_and_blocker_in_words() -> None:
    queue = read(two_wait()).stuck()
    assert queue.step == 2
    bo, cy = queue.requests
    assert (bo.age, bo.steps, bo.need, bo.have) == (20_000, 2, 1, 0)
    assert (cy.age, cy.behind) == (20_000, 2)
    assert_names(str(queue), "2 requests", "step 2", "20 ms", "2 steps", "behind Bo")
    with pytest.raises(WhyError, match=r"step: 9 .*1 to 2"):
        read(two_wait()).stuck(9)
