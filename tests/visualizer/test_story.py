"""A story says what a log with asynchronous scheduling shows only later."""

from engine import CostRunner, Engine, EngineConfig, SamplingParams
from engine.core.log import vocabulary as v
from visualizer.reading.messages import MESSAGES, text
from visualizer.reading.story import Story, plain


def test_a_row_computed_in_vain_is_named_with_its_reason():
    runner = CostRunner(10, 0.25, outputs={1: 4})
    engine = Engine(runner, EngineConfig(async_scheduling=True), clock=runner.clock)
    for _ in range(2):
        engine.submit("some words", SamplingParams(max_tokens=9))
    while engine.has_work():
        engine.step()
    [step] = [event.step for event in engine.log.of(v.StepFinished) if event.wasted]
    story = Story(engine.log, step)
    reason = text(MESSAGES["wasted"]["ended"], step="")
    assert reason in plain(story.fate(1), {})
    assert reason not in plain(story.fate(2), {})
    assert reason not in plain(Story(engine.log, step - 1).fate(1), {})
