"""The browser's answers equal Python's: why it missed, what is stuck, and the marks of time's parts."""

import json
from pathlib import Path
from typing import Any

from engine.core.log.log import EventLog
from engine.core.log.vocabulary import RequestArrived, RunStarted, StepFinished
from tests.engine.test_waterfall import recorded
from tests.engine.workloads import sliding_workload
from tests.visualizer.test_golden_fold import REAL, node, played, save, windowed
from visualizer import read
from visualizer.reading.why.miss import WhyMissed
from visualizer.reading.why.stuck import Waiting
from visualizer.scenario import gallery
from visualizer.sources import read_source


def missed(answer: WhyMissed) -> dict[str, Any]:
    both = (answer.token, answer.other)
    same = "kind request step length found most about agree evicted eviction mark".split()
    others = {"size": "block_size", "neededBy": "needed_by", "byHash": "by_hash"}
    names = dict(zip(same, same, strict=True)) | others
    told = {theirs: getattr(answer, ours) for theirs, ours in names.items()}
    return told | {"texts": None if None in both else list(both)}


def waiting(one: Waiting) -> dict[str, Any]:
    names = "request steps age reason behind need have mark".split()
    return {name: getattr(one, name) for name in names} | {"isPreempted": one.is_preempted}


def compare(logs: dict[str, EventLog], folder: Path) -> set[str]:
    """Compare all answers; return the kinds of misses."""
    save(logs, folder)
    theirs = json.loads(node("answers.js", folder))
    kinds = set[str]()
    for name, log in logs.items():
        for said in theirs[name]["missed"]:
            answer = read(log).why_missed(said["request"])
            words = said.pop("words")
            assert said == missed(answer), (name, said["request"])
            if words and not (answer.about or answer.needed_by):  # the board numbers equal labels
                assert words == answer.sentences()[1:]
            kinds.add(answer.kind)
        for step, queue in theirs[name]["queues"]:
            assert queue == [waiting(one) for one in read(log).stuck(step).requests], (name, step)
        for request, marks in theirs[name]["marks"]:
            assert marks == [part.mark for part in read(log).why_slow(request).parts], (
                name,
                request,
            )
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


def test_random_logs(soak, first_seed, tmp_path):
    count = 1000 if soak else 30
    seeds = range(first_seed, first_seed + count)
    logs = {str(seed): recorded(seed) for seed in seeds}
    logs |= {f"sliding-{seed}": played(sliding_workload(seed)) for seed in seeds[: count // 3]}
    kinds = compare(logs, tmp_path)
    assert kinds >= {"no_window", "whole", "off", "evicted"}
    assert kinds >= {"never_stored", "differs", "first", "waiting"}


def test_windows_of_logs(first_seed, tmp_path):
    assert "before" in compare(windowed(first_seed), tmp_path)


def test_bundled_logs(tmp_path):
    compare({name: scenario.log for name, scenario in gallery().items()}, tmp_path)


def test_real_engines(tmp_path):
    logs = {path.name: read_source(path) for path in REAL}
    compare({name: log for name, log in logs.items() if isinstance(log, EventLog)}, tmp_path)


def test_without_token_ids_blocks_are_compared_by_their_hashes(tmp_path):
    known = {str(seed): recorded(seed) for seed in range(60)}
    known = {
        name: log
        for name, log in known.items()
        if log.of(RunStarted)[0].settings["prefix_cache"] == "hash"
    }
    logs = {name: without_token_ids(log) for name, log in known.items()}
    kinds = compare(logs, tmp_path)
    assert kinds >= {"evicted", "first", "whole"}
    for name, log in logs.items():
        for row in read(known[name]).request_rows:
            one, other = (
                read(known[name]).why_missed(row.request),
                read(log).why_missed(row.request),
            )
            assert one.found == other.found
            if other.kind == "evicted":
                assert (one.kind, one.evicted) == ("evicted", other.evicted)
            if other.kind in ("never_stored", "differs", "first"):
                assert other.mark == "inferred"
