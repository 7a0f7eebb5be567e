"""The figures that the lessons state, recomputed by this engine."""

import pytest

from engine.config import EngineConfig
from engine.events import vocabulary as v
from tests.engine.storyboard import (
    DOCUMENTS,
    FIRST_LOOK,
    FIRST_LOOK_CONFIG,
    FULL_MEMORY,
    FULL_MEMORY_CONFIG,
    SHARED_SYSTEM_PROMPT,
    OldestGivesWay,
    Speaker,
    simulate,
)


def first_steps(engine, requests) -> dict[str, int]:
    frame = engine.log.requests
    return {name: int(frame.first_token_step[r.id]) for name, r in requests.items()}


def computed(engine) -> int:
    return int(engine.log.steps.tokens.sum())


def test_00_five_people_at_once() -> None:
    engine, requests = simulate(EngineConfig(**FIRST_LOOK_CONFIG), FIRST_LOOK)
    assert engine.step_count == 18
    assert len(engine.log.tokens) == 45
    assert first_steps(engine, requests)["Eva"] == 10
    rows = [e.rows for e in engine.log.of(v.StepScheduled)]
    dev = [
        (step, r.count)
        for step, row in enumerate(rows, 1)
        for r in row
        if r.request == requests["Dev"].id
    ]
    assert [count for _, count in dev[:3]] == [29, 29, 12]
    assert engine.log.requests.cached_tokens[requests["Eva"].id] == 16
    blocked = [e.blocked.reason for e in engine.log.of(v.StepScheduled) if e.blocked]
    assert blocked == ["batch_full"] * 4


def test_00_one_after_the_other_takes_47_steps_and_five_seats_take_15() -> None:
    engine, _ = simulate(EngineConfig(**{**FIRST_LOOK_CONFIG, "max_batch_size": 1}), FIRST_LOOK)
    assert engine.step_count == 47
    engine, requests = simulate(
        EngineConfig(**{**FIRST_LOOK_CONFIG, "max_batch_size": 5}), FIRST_LOOK
    )
    assert engine.step_count == 15
    assert first_steps(engine, requests)["Eva"] == 7
    [reason] = [e.blocked.reason for e in engine.log.of(v.StepScheduled) if e.blocked]
    assert reason == "token_budget"


@pytest.mark.parametrize(
    ("batching", "steps", "first"), [("static", 72, 25), ("continuous", 40, 5)]
)
def test_04_continuous_batching(batching: str, steps: int, first: int) -> None:
    speakers = [Speaker(f"r{i}", 1, "", 0, 8, [4, 24, 6, 8][i % 4]) for i in range(12)]
    config = EngineConfig(
        token_budget=64, max_batch_size=4, max_kv_tokens=4096, prefix_cache=False, batching=batching
    )
    engine, requests = simulate(config, speakers)
    assert engine.step_count == steps
    assert first_steps(engine, requests)["r4"] == first
    assert len(engine.log.tokens) == 126


@pytest.mark.parametrize(("own", "copies"), [(20, 2), (24, 0)])
def test_05_samples_copy_the_partly_filled_block(own: int, copies: int) -> None:
    config = EngineConfig(token_budget=64, max_kv_tokens=512, block_size=8)
    engine, _ = simulate(config, [Speaker("r1", 1, "", 0, own, 4, n=3)])
    copied = engine.log.of(v.BlockCopied)
    assert [(c.source, c.block) for c in copied] == [(2, 3), (2, 4)][:copies]


@pytest.mark.parametrize(
    ("cache", "tokens", "steps", "first"),
    [(False, 265, 11, [1, 2, 3, 4]), (True, 121, 9, [1, 2, 2, 2])],
)
def test_06_a_shared_prefix(cache: bool, tokens: int, steps: int, first: list[int]) -> None:
    config = EngineConfig(token_budget=64, max_kv_tokens=64 * 16, prefix_cache=cache)
    engine, requests = simulate(config, SHARED_SYSTEM_PROMPT)
    assert (computed(engine), engine.step_count) == (tokens, steps)
    assert list(first_steps(engine, requests).values()) == first


def test_06_twins_in_one_step_share_memory_but_not_work() -> None:
    config = EngineConfig(token_budget=256, max_kv_tokens=64 * 16)
    twins = [
        Speaker(s.name, 1, s.shared, s.shared_tokens, s.own_tokens, s.output)
        for s in SHARED_SYSTEM_PROMPT
    ]
    engine, _ = simulate(config, twins)
    assert computed(engine) == 265
    joined = engine.log.of(v.RadixJoined)
    assert sum(len(event.blocks) for event in joined) == 9


def test_06_the_same_prompt_again_computes_its_last_block() -> None:
    config = EngineConfig(token_budget=64, max_kv_tokens=64 * 16)
    twice = [Speaker("a", 1, "same", 48, 0, 2), Speaker("b", 4, "same", 48, 0, 2)]
    engine, requests = simulate(config, twice)
    again = requests["b"].id
    chunks = [r.count for e in engine.log.of(v.StepScheduled) for r in e.rows if r.request == again]
    assert chunks[0] == 16


def test_07_the_least_recently_used_document_goes() -> None:
    config = EngineConfig(token_budget=64, max_kv_tokens=12 * 8, block_size=8)
    engine, _ = simulate(config, DOCUMENTS)
    steps = engine.log.steps
    assert steps.index[steps.evicted_blocks > 0].tolist() == [13, 19]
    assert engine.log.requests.cached_tokens.sum() == 48
    assert computed(engine) == 163


@pytest.mark.parametrize(("policy", "tokens", "evictions"), [("fcfs", 456, 7), ("lpm", 168, 1)])
def test_07_longest_prefix_match_saves_work(policy: str, tokens: int, evictions: int) -> None:
    speakers = [Speaker(f"{'ab'[i % 2]}{i // 2 + 1}", 1, "ab"[i % 2], 48, 6, 4) for i in range(8)]
    config = EngineConfig(token_budget=64, max_batch_size=1, max_kv_tokens=6 * 16, policy=policy)
    engine, _ = simulate(config, speakers)
    assert computed(engine) == tokens
    assert engine.step_count == 32
    assert len(engine.log.of(v.RadixEvicted)) == evictions


@pytest.mark.parametrize(
    ("blocks", "settings", "first", "preempted", "resumed", "steps"),
    [
        # The storyboard says 29 and 48: it reserved the two shared blocks a second time.
        (14, {"preemption": False}, 27, None, None, 46),
        (14, {"prefix_cache": False}, 5, 12, 27, 40),
        (14, {}, 5, 20, 27, 31),
        (16, {}, 5, None, None, 28),
    ],
)
def test_09_preemption(blocks, settings, first, preempted, resumed, steps) -> None:
    config = EngineConfig(**(FULL_MEMORY_CONFIG | {"max_kv_tokens": blocks * 8} | settings))
    engine, requests = simulate(config, FULL_MEMORY)
    assert engine.step_count == steps
    assert first_steps(engine, requests)["r3"] == first
    at = {kind: None for kind in (v.Preempted, v.Admitted)}
    step = 0
    for event in engine.log:
        step = event.step if isinstance(event, v.StepStarted) else step
        if isinstance(event, v.Preempted) or (isinstance(event, v.Admitted) and event.resumed):
            assert event.request == requests["r3"].id
            at[type(event)] = step
    assert (at[v.Preempted], at[v.Admitted]) == (preempted, resumed)


def test_09_a_preempted_request_waits_for_more_than_its_own_cached_blocks() -> None:
    config = EngineConfig(**FULL_MEMORY_CONFIG)
    engine, requests = simulate(config, FULL_MEMORY)
    blocked = engine.log.of(v.StepScheduled)[20].blocked  # step 21
    assert (blocked.request, blocked.reason) == (requests["r3"].id, "whole_sequence")
    assert (blocked.need, blocked.have) == (1, 0)


def test_09_a_victim_rule_of_your_own() -> None:
    config = EngineConfig(**FULL_MEMORY_CONFIG)
    engine, requests = simulate(config, FULL_MEMORY, policy=OldestGivesWay())
    assert engine.log[0].classes["policy"] == "OldestGivesWay"
    assert {e.request for e in engine.log.of(v.Preempted)} == {requests["r1"].id}
    assert (engine.step_count, computed(engine)) == (33, 145)


@pytest.mark.parametrize(
    ("policy", "preempted_at", "done", "steps"), [("fcfs", 10, 36, 36), ("priority", None, 21, 39)]
)
def test_09_priorities(policy: str, preempted_at, done: int, steps: int) -> None:
    speakers = [Speaker(f"b{i}", 1, "", 0, 16, 24, priority=5) for i in (1, 2, 3)]
    speakers.append(Speaker("urgent", 6, "", 0, 16, 16))
    config = EngineConfig(
        token_budget=64, max_batch_size=4, max_kv_tokens=12 * 8, block_size=8, policy=policy
    )
    engine, requests = simulate(config, speakers)
    urgent = requests["urgent"].id
    assert engine.step_count == steps
    assert engine.log.requests.finished_step[urgent] == done
    assert (engine.log.requests.preemptions[urgent] > 0) == (preempted_at is not None)
