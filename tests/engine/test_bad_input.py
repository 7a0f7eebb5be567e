"""Invalid input is rejected in the constructor or call: the message names the field and the fix."""

from pathlib import Path

import pytest

from engine import (
    ConfigError,
    CostRunner,
    Engine,
    EngineConfig,
    RequestError,
    SamplingError,
    SamplingParams,
)
from engine.core.cache.block_pool import BlockPool
from engine.core.cache.radix_tree import RadixTree
from engine.core.scheduling.policies import Policy
from tests.engine.workloads import finish
from tests.facts import assert_names, raises_naming
from visualizer import read

ANYTHING = (
    None, True, -1, 0, 3, 0.5, float("nan"), float("inf"), "", "x", "5", b"x", [], [1], ["a"], [None],
    (), {}, {"a": 1}, set(), object(), range(3), Path("x"), 10**30, len,
)  # fmt: skip


def engine(config: EngineConfig | None = None, **parts: object) -> Engine:
    return Engine(CostRunner(base_ms=1, per_token_ms=1), config, **parts)


@pytest.mark.parametrize("field", EngineConfig.__struct_fields__)
def test_a_setting_is_taken_or_refused_by_name(field: str) -> None:
    taken = 0
    for value in ANYTHING:
        if field == "max_kv_tokens" and value == 10**30:
            continue  # a pretend machine has as much memory as it says
        try:
            engine(EngineConfig(**{field: value}))
            taken += 1
        except ConfigError as error:
            assert_names(error, field)
    assert taken <= 3


@pytest.mark.parametrize("field", SamplingParams.__struct_fields__)
def test_a_sampling_parameter_is_taken_or_refused_by_name(field: str) -> None:
    taken = 0
    for value in ANYTHING:
        try:
            params = SamplingParams(**{field: value})
            engine().submit([1, 2, 3], params)
            taken += 1
        except SamplingError as error:
            assert field in (error.field, "max_tokens")
        except RequestError as error:
            assert error.field == field
    assert 1 <= taken <= 6


@pytest.mark.parametrize("field", ["prompt", "params", "label", "priority", "submitted_at"])
def test_what_is_submitted_is_taken_or_refused_by_name_and_nothing_changes(field: str) -> None:
    taken = 0
    for value in ANYTHING:
        serving = engine()
        before = serving.snapshot()
        try:
            request = serving.submit(**{"prompt": [1, 2, 3], field: value})
        except RequestError as error:
            assert error.field == field
            assert serving.snapshot() == before
            continue
        taken += 1
        finish(serving)
        assert request.finish_reason
        assert len(read(serving.log).requests) == 1
        assert serving.log.from_bytes(serving.log.to_bytes()).state().core() == serving.snapshot()
    assert 1 <= taken <= 6


@pytest.mark.parametrize(
    ("parts", "facts"),
    [
        ({"policy": "sjf"}, ["policy", "key()", "sjf"]),
        ({"policy": Policy}, ["policy", "Policy"]),
        ({"eviction": "lfu"}, ["eviction", "key()", "lfu"]),
        ({"drafter": object()}, ["drafter", "propose()"]),
        ({"tool": object()}, ["tool"]),
        ({"pool": 5}, ["pool", "allocate()", 5]),
        ({"pool": BlockPool(5)}, ["pool", "config.num_blocks", 128, 5]),
        ({"tree": RadixTree(5)}, ["tree", "config.block_size", 16, 5]),
        ({"config": {"token_budget": 4}}, ["config", "EngineConfig"]),
    ],
)
def test_what_cannot_be_a_part_is_refused(parts: dict[str, object], facts: list[object]) -> None:
    with raises_naming(ConfigError, *facts):
        engine(**parts)
    with raises_naming(ConfigError, "runner", "run()"):
        Engine("bundled")


@pytest.mark.parametrize("part", ["pool", "tree"])
def test_a_part_that_has_served_is_refused(part: str) -> None:
    first = engine()
    first.submit([1] * 40)
    first.step()
    with raises_naming(ConfigError, part):
        engine(**{part: getattr(first, part)})
