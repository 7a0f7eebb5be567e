"""Answers in words: the lessons' sentences, and every number recounted from the fold."""

import re

import pytest

from engine.config import EngineConfig
from engine.events import vocabulary as v
from engine.events.fold import State
from engine.events.log import EventLog
from engine.why import WhyError, why
from tests.engine.invariants import cached_prefix
from tests.engine.storyboard import simulate
from tests.engine.test_storyboard import DOCUMENTS, FIRST_LOOK, FIRST_LOOK_CONFIG, FULL_MEMORY
from tests.engine.workloads import make_engine, play, random_workload


def full_memory():
    config = EngineConfig(token_budget=32, max_batch_size=4, max_kv_tokens=14 * 8, block_size=8)
    engine, requests = simulate(config, FULL_MEMORY)
    return engine, {name: request.id for name, request in requests.items()}


def test_00_eva_waits_for_a_place() -> None:
    engine, requests = simulate(EngineConfig(**FIRST_LOOK_CONFIG), FIRST_LOOK)
    eva = requests["Eva"].id
    waits = engine.why(eva, step=8)
    assert waits.startswith("Step 8: Eva (r5) waits. No place in the batch: Eva (r5) needs 1, ")
    assert "has 0 of 4 places. In the batch: Ada (r1), Bo (r2), Cleo (r3), Dev (r4)." in waits
    starts = engine.why(requests["Eva"], step=10)
    assert "starts with 16 of 26 tokens found. Shared with Ada (r1), Cleo (r3)." in starts
    assert "It computes 10 tokens from position 16; its prompt has 26." in starts


def test_09_why_the_victim_gave_way_and_why_it_is_not_back_at_once() -> None:
    engine, ids = full_memory()
    preempted = engine.why(ids["r3"], step=20)
    assert "is preempted: it gives way to r2, which needed blocks" in preempted
    assert "Of its 6 blocks others keep 2, the cache keeps 3, 1 fell free." in preempted
    waits = engine.why(ids["r3"], step=21)
    assert "needs 1, free 0, evictable 3, all 3 part of its own match" in waits
    assert "With 1 more free block it would have started." in waits
    assert "resumes with 40 of 45 tokens found" in engine.why(ids["r3"], step=27)


def test_07_a_miss_names_the_eviction() -> None:
    config = EngineConfig(token_budget=64, max_kv_tokens=12 * 8, block_size=8)
    engine, requests = simulate(config, DOCUMENTS)
    answer = engine.why(requests["B2"].id, step=19)
    assert "starts with 0 of 27 tokens found" in answer
    assert "Once 24 tokens of it were cached" in answer
    assert "evicted in step 13, to make room for D1 (r5)." in answer


def test_who_is_not_there_is_said() -> None:
    engine, ids = full_memory()
    assert "has not arrived yet" in engine.why(ids["r3"], step=2)
    assert "has ended, with reason length" in engine.why(ids["r2"], step=engine.step_count)


def test_what_the_log_does_not_know_is_an_error() -> None:
    engine, ids = full_memory()
    with pytest.raises(WhyError, match="request: 99 is not in this log; its requests are 1 to 3"):
        engine.why(99)
    with pytest.raises(WhyError, match="step: 0 is not in this log; its steps are 1 to 31"):
        engine.why(ids["r1"], step=0)


def test_a_window_of_a_log_is_enough() -> None:
    engine, ids = full_memory()
    window = EventLog(window=60)
    for event in engine.log:
        window.append(event)
    assert isinstance(window[0], v.Keyframe)
    step = engine.step_count
    assert why(window, ids["r3"], step) == engine.why(ids["r3"], step)


def test_every_answer_of_random_workloads_recounts(soak: bool, first_seed: int) -> None:
    """Never an exception for a live request, and the numbers are those of the folded state."""
    seen: set[str] = set()
    for seed in range(first_seed, first_seed + (1000 if soak else 40)):
        workload = random_workload(seed)
        engine = make_engine(workload)
        play(engine, workload)
        state, found, tables = State(), {}, {}
        for event in engine.log:
            if isinstance(event, v.StepStarted):
                found, tables = {}, {}
            if isinstance(event, v.Admitted):
                tokens = len(state.requests[event.request].tokens)
                found[event.request] = (len(event.blocks) * state.block_size, tokens)
            if isinstance(event, v.Preempted):
                tables[event.request] = len(state.requests[event.request].table)
            state.apply(event)
            if isinstance(event, v.StepScheduled):
                for request in list(state.requests):
                    answer = why(engine.log, request, state.step)
                    assert answer.startswith(f"Step {state.step}: r{request} "), answer
                    seen |= check(answer, state, event, request)
                    counted = numbers(r"s with (\d+) of (\d+) tokens? found", answer)
                    assert counted == found.get(request)
                    fates = numbers(
                        r"Of its (\d+) blocks? others keep (\d+), the cache keeps (\d+), (\d+) fell",
                        answer,
                    )
                    assert (fates and fates[0]) == tables.get(request)
                    assert fates is None or fates[0] == sum(fates[1:])
    assert seen >= {"waits", "computes", "preempted", "more place", "more token", "more free block"}


def numbers(pattern: str, answer: str) -> tuple[int, ...] | None:
    found = re.search(pattern, answer)
    return found and tuple(map(int, found.groups()))


def check(answer: str, state: State, event: v.StepScheduled, request: int) -> set[str]:
    """Hold the numbers in an answer against the state; returns what it was about."""
    about = {word for word in ("waits", "computes", "preempted") if word in answer}
    blocked, config = event.blocked, state.settings
    if found := re.search(r"computes (\d+) tokens? from position (\d+)", answer):
        [row] = [row for row in event.rows if row.request == request]
        assert (int(found[1]), int(found[2])) == (row.count, row.start)
    if "waits." not in answer and "waits behind" not in answer:
        return about
    assert blocked is not None
    head = state.requests[blocked.request]
    cached, locked = cached_prefix(state, head.tokens, config["prefix_cache"])
    evictable = sum(len(node.blocks) for node in state.nodes.values() if not node.lock)
    if found := re.search(r"free (\d+), evictable (\d+)(?:, (?:all )?(\d+))?", answer):
        counted = (len(state.free), evictable, cached - locked)
        assert tuple(int(number or 0) for number in found.groups()) == counted
        assert counted[0] + counted[1] - counted[2] == blocked.have
    if found := re.search(r"With (\d+) (more [a-z ]+?)s? (?:it|r\d+) would have started", answer):
        about.add(found[2])
        lack, size = int(found[1]), config["block_size"]
        left = config["token_budget"] - sum(row.count for row in event.rows)
        left += lack if "token" in found[2] else 0
        places = config["max_batch_size"] - sum(state.requests[i].slots for i in state.running)
        places += lack if "place" in found[2] else 0
        room = len(state.free) + evictable - (cached - locked)
        room += lack if "block" in found[2] else 0
        end = min(len(head.tokens), cached * size + left)
        assert left >= 1
        assert head.slots <= places
        assert -(-end // size) - cached <= room
    return about
