"""The hash cache: what vLLM's block pool does, event by event and block by block."""

import pytest

from engine import ConfigError, CostRunner, Engine, EngineConfig, SamplingParams
from engine.core.cache.block_pool import BlockPool
from engine.core.cache.eviction import LFU
from engine.core.cache.hash_cache import HashCache
from engine.core.cache.radix_tree import RadixTree
from engine.core.log import vocabulary as v
from engine.simulation.checking_runner import WrongKVError
from tests.engine.invariants import check_after_step, checked
from tests.engine.workloads import TOKENIZER, FailingRunner, finish
from tests.facts import raises_naming

STEM = [97 + index % 7 for index in range(12)]
SETTINGS = dict(token_budget=64, max_batch_size=4, max_kv_tokens=64, block_size=4)


def engine_with(failures: set[int] | None = None, **settings: object) -> Engine:
    """An engine like vLLM whose every event and step is checked."""
    config = EngineConfig.like("vllm", **SETTINGS | settings)
    return checked(Engine, FailingRunner(failures or set()), config, tokenizer=TOKENIZER)


def submit(engine: Engine, prompt: list[int], output: int = 2, **more: object) -> int:
    params = SamplingParams(max_tokens=output, ignore_eos=True)
    return engine.submit(prompt, params, **more).id


def test_blocks_of_a_failed_forward_pass_are_not_found() -> None:
    engine = engine_with(failures={1})
    for own in (1, 2):
        submit(engine, [*STEM, 100 + own])
    engine.step()
    assert len(engine.log.of(v.BlockWithdrawn)) == 3
    assert not engine.requests
    submit(engine, [*STEM, 103])
    finish(engine, check_after_step)
    assert engine.log.of(v.Admitted)[-1].blocks == []


def test_what_a_victim_was_scheduled_in_the_same_step_is_not_found() -> None:
    """The less urgent request fills a block in the step in which the urgent one takes its memory."""
    engine = engine_with(policy="priority", token_budget=8, max_kv_tokens=28)
    calm = submit(engine, [97 + index for index in range(20)], 9, priority=9)
    engine.step()
    urgent = submit(engine, [120], 8, priority=0)
    while not engine.log.of(v.Preempted):
        engine.step()
        check_after_step(engine)
    [withdrawn], [preempted] = engine.log.of(v.BlockWithdrawn), engine.log.of(v.Preempted)
    assert (preempted.request, preempted.needed_by) == (calm, urgent)
    assert withdrawn.request == calm
    finish(engine, check_after_step)
    assert engine.log.of(v.Admitted)[-1].resumed


def test_the_checking_runner_notices_a_block_that_was_never_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HashCache, "withdraw", lambda self, requests, lost=frozenset(): None)
    engine = Engine(FailingRunner({1}), EngineConfig.like("vllm", **SETTINGS), tokenizer=TOKENIZER)
    submit(engine, [*STEM, 101])
    engine.step()
    request = engine.requests[submit(engine, [*STEM, 103])]
    finish(engine, check_after_step)
    assert WrongKVError.__name__ in request.error


@pytest.mark.parametrize(("name", "part"), [("tree", RadixTree(4)), ("eviction", LFU())])
def test_parts_of_the_radix_tree_are_refused(name: str, part: object) -> None:
    assert EngineConfig.like("vllm", prefix_cache=False).prefix_cache == "off"
    for wrong in ("tgi", []):
        with raises_naming(ConfigError, "engine", "vllm", "sglang", wrong):
            EngineConfig.like(wrong)
    with raises_naming(ConfigError, "eviction", "lru", "lfu", "hash"):
        EngineConfig.like("vllm", eviction="lfu")
    with raises_naming(ConfigError, name, "radix", "hash"):
        Engine(CostRunner(1, 0), EngineConfig.like("vllm", **SETTINGS), **{name: part})


class CountingStack(list[int]):
    """Counts the blocks that are moved to make room at the beginning."""

    moved = 0

    def insert(self, index: int, block: int) -> None:  # type: ignore[override]
        self.moved += len(self) - index
        super().insert(index, block)

    def __setitem__(self, at, blocks) -> None:  # type: ignore[no-untyped-def]
        self.moved += len(self)
        super().__setitem__(at, blocks)


def test_clearing_moves_each_free_block_once() -> None:
    pool, evicted = BlockPool(500), list[v.BlockEvicted]()
    pool.free = CountingStack(pool.free)
    cache = HashCache(pool, 1, evicted.append)  # type: ignore[arg-type]
    for number in range(30):
        tokens = [number, *range(9)]
        cache.adopt(cache.match(tokens, 10), tokens)
    queue, free = cache.eviction_queue, list(pool.free)
    cache.clear()
    assert [event.block for event in evicted] == queue
    assert pool.free == [*reversed(queue), *free]
    assert pool.free.moved <= 500
