"""The rows of a log: equal to the frames, found by id, label or number, and free of pandas."""

import math
import subprocess
import sys
from pathlib import Path

import msgspec
import pandas as pd
import pytest

from engine.config import EngineConfig
from engine.events import EventLog, LogError
from engine.events import vocabulary as v
from engine.scheduling.sampling_params import SamplingParams
from tests.engine.workloads import Arrival, Workload, make_engine, play, random_workload
from tests.facts import assert_names

ROOT = Path(__file__).parents[2]
SEEDS = range(20)
KINDS = {"request_rows": "requests", "step_rows": "steps", "token_rows": "tokens"}


def recorded(seed: int, window: int | None = None) -> EventLog:
    workload = random_workload(seed)
    log = EventLog(window)
    play(make_engine(workload, log), workload)
    return log


def plain(value: object) -> object:
    missing = value is pd.NA or (isinstance(value, float) and math.isnan(value))
    return None if missing else value


@pytest.fixture(scope="module")
def logs() -> list[EventLog]:
    whole = [recorded(seed) for seed in SEEDS]
    parts = [recorded(seed, window=15 + seed) for seed in SEEDS]
    assert sum(isinstance(part[0], v.Keyframe) for part in parts) > 10
    untimed = b"".join(line + b"\n" for line in whole[3].deterministic())
    return [*whole, *parts, EventLog.from_bytes(untimed)]


@pytest.mark.parametrize("name", KINDS)
def test_every_cell_of_a_frame_is_the_field_of_a_row(name: str, logs: list[EventLog]) -> None:
    values = missing = 0
    for log in logs:
        rows, frame = getattr(log, name), getattr(log, KINDS[name])
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
            rows = getattr(log, name)
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


def test_a_request_is_found_by_id_or_by_label() -> None:
    log = served("Ada", "Bo")
    ada, bo = log.request_rows
    assert log.request(ada.request) == log.request("Ada") == ada
    assert log.request("Bo") == bo
    assert log.request("Ada").first_token_step == log.requests.first_token_step[ada.request]


def test_a_label_of_several_samples_means_the_first() -> None:
    log = served("Ada", n=3)
    first, second, _ = log.request_rows
    assert (first.sample, second.sample) == (0, 1) and first.label == second.label
    assert log.request("Ada") == first
    assert log.request(second.request) == second


@pytest.mark.parametrize("key", ["Cleo", 99])
def test_an_unknown_request_is_an_error_with_the_known_ones(key: int | str) -> None:
    with pytest.raises(LogError) as error:
        served("Ada", "Bo").request(key)
    assert_names(str(error.value), "request", repr(key), "Ada", "Bo")


def test_an_ambiguous_label_is_an_error_with_the_ids() -> None:
    log = served("Ada", "Bo", "Ada")
    with pytest.raises(LogError) as error:
        log.request("Ada")
    first, _, last = log.request_rows
    assert_names(str(error.value), "'Ada'", f"{first.request}, {last.request}")


def test_a_step_is_found_by_its_number() -> None:
    log = served("Ada")
    assert [log.step(row.step) for row in log.step_rows] == log.step_rows
    for number in (0, 5):
        with pytest.raises(LogError) as error:
            log.step(number)
        assert_names(str(error.value), "step", str(number), "1 to 4")


def test_an_empty_log_has_no_request_and_no_step() -> None:
    log = make_engine(Workload(EngineConfig(), [])).log
    assert not log.request_rows and not log.step_rows and not log.token_rows
    with pytest.raises(LogError, match="none"):
        log.request("Ada")
    with pytest.raises(LogError, match="none"):
        log.step(1)


def test_rows_need_neither_pandas_nor_numpy(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    log = served("Ada", "Bo")
    log.save(path)
    code = f"""
import sys
sys.modules |= dict.fromkeys(("pandas", "numpy"))  # importing them raises
from engine.events import EventLog
log = EventLog.load({str(path)!r})
print(len(log.request_rows), len(log.step_rows), len(log.token_rows))
print(log.request("Ada").first_token_step, log.step(1).tokens)
try:
    log.requests
except ImportError:
    print("no frames")
"""
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.split("\n")[:3] == [
        f"{len(log.request_rows)} {len(log.step_rows)} {len(log.token_rows)}",
        f"{log.request('Ada').first_token_step} {log.step(1).tokens}",
        "no frames",
    ]
