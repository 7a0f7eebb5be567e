"""Asynchronous scheduling: a step is scheduled while the one before is computed."""

import threading
from collections.abc import Callable

import msgspec
import pytest

from engine import Cost, CostRunner, Engine, EngineConfig, EventLog, SamplingParams, simulate
from engine.core.log import vocabulary as v
from engine.core.part_errors import PolicyError
from engine.core.request import Request
from engine.core.scheduling.policies import Fcfs
from engine.simulation.checking_runner import CheckingRunner
from engine.simulation.scenarios import scenario
from tests.engine.bundled import bundled_engine
from tests.engine.workloads import FailingRunner, finish, next_token, simulated
from visualizer.reading.messages import MESSAGES, text
from visualizer.reading.why import why

DEFAULTS = dict(token_budget=64, max_kv_tokens=256, block_size=4, async_scheduling=True)


def say(engine: Engine, count: int, prompt: str = "some words", **params) -> Request:
    return engine.submit(prompt, SamplingParams(max_tokens=count, **params))


# Storyboard of lesson 17: the twelve requests of lesson 04, four seats


def table_run(asynchronous: bool, cpu_ms: float) -> EventLog:
    story = scenario("continuous_batching")
    config = msgspec.structs.replace(story.config, async_scheduling=asynchronous)
    return simulate(story.workload, config, cost=Cost(10, 0.25, cpu_ms=cpu_ms))


def facts(log: EventLog) -> tuple[int, float]:
    """Count the forward passes, and return the milliseconds of the run."""
    passes = sum(bool(event.rows) for event in log.of(v.StepScheduled))
    return passes, max(event.t["end"] for event in log.of(v.StepFinished)) / 1000


@pytest.mark.parametrize(
    ("cpu_ms", "synchronous", "asynchronous"),
    [(0, 452.5, 482.5), (5, 652.5, 487.5), (15, 1052.5, 663)],
)
def test_overlap_hides_cpu_time_and_costs_late_admissions(
    cpu_ms: int, synchronous: float, asynchronous: float
) -> None:
    assert facts(table_run(False, cpu_ms)) == (40, synchronous)
    assert facts(table_run(True, cpu_ms)) == (43, asynchronous)


# Whatever happens while a pass is in flight


def test_draining_finishes_the_step_in_flight_and_schedules_none() -> None:
    engine = simulated(10, 0.25, **DEFAULTS)
    say(engine, 5)
    engine.step()
    assert len(engine.drain().tokens) == 1
    assert not engine.is_in_flight
    assert engine.step_count == 1
    assert engine.drain().tokens == []
    finish(engine)
    assert engine.log.state().core() == engine.snapshot()


@pytest.mark.parametrize("prefix_cache", ["radix", "hash"])
def test_a_failed_pass_ends_its_requests_and_the_next_step_is_scheduled_again(
    prefix_cache: str,
) -> None:
    engine = Engine(FailingRunner({2}), EngineConfig(**DEFAULTS | {"prefix_cache": prefix_cache}))
    prompt = list(range(97, 117))
    first = engine.submit(prompt, SamplingParams(max_tokens=9, ignore_eos=True))
    engine.step()
    engine.step()
    late = engine.submit(prompt, SamplingParams(max_tokens=4, ignore_eos=True))
    [failed] = engine.step().finished
    assert failed is first
    assert "told to fail" in first.error
    finish(engine)
    assert (late.finish_reason, late.error) == ("length", "")
    assert engine.log.state().core() == engine.snapshot()
    [step] = [event.step for event in engine.log.of(v.StepFinished) if late.id in event.wasted]
    dropped = text(MESSAGES["wasted"]["dropped"], step="")
    assert dropped in why(engine.log, late.id, step)
    assert dropped not in why(engine.log, late.id, step - 1)


def test_a_mistake_of_a_policy_leaves_the_pass_in_flight() -> None:
    class Moody(Fcfs):
        fails = False

        def key(self, request, tree):
            if self.fails:
                raise ValueError("no")
            return super().key(request, tree)

    policy = Moody()
    runner = CostRunner(10, 0.25)
    engine = Engine(runner, EngineConfig(**DEFAULTS), clock=runner.clock, policy=policy)
    first = say(engine, 3)
    engine.step()
    policy.fails = True
    with pytest.raises(PolicyError):
        say(engine, 3, "more")
        engine.step()
    policy.fails = False
    assert engine.is_in_flight
    finish(engine)
    assert len(first.output_ids) == 3
    assert engine.log.state().core() == engine.snapshot()


class GatedRunner(CheckingRunner):
    """A runner whose passes wait for a gate."""

    def __init__(self, gate: Callable[[], None]) -> None:
        super().__init__(next_token)
        self.gate = gate
        self.threads: set[str] = set()

    def run(self, rows, copies):
        self.threads.add(threading.current_thread().name)
        self.gate()
        return super().run(rows, copies)


def test_a_step_is_scheduled_while_another_thread_computes_the_one_before() -> None:
    gate = threading.Event()
    runner = GatedRunner(lambda: gate.wait(10) and None)
    engine = Engine(runner, EngineConfig(**DEFAULTS))
    scheduled = engine.scheduler.schedule

    def schedule():
        plan = scheduled()
        if plan.step == 2:  # the first pass is still waiting
            assert not gate.is_set()
            gate.set()
        return plan

    engine.scheduler.schedule = schedule
    request = say(engine, 3, ignore_eos=True)
    finish(engine)
    assert len(request.output_ids) == 3
    assert runner.threads == {"forward pass"}


def test_ctrl_c_while_waiting_for_the_pass_loses_no_token(monkeypatch) -> None:
    engine = Engine(GatedRunner(lambda: None), EngineConfig(**DEFAULTS))
    request = say(engine, 4, ignore_eos=True)
    engine.step()
    done = engine.loop.flight.forward._done
    waits = []

    class Interrupted:
        def wait(self) -> None:
            waits.append(1)
            if len(waits) == 1:
                raise KeyboardInterrupt
            done.wait()

        def set(self) -> None:
            done.set()

    engine.loop.flight.forward._done = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    assert len(request.output_ids) == 1
    finish(engine)
    assert len(request.output_ids) == 4


# Equal tokens


@pytest.mark.parametrize("prefix_cache", ["radix", "hash"])
def test_the_model_says_the_same_in_both_modes(prefix_cache: str) -> None:
    params = [
        SamplingParams(max_tokens=12),
        SamplingParams(max_tokens=10, temperature=0.9, seed=3, n=2),
        SamplingParams(max_tokens=12, stop=(".",), logprobs=1),
        SamplingParams(max_tokens=10, repetition_penalty=1.2, prompt_logprobs=0),
        SamplingParams(max_tokens=30),
        SamplingParams(max_tokens=10, temperature=3.0, seed=1, bad_words=["the", " a"]),
    ]
    prompts = ["Once upon a time", "The cat", "A boat", "Tom and Lily", "What is 17 + 25?", "So"]
    said = []
    for asynchronous in (False, True):
        config = EngineConfig(
            max_kv_tokens=128, prefix_cache=prefix_cache, async_scheduling=asynchronous
        )
        engine = bundled_engine(config)
        completions = engine.complete(prompts, params, progress=False)
        assert not engine.is_in_flight  # the next engine has the same model
        said.append([(one.token_ids, one.text, one.finish_reason) for one in completions])
        assert engine.log.state().core() == engine.snapshot()
    assert said[0] == said[1]
