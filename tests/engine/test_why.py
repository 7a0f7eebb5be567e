"""Answers in words: the lessons' sentences, and what a log cannot know."""

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
from tests.engine.storyboard import simulate
from tests.engine.test_storyboard import DOCUMENTS, FIRST_LOOK, FIRST_LOOK_CONFIG, FULL_MEMORY


def full_memory():
    config = EngineConfig(token_budget=32, max_batch_size=4, max_kv_tokens=14 * 8, block_size=8)
    engine, requests = simulate(config, FULL_MEMORY)
    return engine, {name: request.id for name, request in requests.items()}


def test_00_eva_waits_for_a_place() -> None:
    engine, requests = simulate(EngineConfig(**FIRST_LOOK_CONFIG), FIRST_LOOK)
    eva = requests["Eva"].id
    waits = engine.why(eva, step=8)
    assert waits.startswith("Step 8: Eva (r5) waits. No place in the batch: Eva (r5) needs 1, ")
    assert "has 0 of 4 places. In the batch: Ada (r1), Bo (r2), Cleo (r3), Dev (r4)." in waits
    starts = engine.why(requests["Eva"], step=10)
    assert "starts with 16 of 26 tokens found. Shared with Ada (r1), Cleo (r3)." in starts
    assert "It computes 10 tokens from position 16; its prompt has 26." in starts


def test_09_why_the_victim_gave_way_and_why_it_is_not_back_at_once() -> None:
    engine, ids = full_memory()
    preempted = engine.why(ids["r3"], step=20)
    assert "is preempted: it gives way to r2, which needed blocks" in preempted
    assert "Of its 6 blocks others keep 2, the cache keeps 3, 1 fell free." in preempted
    waits = engine.why(ids["r3"], step=21)
    assert "needs 1, free 0, evictable 3, all 3 part of its own match" in waits
    assert "With 1 more free block it would have started." in waits
    assert "resumes with 40 of 45 tokens found" in engine.why(ids["r3"], step=27)


def test_07_a_miss_names_the_eviction() -> None:
    config = EngineConfig(token_budget=64, max_kv_tokens=12 * 8, block_size=8)
    engine, requests = simulate(config, DOCUMENTS)
    answer = engine.why(requests["B2"].id, step=19)
    assert "starts with 0 of 27 tokens found" in answer
    assert "Once 24 tokens of it were cached" in answer
    assert "evicted in step 13, to make room for D1 (r5)." in answer


def test_who_is_not_there_is_said() -> None:
    engine, ids = full_memory()
    assert "has not arrived yet" in engine.why(ids["r3"], step=2)
    assert "has ended, with reason length" in engine.why(ids["r2"], step=engine.step_count)


def test_what_the_log_does_not_know_is_an_error() -> None:
    engine, ids = full_memory()
    with pytest.raises(WhyError, match="request: 99 is not in this log; its requests are 1 to 3"):
        engine.why(99)
    with pytest.raises(WhyError, match="step: 0 is not in this log; its steps are 1 to 31"):
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
    assert "the choice of the policy (Fcfs)" in told
    assert told == engine.why(ids["r3"], step=20)


def test_a_sample_that_has_not_forked_off_is_known_by_its_id() -> None:
    config = EngineConfig(token_budget=2, max_kv_tokens=64, block_size=4)
    engine = Engine(CostRunner(1, 1), config)
    first = engine.submit(b"abcdef", SamplingParams(n=2), label="Ada")
    second = engine.submit(b"xyz", SamplingParams(n=2))
    for _ in range(3):
        engine.step()
    assert engine.why(2, step=2) == (
        "Step 2: Ada (r2) does not exist yet: it is sample 1 of Ada (r1) and forks off when the "
        "prompt is complete."
    )
    assert "for each of 2 samples" in engine.why(first, step=3)
    engine.abort(second.id)
    engine.step()
    assert "never came to be: it is sample 1 of r3, which ended" in engine.why(4)


def test_the_policy_is_named_by_the_class_that_ran() -> None:
    class Mine(Fcfs):
        pass

    config = EngineConfig(token_budget=32, max_batch_size=4, max_kv_tokens=14 * 8, block_size=8)
    engine, requests = simulate(config, FULL_MEMORY, policy=Mine())
    preempted = engine.why(requests["r3"], step=20)
    assert "The victim is the choice of the policy (Mine)." in preempted


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
    with pytest.raises(WhyError, match="step: 1 decided nothing, because a part failed"):
        engine.why(1, step=1)
    assert engine.why(2).startswith("Step 2: r2 starts")


def test_whom_the_policy_puts_off_hears_its_name() -> None:
    config = EngineConfig(max_kv_tokens=512, policy="lpm")
    engine = Engine(CostRunner(1, 1), config)
    prompt = list(range(40, 96))
    for last in (1, 2):
        engine.submit([*prompt, last], SamplingParams())
    engine.submit([1], SamplingParams())
    engine.step()
    put_off = "Step 1: r2 waits. The policy (LongestPrefixMatch) put it off and asked the next."
    assert engine.why(2).startswith(put_off)
    assert engine.why(3).startswith("Step 1: r3 starts")


def test_a_larger_budget_first_serves_those_who_run() -> None:
    """The prompt that is being computed takes what is added, until it is complete."""
    config = EngineConfig(token_budget=4, max_kv_tokens=256, block_size=4)
    engine = Engine(CostRunner(1, 1), config)
    engine.submit(list(range(97, 107)), SamplingParams())
    waiting = engine.submit([97], SamplingParams())
    engine.step()
    answer = engine.why(waiting)
    assert "r2 needs 1, has 0 of 4 tokens. The others took: r1 4." in answer
    assert "With 7 more tokens in the budget it would have started." in answer


def test_a_prompt_that_is_scored_is_said_to_be_computed_whole() -> None:
    engine = Engine(CostRunner(1, 1), EngineConfig(max_kv_tokens=256, block_size=4))
    for params in (SamplingParams(max_tokens=1), SamplingParams(max_tokens=1, prompt_logprobs=0)):
        engine.submit(list(range(97, 107)), params)
        engine.step()
    assert "starts with 0 of 10 tokens found. Its prompt is scored" in engine.why(2)
