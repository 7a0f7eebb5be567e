"""A held engine is not a slow one: the log says when it was paused."""

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import vocabulary as v
from engine.events.fold import State
from engine.scheduling.sampling_params import SamplingParams
from engine.simulation.cost_runner import CostRunner


def paused_engine() -> Engine:
    runner = CostRunner(10, 0.25)
    engine = Engine(runner, EngineConfig(), clock=runner.clock)
    engine.submit([1, 2, 3], SamplingParams(max_tokens=2))
    engine.pause()
    return engine


def test_the_log_has_each_pause_with_its_times() -> None:
    engine = paused_engine()
    engine.step()
    engine.resume()
    [paused], [resumed] = engine.log.of(v.EnginePaused), engine.log.of(v.EngineResumed)
    [step] = engine.log.of(v.StepFinished)
    assert paused.t["at"] == step.t["start"] < step.t["end"] == resumed.t["at"]
    assert engine.log.deterministic()[-1] == b'{"type":"engine_resumed"}'


def test_pausing_a_paused_engine_writes_nothing() -> None:
    engine = paused_engine()
    engine.pause()
    engine.resume()
    engine.resume()
    assert [len(engine.log.of(kind)) for kind in (v.EnginePaused, v.EngineResumed)] == [1, 1]


def test_a_keyframe_says_whether_the_engine_is_paused() -> None:
    engine = paused_engine()
    again = State()
    keyframe = engine.log.state().keyframe()
    again.apply(keyframe)
    assert again.paused
    engine.resume()
    again.apply(engine.log[-1])
    assert not again.paused
    del keyframe.state["paused"]  # as in a log of before the pauses
    again.apply(keyframe)
    assert not again.paused
