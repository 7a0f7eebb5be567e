"""The rows of a log: equal to the frames, found by id, label or number, and free of pandas."""

import math

import msgspec
import pandas as pd
import pytest

from engine import EngineConfig, EventLog, LogError, SamplingParams
from engine.core.log import vocabulary as v
from tests.engine.workloads import Arrival, Workload, make_engine, play, random_log
from tests.facts import raises_naming
from visualizer import read

SEEDS = range(20)
KINDS = {"request_rows": "requests", "step_rows": "steps", "token_rows": "tokens"}


def plain(value: object) -> object:
    missing = value is pd.NA or (isinstance(value, float) and math.isnan(value))
    return None if missing else value


@pytest.fixture(scope="module")
def logs() -> list[EventLog]:
    whole = [random_log(seed) for seed in SEEDS]
    parts = [random_log(seed, EventLog(15 + seed)) for seed in SEEDS]
    assert sum(isinstance(part[0], v.Keyframe) for part in parts) > 10
    untimed = b"".join(line + b"\n" for line in whole[3].deterministic())
    return [*whole, *parts, EventLog.from_bytes(untimed)]


@pytest.mark.parametrize("name", KINDS)
def test_every_cell_of_a_frame_is_the_field_of_a_row(name: str, logs: list[EventLog]) -> None:
    values = missing = 0
    for log in logs:
        rows, frame = getattr(read(log), name), getattr(read(log), KINDS[name])
        assert len(rows) == len(frame)
        if frame.index.name:
            frame = frame.reset_index()
        for column in frame:
            cells = [plain(cell) for cell in frame[column].tolist()]
            assert cells == [getattr(row, column) for row in rows]
            missing += cells.count(None)
        if rows:
            assert list(frame) == list(rows[0].__struct_fields__)
        values += frame.size
    assert values > 1000 and missing > 10


def test_a_field_without_none_never_is_none(logs: list[EventLog]) -> None:
    for log in logs:
        for name in KINDS:
            rows = getattr(read(log), name)
            plain_rows = msgspec.to_builtins(rows)
            if rows:
                assert msgspec.convert(plain_rows, list[type(rows[0])]) == rows


def served(*labels: str, n: int = 1) -> EventLog:
    params = SamplingParams(max_tokens=4, ignore_eos=True, n=n, temperature=1.0)
    arrivals = [Arrival(1, [97, 98, 99], params, label=label) for label in labels]
    workload = Workload(EngineConfig(), arrivals)
    engine = make_engine(workload)
    play(engine, workload)
    return engine.log


def test_a_request_is_found_by_id_or_label_and_a_step_by_its_number() -> None:
    log = served("Ada", "Bo", "Ada", n=2)
    ada, second, bo, _, again, _ = sorted(read(log).request_rows, key=lambda row: row.request)
    assert read(log).request(ada.request) == ada
    assert read(log).request(second.request) == second
    assert read(log).request("Bo") == bo, "the first of its samples"
    assert [read(log).step(row.step) for row in read(log).step_rows] == read(log).step_rows
    for key, facts in {
        "Cleo": ("Ada", "Bo"),
        99: ("Ada", "Bo"),
        "Ada": (f"{ada.request}, {again.request}",),  # ambiguous
    }.items():
        with raises_naming(LogError, "request", repr(key), *facts):
            read(log).request(key)
    with raises_naming(LogError, "step", 0, f"1 to {len(read(log).step_rows)}"):
        read(log).step(0)


def test_an_empty_log_has_no_request_and_no_step() -> None:
    log = make_engine(Workload(EngineConfig(), [])).log
    assert not read(log).request_rows and not read(log).step_rows and not read(log).token_rows
    for find, key, known in ((read(log).request, "Ada", "no request"), (read(log).step, 1, "none")):
        with raises_naming(LogError, known):
            find(key)
