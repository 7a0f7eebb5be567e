"""Damaged lines that random mutations do not find, and memory over weeks."""

import json
import sys

import pytest

from engine.core.log import LogError
from engine.core.log.vocabulary import KEYFRAME_SCHEMA_VERSION
from tests.facts import raises_naming
from visualizer.sources import hash_numbers, read_source
from visualizer.sources.hash_numbers import HashNumbers

DEEP = "[" * 100_000 + "]" * 100_000
KEYFRAME = {
    "type": "keyframe",
    "seq": 0,
    "state": {"schema": KEYFRAME_SCHEMA_VERSION, "settings": [1]},
}


# There, the stack belongs to JavaScript, which ends Python before it can raise RecursionError.
@pytest.mark.skipif(sys.platform == "emscripten", reason="needs a stack that Python can measure")
@pytest.mark.parametrize(
    "start",
    [
        '{"type":"underglass_vllm","more":',
        '{"timestamp":1,"input_length":3,"output_length":3,"hash_ids":[1],"more":',
        '{"type":"run_started","more":',
        '{"topic":"kv","seq":0,"batch":',
    ],
    ids=["vllm", "mooncake", "own", "kv"],
)
def test_a_line_nested_too_deeply_is_refused(start: str) -> None:
    with pytest.raises(LogError, match=r"line 1: .*recursion"):
        read_source(f"{start}{DEEP}}}\n".encode())


def test_settings_that_are_no_map_are_named() -> None:
    with raises_naming(LogError, "line 1", "state.settings"):
        read_source(json.dumps(KEYFRAME).encode() + b"\n")


def test_hashes_of_evicted_blocks_are_forgotten_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_numbers, "MOST_EVICTED", 10)
    numbers = HashNumbers()
    assert [numbers.of(f"h{turn}", {turn: None}) for turn in range(100)] == list(range(1, 101))
    assert len(numbers._numbers) < 15
