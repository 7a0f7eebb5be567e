"""Limits of a request: the largest one is served to its end, one more is rejected by name."""

import pytest

from engine import CostRunner, Engine, EngineConfig, RequestError, SamplingParams
from tests.engine.workloads import finish
from visualizer import read

SMALL = {"block_size": 4, "max_kv_tokens": 24}  # six blocks


def submit(
    settings: dict[str, object], prompt: int, max_context: int | None = None, **params: int
) -> Engine:
    runner = CostRunner(base_ms=1, per_token_ms=1)
    runner.max_context = max_context
    engine = Engine(runner, EngineConfig(**settings), clock=runner.clock)
    engine.submit(list(range(1, prompt + 1)), SamplingParams(ignore_eos=True, **params))
    return engine


@pytest.mark.parametrize(
    ("settings", "fits", "too_much", "field"),
    [
        # The last sampled token is never computed: it needs a place in the context, but no slot.
        (SMALL, {"prompt": 8, "max_tokens": 17}, {"max_tokens": 18}, "max_tokens"),
        (SMALL, {"prompt": 24, "max_tokens": 1}, {"prompt": 25}, "prompt"),
        ({}, {"prompt": 6, "max_tokens": 4, "max_context": 10}, {"max_tokens": 5}, "max_tokens"),
        ({}, {"prompt": 9, "max_tokens": 1, "max_context": 10}, {"prompt": 10}, "prompt"),
        ({"chunked_prefill": False, "token_budget": 8}, {"prompt": 8}, {"prompt": 9}, "prompt"),
        # Two full blocks of the prompt are shared, and each sample has one of its own.
        (SMALL | {"preemption": False}, {"prompt": 8, "max_tokens": 5, "n": 4}, {"n": 5}, "n"),
    ],
)
def test_a_limit_is_where_it_is_said_to_be(
    settings: dict[str, object], fits: dict[str, int], too_much: dict[str, int], field: str
) -> None:
    engine = submit(settings, **fits)
    finish(engine)
    requests = read(engine.log).requests
    assert set(requests.finish_reason) == {"length"}
    assert len(requests) == fits.get("n", fits.get("best_of", 1))
    with pytest.raises(RequestError) as refused:
        submit(settings, **(fits | too_much))
    assert refused.value.field == field
