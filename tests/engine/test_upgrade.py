"""Logs of older schemas: each has a fixture, and is read by a chain of upgrades.

`schema_N.jsonl` is a whole run, `schema_N_window.jsonl` a window of it that begins with a keyframe.
`schema_N_hash.jsonl` is a run with the hash cache, which came with schema 2.
"""

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.log import EventLog, LogError
from engine.core.log.upgrade import UPGRADES, schema_of
from tests.facts import raises_naming
from visualizer.reading.why import why

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"
RUNS = sorted(path.stem for path in LOGS.glob("*.jsonl") if "window" not in path.stem)
HASHED = {v.BlocksStored, v.BlockEvicted, v.BlockWithdrawn}
# Younger than the fixtures
YOUNGER = {
    v.EnginePaused,
    v.EngineResumed,
    v.PrefixAdopted,
    v.BlocksReported,
    v.StepReported,
    v.EventsMissing,
    v.WindowPagesEvicted,
}
RADIX = {v.RadixSplit, v.RadixJoined, v.RadixInserted, v.RadixExtended, v.RadixEvicted}


@pytest.mark.parametrize("name", RUNS)
def test_a_log_of_every_schema_loads_and_folds(name: str) -> None:
    whole = EventLog.load(LOGS / f"{name}.jsonl")
    window = EventLog.load(LOGS / f"{name}_window.jsonl")
    kinds = {type(event) for log in (whole, window) for event in log}
    others = YOUNGER | (RADIX if "hash" in name else HASHED)
    assert kinds == set(get_args(v.AnyEvent)) - others, "the fixture covers every event"
    state = whole.state()
    assert window.next_seq == whole.next_seq
    assert window.state().core() == state.core()
    again = State()
    again.apply(state.keyframe())
    assert again.core() == state.core()
    held = {block for node in state.nodes.values() for block in node.blocks + node.copies}
    assert not state.requests
    assert held.isdisjoint(state.free)
    assert len(held) + len(state.free) == state.settings["num_blocks"]
    for request in whole.requests.index:
        assert f"r{request}" in why(whole, request)


def older(rename: dict[str, str], schema: int) -> bytes:
    """The fixture as an older schema would have it."""
    lines = []
    for line in (LOGS / f"schema_{v.SCHEMA_VERSION}.jsonl").read_bytes().splitlines():
        event = json.loads(line)
        if event["type"] == "run_started":
            event["schema"] = schema
        lines.append(json.dumps({rename.get(name, name): value for name, value in event.items()}))
    return "\n".join(lines).encode() + b"\n"


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the real upgrades, because these tests pretend that a new log is old."""
    for schema in UPGRADES:
        monkeypatch.setitem(UPGRADES, schema, lambda event: event)


@pytest.mark.usefixtures("identity")
def test_lines_go_through_the_whole_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(old: str, new: str) -> Any:
        return lambda event: {new if name == old else name: event[name] for name in event}

    monkeypatch.setitem(UPGRADES, -1, rename("who", "caller"))
    monkeypatch.setitem(UPGRADES, 0, rename("caller", "label"))
    whole = EventLog.load(LOGS / f"schema_{v.SCHEMA_VERSION}.jsonl")
    for name, schema in (("who", -1), ("caller", 0)):
        data = older({"label": name}, schema)
        assert schema_of(data.splitlines()[0]) == schema
        assert list(EventLog.from_bytes(data)) == list(whole)


@pytest.mark.usefixtures("identity")
def test_a_window_is_upgraded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def add_holds(event: dict[str, Any]) -> dict[str, Any]:
        if event["type"] == "keyframe":
            event["state"]["holds"] = []
        return event

    state = State()
    state.apply(EventLog.load(LOGS / f"schema_{v.SCHEMA_VERSION}.jsonl")[0])
    keyframe = state.keyframe()
    keyframe.state["schema"] = 0
    del keyframe.state["holds"]
    monkeypatch.setitem(UPGRADES, 0, add_holds)
    log = EventLog.from_bytes(msgspec.json.encode(keyframe) + b"\n")
    assert log.state().core() == state.core()
    assert log[0].state["schema"] == v.SCHEMA_VERSION


@pytest.mark.usefixtures("identity")
def test_a_line_that_its_upgrade_cannot_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(event: dict[str, Any]) -> dict[str, Any]:
        return event if event["type"] == "run_started" else event["missing"]

    monkeypatch.setitem(UPGRADES, 0, fail)
    with raises_naming(LogError, 2, "missing"):
        EventLog.from_bytes(older({}, 0))
