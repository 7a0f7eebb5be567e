"""The browser reads from a log what Python reads: where the time went, misses, and what is stuck."""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from engine.core.log.log import EventLog
from engine.core.log.vocabulary import RequestArrived, RunStarted, StepFinished
from tests.engine.test_waterfall import recorded
from tests.engine.workloads import adapter_workload, sliding_workload, tiered_workload
from tests.engine.workloads import windowed as last_of
from tests.visualizer.test_golden_fold import REAL, SCRIPTS, node, played, save, windowed
from visualizer import read
from visualizer.indexed.known import known_of
from visualizer.logs import settings_of
from visualizer.reading.waterfall.picture import COLOURS
from visualizer.reading.waterfall.words import helped
from visualizer.reading.why.miss import WhyMissed
from visualizer.reading.why.stuck import Waiting
from visualizer.scenario import gallery
from visualizer.sources import read_source

Logs = dict[str, EventLog]


def random_logs(seeds: range) -> Logs:
    sliding = {
        f"sliding-{seed}": played(sliding_workload(seed)) for seed in seeds[: len(seeds) // 3]
    }
    adapters = {
        f"adapters-{seed}": played(adapter_workload(seed)) for seed in seeds[: len(seeds) // 4]
    }
    return {str(seed): recorded(seed) for seed in seeds} | sliding | adapters


def timeless(seeds: range) -> Logs:
    bare = {str(seed): b"\n".join([*recorded(seed).deterministic(), b""]) for seed in seeds}
    logs = {name: EventLog.from_bytes(text) for name, text in bare.items()}
    units = {read(log).waterfall.unit for log in logs.values() if log.of(StepFinished)}
    assert units == {"steps"}
    return logs


def asynchronous_windows(_seeds: range) -> Logs:
    """Include keyframes with a row in flight whose request has ended."""
    whole = recorded(3)
    assert settings_of(whole)["async_scheduling"]
    return {str(size): last_of(whole, size) for size in range(10, 60, 3)}


SETS: dict[str, Callable[[range], Logs]] = {
    "random": random_logs,
    "windows": lambda seeds: windowed(seeds[0]),
    "bundled": lambda _: {name: scenario.log for name, scenario in gallery().items()},
    "real": lambda _: {path.name.replace(".", "-"): read_source(path) for path in REAL},  # type: ignore[misc]
    "timeless": timeless,
    "asynchronous windows": asynchronous_windows,
    "tiers": lambda seeds: {str(seed): played(tiered_workload(seed)) for seed in seeds},
}
# The kinds of misses that these logs must have.
KINDS = {
    "random": {
        "no_window",
        "whole",
        "off",
        "evicted",
        "never_stored",
        "differs",
        "first",
        "waiting",
    },
    "windows": {"before"},
    "real": {"no_group"},
}


@pytest.fixture(scope="module", params=SETS)
def saved(request, tmp_path_factory, soak, first_seed):
    """The name of a set of logs, the logs, and the folder in which they are saved."""
    logs = SETS[request.param](range(first_seed, first_seed + (2_000 if soak else 20)))
    folder = tmp_path_factory.mktemp("logs")
    save(logs, folder)
    return request.param, logs, folder


def test_the_waterfalls_are_equal(saved):
    _, logs, folder = saved
    theirs = json.loads(node("waterfalls.js", folder))
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


def test_the_answers_are_equal(saved):
    name, logs, folder = saved
    assert misses(logs, folder) >= KINDS.get(name, set())


def test_both_pictures_have_the_same_colours():
    code = (SCRIPTS.parents[1] / "src" / "drawing" / "causes.ts").read_text("utf-8")
    found = re.findall(r'(\w+): { light: "(#\w+)", dark: "(#\w+)" }', code)
    assert {cause: (light, dark) for cause, light, dark in found} == COLOURS


def missed(answer: WhyMissed) -> dict[str, Any]:
    both = (answer.token, answer.other)
    same = "kind request step length found most about agree evicted eviction moved mark".split()
    others = {"size": "block_size", "neededBy": "needed_by", "byHash": "by_hash"}
    names = dict(zip(same, same, strict=True)) | others
    told = {theirs: getattr(answer, ours) for theirs, ours in names.items()}
    return told | {"texts": None if None in both else list(both), "group": list(answer.group)}


def waiting(one: Waiting) -> dict[str, Any]:
    names = "request steps age reason behind need have mark".split()
    return {name: getattr(one, name) for name in names} | {"isPreempted": one.is_preempted}


def misses(logs: Logs, folder: Path) -> set[str]:
    """Compare all answers; return the kinds of misses."""
    theirs = json.loads(node("answers.js", folder))
    kinds = set[str]()
    with mock.patch("visualizer.reading.why.stuck.known_of", cache(known_of)):  # once per log
        queues = {
            name: [read(log).stuck(step).requests for step, _ in theirs[name]["queues"]]
            for name, log in logs.items()
        }
    for name, log in logs.items():
        for said in theirs[name]["missed"]:
            answer = read(log).why_missed(said["request"])
            words = said.pop("words")
            assert said == missed(answer), (name, said["request"])
            if words and not (answer.about or answer.needed_by):  # the board numbers equal labels
                assert words == answer.sentences()[1:]
            kinds.add(answer.kind)
        for (step, queue), ours in zip(theirs[name]["queues"], queues[name], strict=True):
            assert queue == [waiting(one) for one in ours], (name, step)
        waterfall = read(log).waterfall
        for request, marks in theirs[name]["marks"]:
            assert marks == [part.mark for part in waterfall[request].parts], (name, request)
    return kinds


def without_token_ids(log: EventLog) -> EventLog:
    """Turn a log into one of a foreign engine that records hashes, not tokens."""
    size = log.of(RunStarted)[0].settings["block_size"]
    log = EventLog.from_bytes(log.to_bytes())
    for event in log:
        match event:
            case RunStarted():
                facts = dict.fromkeys(
                    ("cached_tokens", "evictions", "scheduled_tokens"), "recorded"
                )
                facts |= dict.fromkeys(("waiting_reasons", "eviction_causes"), "inferred")
                event.source = {"engine": "other 1", "recorder": "mine 1", "facts": facts}
            case RequestArrived():
                ends = range(size, len(event.prompt) + 1, size)
                event.hashes = [f"{hash(tuple(event.prompt[:end])):x}" for end in ends]
                event.prompt[:] = [-1] * len(event.prompt)
                event.texts[:] = [""] * len(event.prompt)
            case StepFinished():
                for row in event.tokens:
                    row.ids[:] = [-1] * len(row.ids)
                    row.texts[:] = [""] * len(row.ids)
    return log


def test_without_token_ids_blocks_are_compared_by_their_hashes(tmp_path):
    known = {str(seed): recorded(seed) for seed in range(60)}
    known = {n: log for n, log in known.items() if settings_of(log)["prefix_cache"] == "hash"}
    logs = {name: without_token_ids(log) for name, log in known.items()}
    save(logs, tmp_path)
    assert misses(logs, tmp_path) >= {"evicted", "first", "whole"}
    for name, log in logs.items():
        for row in read(known[name]).request_rows:
            one, other = (read(of).why_missed(row.request) for of in (known[name], log))
            assert one.found == other.found
            if other.kind == "evicted":
                assert (one.kind, one.evicted) == ("evicted", other.evicted)
            if other.kind in ("never_stored", "differs", "first"):
                assert other.mark == "inferred"
