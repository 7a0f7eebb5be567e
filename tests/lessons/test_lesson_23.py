"""Lesson 23's exercise: right keys are accepted, and the engine's cache finds blocks by them."""

import hashlib
import json

import pytest

from checks import check, lesson_23
from checks.broken import Broken
from engine import Cost, EngineConfig, simulate
from engine.simulation.speakers import Speaker, workload_of
from solutions.lesson_23 import block_key as solution
from visualizer import read

OWN = simulate


def size(case):
    return case.runs, case.blocks


def everything(before, tokens, adapter, salt):
    return before, tuple(tokens), adapter, salt


def flat(before, tokens, adapter, salt):
    return (*(before or (adapter, salt)), *tokens)


def hashed(before, tokens, adapter, salt):
    return hash((before, *tokens, adapter, salt))


def digest(before, tokens, adapter, salt):
    return hashlib.sha256(json.dumps([before, tokens, adapter, salt]).encode()).hexdigest()


@pytest.mark.parametrize("right", [solution, everything, flat, hashed, digest])
def test_every_right_key_is_accepted_and_finds_what_the_engines_own_finds(right) -> None:
    firms = [("", ""), ("law", ""), ("law", "k7"), ("toys", "k7"), ("", "k7")] * 4
    people = [
        Speaker(f"{n}", step=2 * n + 1, shared=48, own=8, output=4, adapter=adapter, salt=salt)
        for n, (adapter, salt) in enumerate(firms)
    ]
    config = EngineConfig(prefix_cache="hash", max_loras=1, max_kv_tokens=320)
    served = check.lesson_23(right)(workload_of(people), config, cost=Cost(10, 0.25))
    own = simulate(workload_of(people), config, cost=Cost(10, 0.25))
    found = [row.cached_tokens for row in read(served).request_rows]
    assert list(served)[1:] == list(own)[1:], "all but the date"
    assert 0 in found and 48 in found


def test_a_key_without_the_adapter_makes_the_engine_read_wrong_kv() -> None:
    run = lesson_23.cases()[-1]
    with pytest.raises(Broken, match="reads wrong KV"):
        lesson_23.attempt(lambda before, tokens, adapter, salt: (before, *tokens, salt), run)
