"""Requests submitted before given steps to a simulated machine, and the lesson's long document."""

from engine import CostRunner, Engine, EngineConfig, SamplingParams


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
