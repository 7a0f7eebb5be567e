"""The facts behind the answers of `why` in the lessons, and errors for what a log cannot know.

The sentences themselves: `tests/test_wording.py`.
"""

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import vocabulary as v
from engine.events.log import EventLog
from engine.part_errors import PolicyError
from engine.scheduling.policies import Fcfs
from engine.scheduling.sampling_params import SamplingParams
from engine.simulation.cost_runner import CostRunner
from engine.why import WhyError, why
from engine.why.shortfall import Shortfall
from tests.engine.explanations import explain
from tests.engine.storyboard import (
    DOCUMENTS,
    FIRST_LOOK,
    FIRST_LOOK_CONFIG,
    FULL_MEMORY,
    FULL_MEMORY_CONFIG,
    simulate,
)
from tests.facts import assert_names, raises_naming


def full_memory():
    config = EngineConfig(**FULL_MEMORY_CONFIG)
    engine, requests = simulate(config, FULL_MEMORY)
    return engine, {name: request.id for name, request in requests.items()}


def test_00_eva_waits_for_a_place() -> None:
    engine, requests = simulate(EngineConfig(**FIRST_LOOK_CONFIG), FIRST_LOOK)
    eva = requests["Eva"].id
    waits = explain(engine.log, eva, step=8)
    blocked = waits.facts.event.blocked
    assert (blocked.request, blocked.reason) == (eva, "batch_full")
    assert (blocked.need, blocked.have, waits.facts.config.max_batch_size) == (1, 0, 4)
    assert waits.facts.state.running == [requests[name].id for name in ("Ada", "Bo", "Cleo", "Dev")]
    assert_names(waits.text, "Eva (r5)", "Ada (r1)", "Bo (r2)", "Cleo (r3)", "Dev (r4)")
    starts = explain(engine.log, eva, step=10)
    admission = starts.facts.admission
    assert (admission.resumed, admission.found, admission.tokens) == (False, 16, 26)
    assert admission.sharers == [requests[name].id for name in ("Ada", "Cleo")]
    [row] = [row for row in starts.facts.event.rows if row.request == eva]
    assert (row.start, row.count) == (16, 10)
    assert_names(starts.text, "Eva (r5)", "Ada (r1)", "Cleo (r3)", 16, 26, 10)
    assert engine.why(requests["Eva"], step=10) == starts.text


def test_09_why_the_victim_gave_way_and_why_it_is_not_back_at_once() -> None:
    engine, ids = full_memory()
    preemption = explain(engine.log, ids["r3"], step=20).facts.preemption
    assert preemption.event.needed_by == ids["r2"]
    blocks = preemption.held, preemption.shared, preemption.cached, preemption.freed
    assert blocks == (6, 2, 3, 1)
    waits = explain(engine.log, ids["r3"], step=21)
    blocked = waits.facts.event.blocked
    assert (blocked.request, blocked.reason, blocked.need) == (ids["r3"], "whole_sequence", 1)
    assert (len(waits.facts.state.free), waits.facts.state.evictable) == (0, 3)
    assert waits.head_prefix.unlocked == 3
    assert waits.shortfall == Shortfall(1, "free block")
    resumes = explain(engine.log, ids["r3"], step=27).facts.admission
    assert (resumes.resumed, resumes.found, resumes.tokens) == (True, 40, 45)


def test_07_a_miss_names_the_eviction() -> None:
    config = EngineConfig(token_budget=64, max_kv_tokens=12 * 8, block_size=8)
    engine, requests = simulate(config, DOCUMENTS)
    told = explain(engine.log, requests["B2"].id, step=19)
    admission = told.facts.admission
    assert (admission.resumed, admission.found, admission.tokens) == (False, 0, 27)
    lost = admission.lost
    assert lost.usable(admission, config.block_size) == 24
    assert (lost.step, lost.event.needed_by) == (13, requests["D1"].id)
    assert_names(told.text, 0, 27, 24, 13, "D1 (r5)")


def test_why_says_if_a_request_is_not_there() -> None:
    engine, ids = full_memory()
    before = explain(engine.log, ids["r3"], step=2)
    assert before.span.begin > before.log_index.steps[2]
    after = explain(engine.log, ids["r2"], step=engine.step_count)
    assert after.span.end < after.log_index.steps[engine.step_count]
    assert after.span.reason == "length"
    assert_names(after.text, "length")


def test_what_the_log_does_not_know_is_an_error() -> None:
    engine, ids = full_memory()
    with raises_naming(WhyError, "request", 99, 1, 3):
        engine.why(99)
    with raises_naming(WhyError, "step", 0, 1, 31):
        engine.why(ids["r1"], step=0)


def test_a_window_of_a_log_is_enough() -> None:
    engine, ids = full_memory()
    window = EventLog(window=60)
    for event in engine.log:
        window.append(event)
    assert isinstance(window[0], v.Keyframe)
    step = engine.step_count
    assert why(window, ids["r3"], step) == engine.why(ids["r3"], step)


def test_a_window_knows_which_policy_chose_the_victim() -> None:
    engine, ids = full_memory()
    begin = next(
        index
        for index, event in enumerate(engine.log)
        if isinstance(event, v.StepStarted) and event.step == 19
    )
    window = EventLog()
    window.append(engine.log.state(begin - 1).keyframe())
    for event in engine.log[begin:]:
        window.append(event)
    told = why(window, ids["r3"], 20)
    assert_names(told, "Fcfs")
    assert told == engine.why(ids["r3"], step=20)


def test_a_sample_that_has_not_forked_off_is_known_by_its_id() -> None:
    config = EngineConfig(token_budget=2, max_kv_tokens=64, block_size=4)
    engine = Engine(CostRunner(1, 1), config)
    first = engine.submit(b"abcdef", SamplingParams(n=2), label="Ada")
    second = engine.submit(b"xyz", SamplingParams(n=2))
    for _ in range(3):
        engine.step()
    told = explain(engine.log, 2, step=2)
    assert (told.span.parent, told.span.sample) == (first.id, 1)
    assert told.span.begin > told.log_index.steps[2]
    assert told.log_index.spans[first.id].end > told.log_index.steps[2]
    assert_names(told.text, 2, "Ada (r2)", 1, "Ada (r1)")
    assert explain(engine.log, first.id, step=3).facts.state.requests[first.id].slots == 2
    engine.abort(second.id)
    engine.step()
    never = explain(engine.log, 4)
    assert (never.span.begin, never.span.parent, never.span.sample) == (None, second.id, 1)
    assert never.log_index.spans[second.id].end < never.log_index.steps[never.step]
    assert_names(never.text, "r4", "r3")


def test_the_policy_is_named_by_the_class_that_ran() -> None:
    class Mine(Fcfs):
        pass

    config = EngineConfig(**FULL_MEMORY_CONFIG)
    engine, requests = simulate(config, FULL_MEMORY, policy=Mine())
    preempted = engine.why(requests["r3"], step=20)
    assert_names(preempted, "Mine")


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
        engine.why(1, step=1)
    started = explain(engine.log, 2)
    assert (started.step, started.facts.admission.resumed) == (2, False)


def test_why_names_the_policy_that_deferred_a_request() -> None:
    config = EngineConfig(max_kv_tokens=512, policy="lpm")
    engine = Engine(CostRunner(1, 1), config)
    prompt = list(range(40, 96))
    for last in (1, 2):
        engine.submit([*prompt, last], SamplingParams())
    engine.submit([1], SamplingParams())
    engine.step()
    put_off, started = explain(engine.log, 2), explain(engine.log, 3)
    assert (2, "policy") in put_off.facts.event.skipped
    assert_names(put_off.text, 1, "r2", "LongestPrefixMatch")
    assert (started.step, started.facts.admission.resumed) == (1, False)


def test_a_larger_budget_serves_running_requests_first() -> None:
    """Additional budget goes to the prompt in progress until it is complete."""
    config = EngineConfig(token_budget=4, max_kv_tokens=256, block_size=4)
    engine = Engine(CostRunner(1, 1), config)
    engine.submit(list(range(97, 107)), SamplingParams())
    waiting = engine.submit([97], SamplingParams())
    engine.step()
    told = explain(engine.log, waiting.id)
    blocked = told.facts.event.blocked
    assert (blocked.request, blocked.reason) == (waiting.id, "token_budget")
    assert (blocked.need, blocked.have) == (1, 0)
    assert [(row.request, row.count) for row in told.facts.event.rows] == [(1, 4)]
    assert told.shortfall == Shortfall(7, "token")


def test_a_prompt_that_is_scored_is_said_to_be_computed_whole() -> None:
    engine = Engine(CostRunner(1, 1), EngineConfig(max_kv_tokens=256, block_size=4))
    for params in (SamplingParams(max_tokens=1), SamplingParams(max_tokens=1, prompt_logprobs=0)):
        engine.submit(list(range(97, 107)), params)
        engine.step()
    admission = explain(engine.log, 2).facts.admission
    assert (admission.found, admission.tokens, admission.scored) == (0, 10, True)
