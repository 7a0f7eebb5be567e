"""Requests submitted before given steps to a simulated machine, and logs whose steps last longer."""

import copy
from collections.abc import Callable

from engine import CostRunner, Engine, EngineConfig, EventLog, SamplingParams
from engine.core.log import vocabulary as v


def run_pinned(runner: CostRunner, config: EngineConfig, speakers: list[tuple[int, int, int]]):
    """Submit (step, prompt tokens, output tokens) before their steps; play to the end."""
    engine = Engine(runner, config, clock=runner.clock)
    pending = sorted(speakers)
    while pending or engine.has_work():
        # An idle engine does not step: the next request is submitted at once.
        while pending and (not engine.has_work() or pending[0][0] <= engine.step_count + 1):
            _, prompt, output = pending.pop(0)
            ids = [97 + (i * 7 + prompt) % 26 for i in range(prompt)]
            engine.submit(ids, SamplingParams(max_tokens=output))
        engine.step()
    return engine


def long_document(budget: int) -> Engine:
    config = EngineConfig(token_budget=budget, max_kv_tokens=4096, prefix_cache=False)
    return run_pinned(CostRunner(10, 0.25), config, [(1, 8, 30)] * 4 + [(8, 400, 8)])


def slower(log: EventLog, extra: Callable[[int, int], float]) -> EventLog:
    """Return the log with steps that last longer; what comes after a step is later by that.

    extra  step (a number from 1) and the microseconds it takes -> how many more it takes
    """
    late, number, other = 0, 0, EventLog()
    for event in copy.deepcopy(list(log)):
        if isinstance(event, v.RequestArrived):
            event.t["at"] += late
        elif isinstance(event, v.StepFinished):
            number, took = number + 1, event.t["end"] - event.t["start"]
            event.t["start"] += late
            late += round(extra(number, took))
            event.t["end"] += late
        other.append(event)
    return other


def texts_of(log: EventLog) -> dict[int, list[int]]:
    """The tokens of each request and sample, prompt and output."""
    tokens = {event.request: list(event.prompt) for event in log.of(v.RequestArrived)}
    for event in log.of(v.StepFinished):
        for row in event.tokens:
            tokens.setdefault(row.request, []).extend(row.ids)
    return tokens
