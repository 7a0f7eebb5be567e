"""Holds: a prefix stays locked without a request, within bounds, and never at a request's expense.

That the log tells every hold truly is a property of random workloads: `test_random_workloads.py`.
"""

import pytest

from engine import Engine, EngineConfig, SamplingParams
from engine.core.log import vocabulary as v
from engine.extensions.holds import HELD_SHARE
from engine.simulation.checking_runner import CheckingRunner
from tests.engine.invariants import check_after_step
from tests.engine.workloads import next_token

SIZE, BLOCKS = 4, 32
CACHED = [97] * SIZE * 4
MOST = int(BLOCKS * HELD_SHARE)


@pytest.fixture
def engine() -> Engine:
    config = EngineConfig(block_size=SIZE, max_kv_tokens=SIZE * BLOCKS, token_budget=256)
    return Engine(CheckingRunner(next_token), config)


def compute(engine: Engine, prompt: list[int], max_tokens: int = 1) -> None:
    engine.complete([prompt], SamplingParams(max_tokens=max_tokens, ignore_eos=True))


def test_a_held_prefix_survives_what_evicts_everything_else(engine: Engine) -> None:
    held, other = [97] * 16, [98] * 16
    for prompt in (held, other):
        compute(engine, prompt)
    hold = engine.holds.hold(held)
    engine.clear_prefix_cache()
    assert len(engine.tree.match(held, limit=9).blocks) == len(hold.block_table) == 4
    assert not engine.tree.match(other, limit=9).blocks
    for _ in range(2):  # the second time is harmless
        engine.holds.release(hold.id)
    assert len(engine.log.of(v.PrefixReleased)) == 1
    engine.clear_prefix_cache()
    assert len(engine.pool.free) == BLOCKS
    assert not engine.holds.hold(held).block_table, "what is not in the cache cannot be held"
    assert len(engine.log.of(v.PrefixHeld)) == 1


def test_a_prefix_held_twice_counts_once_and_no_more_is_held_than_is_spare(engine: Engine) -> None:
    prompt = [97] * SIZE * (MOST + 2)
    compute(engine, prompt)
    first, second = engine.holds.hold(prompt), engine.holds.hold(prompt)
    assert len(first.block_table) == len(second.block_table) == MOST
    engine.holds.release(first.id)
    engine.clear_prefix_cache()
    assert len(engine.tree.match(prompt, limit=99).blocks) == MOST
    # Needs all blocks but three, which ends the other hold.
    engine.submit([120] * 8, SamplingParams(max_tokens=SIZE * (BLOCKS - 3) - 7))
    assert len(engine.holds.hold(prompt).block_table) == 3


def test_a_request_that_needs_all_memory_ends_the_oldest_holds_and_no_more(engine: Engine) -> None:
    prompts = [[97 + index] * 8 for index in range(3)]
    for prompt in prompts:
        compute(engine, prompt)
    holds = [engine.holds.hold(prompt, label=f"{index}") for index, prompt in enumerate(prompts)]
    # Two of six held blocks have to go.
    compute(engine, [120] * 8, max_tokens=SIZE * (BLOCKS - 4) - 7)
    assert [one.hold for one in engine.log.of(v.PrefixReleased)] == [holds[0].id]
    assert engine.log.of(v.PrefixReleased)[0].reason == "room"
    check_after_step(engine)


def run_with_hold(blocks: int, hold_before: int, prompts: list[int], n: int) -> Engine:
    """Play requests without preemption; hold a cached prefix before a later step."""
    config = EngineConfig(
        block_size=SIZE, max_kv_tokens=SIZE * blocks, token_budget=256, preemption=False
    )
    engine = Engine(CheckingRunner(next_token), config)
    compute(engine, CACHED)
    for index, length in enumerate(prompts):
        params = SamplingParams(max_tokens=12, n=n, temperature=1.0, ignore_eos=True)
        engine.submit([98 + index] * length, params)
    for step in range(1, 200):
        if step == hold_before:
            engine.holds.hold(CACHED)
        if not engine.has_work():
            break
        engine.step()
    return engine


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("prompts", [[4, 4], [6, 7], [5, 9, 3]], ids=str)
def test_with_preemption_off_a_hold_never_takes_a_block_that_is_reserved(
    prompts: list[int], n: int
) -> None:
    """Hold at any time: around admissions, and after a fork whose samples have to copy a block."""
    held_beside_running = 0
    for blocks in range(14, 30, 2):
        for hold_before in (1, 2, 4):
            engine = run_with_hold(blocks, hold_before, prompts, n)
            assert not engine.log.of(v.Preempted)
            ends = [event.reason for event in engine.log.of(v.RequestFinished)]
            assert ends == ["length"] * (1 + n * len(prompts))
            held_beside_running += bool(engine.log.of(v.PrefixHeld)) and hold_before > 1
    assert held_beside_running, "a hold that fits beside the reservations is taken"


def test_of_a_prefix_as_much_is_held_as_the_reservations_leave() -> None:
    config = EngineConfig(block_size=SIZE, max_kv_tokens=SIZE * 16, preemption=False)
    engine = Engine(CheckingRunner(next_token), config)
    compute(engine, CACHED)
    for token in (98, 99):  # 7 blocks each
        engine.submit([token] * SIZE, SamplingParams(max_tokens=25, ignore_eos=True))
    engine.step()
    assert len(engine.scheduler.running) == 2
    assert len(engine.holds.hold(CACHED).block_table) == 2
