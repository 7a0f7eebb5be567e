"""The log on disk and in memory: complete, unchanged, and with errors that name a bad line."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import CostRunner, Engine, EngineConfig, EventLog, LogError, SamplingParams
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.scheduling.policies import Policy
from tests.engine.workloads import random_log
from tests.facts import raises_naming


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_saved_log_comes_back_equal(seed: int) -> None:
    log = random_log(seed)
    again = EventLog.from_bytes(log.to_bytes())
    assert list(again) == list(log)
    assert again.state().core() == log.state().core()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), cut=st.floats(0, 1))
def test_a_torn_last_line_is_dropped_and_the_rest_kept(seed: int, cut: float) -> None:
    data = random_log(seed).to_bytes()
    first_line = data.index(b"\n") + 1
    torn = data[: first_line + int(cut * (len(data) - first_line))]
    whole = torn[: torn.rindex(b"\n") + 1]
    assert EventLog.from_bytes(torn).to_bytes() == whole


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), window=st.integers(2, 60))
def test_a_window_starts_with_a_keyframe_and_ends_in_the_same_state(seed: int, window: int) -> None:
    whole, kept = random_log(seed), random_log(seed, EventLog(window=window))
    assert len(kept) <= window
    assert kept.next_seq == whole.next_seq
    assert kept.state().core() == whole.state().core()
    again = EventLog.from_bytes(kept.to_bytes())
    assert again.next_seq == whole.next_seq
    assert again.state().core() == whole.state().core()
    if len(whole) > window:
        assert isinstance(kept[0], v.Keyframe)


def test_folding_from_any_keyframe_reaches_the_same_state() -> None:
    for seed in range(40):
        log = random_log(seed)
        for at in Random(seed).choices(range(len(log)), k=3):
            state = State()
            state.apply(log.state(at).keyframe())
            for event in log.since(at + 1):
                state.apply(event)
            assert state.core() == log.state().core()
            assert state.keyframe() == log.state().keyframe()


def test_a_log_of_another_schema_version_is_refused_with_both_versions() -> None:
    data = random_log(1).to_bytes().replace(b'"schema":2', b'"schema":7', 1)
    window = EventLog()
    window.append(random_log(1).state().keyframe())
    window[0].state.schema = 7
    for old, reads in ((data, v.SCHEMA_VERSION), (window.to_bytes(), v.KEYFRAME_SCHEMA_VERSION)):
        with raises_naming(LogError, 7, reads):
            EventLog.from_bytes(old)


def test_a_log_without_a_beginning_or_without_a_line_is_refused() -> None:
    lines = random_log(1).to_bytes().splitlines(keepends=True)
    with raises_naming(LogError, "run_started", "keyframe"):
        EventLog.from_bytes(b"".join(lines[1:]))
    with pytest.raises(LogError):
        EventLog.from_bytes(b"")


def test_measured_values_sit_under_one_last_key() -> None:
    for line in random_log(3).to_bytes().splitlines():
        if b'"t":' in line:
            assert line.rindex(b',"t":{') > line.index(b'"type"')
            assert line.endswith(b"}}")


def test_the_time_of_scheduling_is_measured_apart_from_the_forward_pass() -> None:
    runner = CostRunner(base_ms=1, per_token_ms=0)

    class Slow(Policy):
        def admit(self, waiting, room):
            runner.clock.advance(300)

    engine = Engine(runner, EngineConfig(), policy=Slow(), clock=runner.clock)
    engine.submit([1], SamplingParams(max_tokens=1))
    engine.step()
    [finished] = engine.log.of(v.StepFinished)
    assert [finished.t[key] for key in ("start", "scheduled", "end")] == [0, 300, 1300]
