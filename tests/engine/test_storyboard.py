"""The figures that the lessons state, recomputed by this engine."""

import pytest

from engine.core.config import EngineConfig
from engine.core.log import vocabulary as v
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
from visualizer import read

ROOMY = {"token_budget": 64, "max_kv_tokens": 1024}
TWELVE = [Speaker(f"r{i}", 1, "", 0, 8, [4, 24, 6, 8][i % 4]) for i in range(12)]
CONTINUOUS = {"token_budget": 64, "max_batch_size": 4, "max_kv_tokens": 4096, "prefix_cache": False}
STATIC = CONTINUOUS | {"batching": "static"}
TWINS = [Speaker(s.name, 1, "system", 48, s.own_tokens, 8) for s in SHARED_SYSTEM_PROMPT]
TWICE = [Speaker("a", 1, "same", 48, 0, 2), Speaker("b", 4, "same", 48, 0, 2)]
ALTERNATING = [Speaker(f"{'ab'[i % 2]}{i // 2 + 1}", 1, "ab"[i % 2], 48, 6, 4) for i in range(8)]
ONE_SEAT = {"token_budget": 64, "max_batch_size": 1, "max_kv_tokens": 96}
URGENT = [Speaker(f"b{i}", 1, "", 0, 16, 24, priority=5) for i in (1, 2, 3)]
URGENT.append(Speaker("urgent", 6, "", 0, 16, 16))
TIGHT = {"token_budget": 64, "max_batch_size": 4, "max_kv_tokens": 96, "block_size": 8}
SAMPLES = {"token_budget": 64, "max_kv_tokens": 512, "block_size": 8}
# Lesson, speakers, settings; steps, computed tokens, step of the last speaker's first token, numbers
# of events: admissions that find a prefix, preemptions, evictions, copied blocks.
FIGURES = [
    ("00", FIRST_LOOK, FIRST_LOOK_CONFIG, (18, 181, 10), (2, 0, 0, 0)),
    ("00", FIRST_LOOK, FIRST_LOOK_CONFIG | {"max_batch_size": 1}, (47, 181, 39), (2, 0, 0, 0)),
    ("00", FIRST_LOOK, FIRST_LOOK_CONFIG | {"max_batch_size": 5}, (15, 181, 7), (2, 0, 0, 0)),
    ("04", TWELVE, STATIC, (72, 210, 49), (0, 0, 0, 0)),
    ("04", TWELVE, CONTINUOUS, (40, 210, 25), (0, 0, 0, 0)),
    ("05", [Speaker("r1", 1, "", 0, 20, 4, n=3)], SAMPLES, (4, 29, 1), (0, 0, 0, 2)),
    ("05", [Speaker("r1", 1, "", 0, 24, 4, n=3)], SAMPLES, (4, 33, 1), (0, 0, 0, 0)),
    ("06", SHARED_SYSTEM_PROMPT, ROOMY | {"prefix_cache": False}, (11, 265, 4), (0, 0, 0, 0)),
    ("06", SHARED_SYSTEM_PROMPT, ROOMY, (9, 121, 2), (3, 0, 0, 0)),
    ("06", TWINS, ROOMY | {"token_budget": 256}, (8, 265, 1), (0, 0, 0, 0)),
    ("06", TWICE, ROOMY, (4, 66, 3), (1, 0, 0, 0)),
    ("07", DOCUMENTS, TIGHT, (21, 163, 19), (2, 0, 2, 0)),
    ("07", ALTERNATING, ONE_SEAT, (32, 456, 29), (0, 0, 7, 0)),
    ("07", ALTERNATING, ONE_SEAT | {"policy": "lpm"}, (32, 168, 29), (6, 0, 1, 0)),
    ("09", FULL_MEMORY, FULL_MEMORY_CONFIG | {"preemption": False}, (46, 121, 27), (2, 0, 1, 0)),
    ("09", FULL_MEMORY, FULL_MEMORY_CONFIG | {"prefix_cache": False}, (40, 189, 5), (0, 1, 0, 0)),
    ("09", FULL_MEMORY, FULL_MEMORY_CONFIG, (31, 125, 5), (3, 1, 1, 0)),
    ("09", FULL_MEMORY, FULL_MEMORY_CONFIG | {"max_kv_tokens": 16 * 8}, (28, 121, 5), (2, 0, 0, 0)),
    ("09", FULL_MEMORY, FULL_MEMORY_CONFIG | {"policy": "oldest"}, (33, 145, 5), (3, 1, 2, 0)),
    ("09", URGENT, TIGHT, (36, 183, 6), (1, 2, 5, 0)),
    ("09", URGENT, TIGHT | {"policy": "priority"}, (39, 188, 6), (1, 2, 6, 0)),
]


@pytest.mark.parametrize(("lesson", "speakers", "settings", "run", "counts"), FIGURES)
def test_the_figures_of_a_lesson(lesson, speakers, settings, run, counts) -> None:
    policy = {"policy": OldestGivesWay()} if settings.get("policy") == "oldest" else {}
    config = EngineConfig(**(settings | {"policy": "fcfs"} if policy else settings))
    engine, requests = simulate(config, speakers, **policy)
    last = read(engine.log).requests.first_token_step[requests[speakers[-1].name].id]
    assert (engine.step_count, read(engine.log).steps.tokens.sum(), last) == run
    hits = [event for event in engine.log.of(v.Admitted) if event.blocks]
    kinds = (v.Preempted, v.RadixEvicted, v.BlockCopied)
    assert (len(hits), *(len(engine.log.of(kind)) for kind in kinds)) == counts
