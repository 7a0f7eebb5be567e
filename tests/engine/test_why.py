"""The facts behind the answers of `why` in the lessons, and errors for what a log cannot know.

The sentences themselves: `tests/test_wording.py`.
"""

import pytest

from engine import CostRunner, Engine, EngineConfig, EventLog, SamplingParams
from engine.core.log import vocabulary as v
from engine.core.part_errors import PolicyError
from engine.core.scheduling.policies import Fcfs
from engine.simulation.scenarios import scenario
from tests.engine.explanations import explain
from tests.facts import assert_names, raises_naming
from visualizer import read
from visualizer.reading.why import WhyError, why


def test_what_the_log_does_not_know_is_an_error() -> None:
    log = scenario("preemption").run()
    with raises_naming(WhyError, "request", 99, "r1", "r3"):
        read(log).why(99)
    with raises_naming(WhyError, "step", 0, 1, 31):
        read(log).why(1, step=0)


def test_a_window_knows_which_policy_chose_the_victim() -> None:
    log = scenario("preemption").run()
    begin = next(
        index
        for index, event in enumerate(log)
        if isinstance(event, v.StepStarted) and event.step == 19
    )
    window = EventLog.from_events([log.state(begin - 1).keyframe(), *log[begin:]])
    told = why(window, 3, 20)
    assert_names(told, "Fcfs")
    assert told == read(log).why(3, step=20)


def test_a_step_that_a_part_spoiled_is_said_to_have_decided_nothing() -> None:
    class FailsOnce(Fcfs):
        failed = False

        def defer(self, request, tree, computing):
            first, self.failed = not self.failed, True
            if first:
                raise RuntimeError("planted")
            return False

    engine = Engine(CostRunner(1, 1), EngineConfig(max_kv_tokens=256), policy=FailsOnce())
    for _ in range(2):
        engine.submit([97, 98], SamplingParams())
    with pytest.raises(PolicyError):
        engine.step()
    engine.step()
    with raises_naming(WhyError, "step", 1):
        read(engine.log).why(1, step=1)
    started = explain(engine.log, 2)
    assert (started.step, started.facts.admission.resumed) == (2, False)
