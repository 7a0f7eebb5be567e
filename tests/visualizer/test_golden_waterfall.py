"""The browser's waterfall has the spans of Python's, on random logs and on every bundled one."""

import json
import re
from pathlib import Path

from engine.core.log.log import EventLog
from engine.core.log.vocabulary import StepFinished
from tests.engine.test_waterfall import recorded
from tests.visualizer.test_golden_fold import SCRIPTS, node, save, windowed
from visualizer import read
from visualizer.logs import settings_of
from visualizer.reading.waterfall.picture import COLOURS
from visualizer.reading.waterfall.words import helped
from visualizer.scenario import gallery


def compare(logs: dict[str, EventLog], folder: Path) -> int:
    save(logs, folder)
    theirs = json.loads(node("waterfalls.js", folder))
    compared = 0
    for name, log in logs.items():
        waterfall = read(log).waterfall
        assert [int(request) for request in theirs[name]] == sorted(waterfall.requests)
        for request, said in theirs[name].items():
            time = waterfall[int(request)]
            ours = [[one.start, one.end, one.cause, one.step, one.about] for one in time.spans]
            assert said["spans"] == ours, (name, request)
            assert said["byCause"] == time.by_cause
            assert (said["total"], said["work"]) == (time.total, time.work)
            assert (said["lost"], said["ttft"]) == (time.lost, time.ttft)
            assert said["helped"] == helped(time)
            compared += len(ours)
    return compared


def test_random_logs(soak, first_seed, tmp_path):
    count = 2_000 if soak else 40
    logs = {str(seed): recorded(seed) for seed in range(first_seed, first_seed + count)}
    print(f"\n{compare(logs, tmp_path)} spans of {count} workloads are equal")


def test_windows_of_logs(first_seed, tmp_path):
    compare(windowed(first_seed), tmp_path)


def test_bundled_logs(tmp_path):
    logs = {name: scenario.log for name, scenario in gallery().items()}
    assert compare(logs, tmp_path) > 1000


def test_logs_without_times(first_seed, tmp_path):
    seeds = range(first_seed, first_seed + 20)
    logs = {
        str(seed): EventLog.from_bytes(b"\n".join([*recorded(seed).deterministic(), b""]))
        for seed in seeds
    }
    units = {read(log).waterfall.unit for log in logs.values() if log.of(StepFinished)}
    assert units == {"steps"}
    compare(logs, tmp_path)


def test_every_window_of_an_asynchronous_log(tmp_path):
    """Include keyframes with a row in flight whose request has ended."""
    whole = recorded(3)
    assert settings_of(whole)["async_scheduling"]
    logs = {}
    for size in range(10, 60, 3):
        logs[str(size)] = EventLog(window=size)
        for event in whole:
            logs[str(size)].append(event)
    compare(logs, tmp_path)


def test_both_pictures_have_the_same_colours():
    code = (SCRIPTS.parents[1] / "src" / "drawing" / "causes.ts").read_text("utf-8")
    light, dark = (dict(re.findall(r'(\w+): "(#\w+)"', part)) for part in code.split("dark: {"))
    assert {cause: (light[cause], dark[cause]) for cause in light} == COLOURS
