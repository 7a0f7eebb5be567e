"""A held engine is not a slow one: the log says when it was paused."""

from engine import Engine, SamplingParams
from engine.core.log import vocabulary as v
from engine.simulation.latencies import PausedTime
from tests.engine.workloads import simulated
from visualizer import read


def paused_engine() -> Engine:
    engine = simulated()
    engine.submit([1, 2, 3], SamplingParams(max_tokens=2))
    engine.pause()
    return engine


def test_the_log_has_each_pause_with_its_times() -> None:
    engine = paused_engine()
    engine.step()
    for change in (engine.pause, engine.resume, engine.resume):  # a second one writes nothing
        change()
    [paused], [resumed] = engine.log.of(v.EnginePaused), engine.log.of(v.EngineResumed)
    [step] = engine.log.of(v.StepFinished)
    assert paused.t["at"] == step.t["start"] < step.t["end"] == resumed.t["at"]
    assert engine.log.deterministic()[-1] == b'{"type":"engine_resumed"}'


def test_a_pause_is_outside_ttft_and_itl_but_not_outside_e2e() -> None:
    engine = paused_engine()
    engine.clock.advance(1_000_000)
    engine.resume()
    engine.step()
    engine.pause()
    engine.clock.advance(2_000_000)
    engine.step()  # by hand: the step is not paused
    first, second = (event.t["end"] - event.t["start"] for event in engine.log.of(v.StepFinished))
    row = read(engine.log).requests.loc[1]
    assert (row.queue_ms, row.ttft_ms * 1000) == (0, first)
    assert row.itl_ms * 1000 == read(engine.log).tokens.gap_ms[1] * 1000 == second
    assert row.e2e_ms * 1000 == 3_000_000 + first + second
    time = read(engine.log).waterfall[1]
    assert [span.cause for span in time.spans] == ["paused", "prefill", "paused", "decode"]
    assert time.by_cause["paused"] == 3_000_000
    assert (time.ttft, time.total) == (first, 3_000_000 + first + second)


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
