"""A held engine is not a slow one: the log says when it was paused."""

from engine import SamplingParams
from engine.core.log import vocabulary as v
from engine.simulation.latencies import PausedTime
from tests.engine.workloads import simulated


def test_the_log_has_each_pause_with_its_times() -> None:
    engine = simulated()
    engine.submit([1, 2, 3], SamplingParams(max_tokens=2))
    engine.pause()
    engine.step()
    for change in (engine.pause, engine.resume, engine.resume):  # a second one writes nothing
        change()
    [paused], [resumed] = engine.log.of(v.EnginePaused), engine.log.of(v.EngineResumed)
    [step] = engine.log.of(v.StepFinished)
    assert paused.t["at"] == step.t["start"] < step.t["end"] == resumed.t["at"]
    assert engine.log.deterministic()[-1] == b'{"type":"engine_resumed"}'


def test_a_pass_that_runs_into_a_pause_is_not_paused() -> None:
    paused = PausedTime()
    for event in (
        v.EnginePaused({"at": 100}),
        v.EngineResumed({"at": 300}),
        v.StepFinished([], 1, t={"start": 40, "launched": 50, "ready": 120, "end": 350}),
        v.EnginePaused({"at": 400}),
        v.StepFinished([], 2, t={"start": 440, "launched": 450, "ready": 480, "end": 490}),
        v.EngineResumed({"at": 600}),
    ):
        paused.note(event)
    assert paused.intervals == [(120, 300), (400, 450), (480, 600)]
    assert paused.between(0, 1000) == 180 + 50 + 120
    assert paused.between(200, 460) == 100 + 50
    assert paused.between(300, 400) == 0
