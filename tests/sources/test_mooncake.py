"""Mooncake's traces: real lines become a workload that shares what their hash ids share."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from engine.core.config import EngineConfig
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.simulation.cost_runner import Cost
from engine.simulation.mooncake import BLOCK, MooncakeError, workload_from_mooncake
from engine.simulation.simulate import simulate
from engine.simulation.workload import Arrival
from tests.engine.witness import common
from tests.facts import assert_names, raises_naming
from tests.parity.recorded_steps import read_recording
from visualizer.sources import SourceError, read_source
from visualizer.sources import mooncake_run as reader
from visualizer.sources.mooncake import MOONCAKE

TRACE = Path(__file__).parents[1] / "fixtures" / "mooncake" / "conversation_trace.jsonl"
LINES = TRACE.read_bytes().splitlines()
ROWS = [json.loads(line) for line in LINES]


def arrivals(**options: object) -> list[Arrival]:
    return workload_from_mooncake(TRACE, **options).inputs  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(("shrink", "speed", "count"), [(1, 1, None), (8, 4, 50), (512, 1, 1)])
def test_times_lengths_and_number_are_those_of_the_trace(
    shrink: int, speed: int, count: int | None
) -> None:
    found = arrivals(shrink=shrink, speed=speed, max_requests=count)
    for row, one in zip(ROWS[:count], found, strict=True):
        assert one.at_ms * speed == row["timestamp"]
        full, rest = divmod(row["input_length"], BLOCK)
        assert len(one.prompt) == full * (512 // shrink) + -(-rest // shrink)
        assert one.params.max_tokens == -(-row["output_length"] // shrink)


def test_prompts_share_exactly_the_blocks_with_equal_ids() -> None:
    shared = 0
    rows = zip(ROWS, arrivals(shrink=32), strict=True)
    for one, other in pairwise(sorted(rows, key=lambda row: row[0]["hash_ids"])):
        blocks = common(one[0]["hash_ids"], other[0]["hash_ids"])
        tokens = common(one[1].prompt, other[1].prompt)
        assert tokens == min(blocks * 16, len(one[1].prompt), len(other[1].prompt))
        shared += blocks > 1
    assert shared > 5


def test_the_simulated_hits_are_those_that_the_ids_allow() -> None:
    """With room for everything, each request finds the blocks that came before, except its last."""
    workload = workload_from_mooncake(TRACE, shrink=32, speed=0.001)  # one request at a time
    config = EngineConfig.like("vllm", token_budget=8192, max_kv_tokens=200_000, block_size=16)
    log = simulate(workload, config, cost=Cost(1, 0))
    seen = set[int]()
    hits = {event.request: len(event.blocks) for event in log.of(v.Admitted)}
    for number, row in enumerate(ROWS, start=1):
        full = row["hash_ids"][: len(workload.inputs[number - 1].prompt) // 16]
        known = next((at for at, id_ in enumerate(full) if id_ not in seen), len(full))
        usable = (len(workload.inputs[number - 1].prompt) - 1) // 16
        assert hits[number] == min(known, usable), number
        seen |= set(full)
    assert sum(hits.values()) > 300


def line(**changes: object) -> bytes:
    return json.dumps(ROWS[0] | changes).encode()


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"timestamp": -1}, ["timestamp", -1]),
        ({"timestamp": 7}, ["timestamp", 7]),  # times must not run backwards
        ({"input_length": 0}, ["input_length", 0]),
        ({"output_length": 10**12}, ["output_length", 10**12]),
        ({"hash_ids": [1, 2]}, ["hash_ids", 14, 2]),
        ({"hash_ids": [-5] * 14}, ["hash_ids", -5]),
        ({"input_length": "many"}, ["input_length"]),
    ],
)
def test_a_wrong_line_names_field_and_value(changes: dict, facts: list) -> None:
    with raises_naming(MooncakeError, "line", 2, *facts):
        workload_from_mooncake([LINES[50], line(**changes)])
    with raises_naming(SourceError, "line", 2, *facts):
        read_source(LINES[50] + b"\n" + line(**changes) + b"\n")


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"shrink": 3}, ["shrink", 3]),
        ({"speed": 0}, ["speed", 0]),
        ({"max_requests": 0}, ["max_requests", 0]),
    ],
)
def test_a_wrong_option_is_named(options: dict, facts: list) -> None:
    with raises_naming(ValueError, *facts):
        workload_from_mooncake(LINES, **options)


@pytest.fixture(scope="module")
def log() -> EventLog:
    return read_recording(TRACE)


def test_the_reader_says_what_is_simulated(log: EventLog) -> None:
    source = log[0].source
    assert_names(source["engine"], "simulation", 200, reader.SHRINK)
    assert source["recorder"] == "Mooncake"
    assert source["facts"] == MOONCAKE.facts
    assert [fact for fact, how in source["facts"].items() if how == "recorded"] == ["arrivals"]
    assert len(log.of(v.RequestFinished)) == len(ROWS)
    assert {id_ for event in log.of(v.RequestArrived) for id_ in event.prompt} == {-1}
    assert log.state().core()["waiting"] == []  # it folds


def test_long_requests_are_simulated_up_to_a_number_of_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "MAX_TOKENS", 50)
    one = {"timestamp": 0, "input_length": 512, "output_length": 160, "hash_ids": [1]}
    line = json.dumps(one).encode() + b"\n"  # 21 tokens after division
    for lines, shown in ((5, 2), (2, 2)):
        log = read_recording(line * lines)
        assert len(log.of(v.RequestArrived)) == shown
        assert ("the first 2 of" in log[0].source["engine"]) == (lines > shown)
