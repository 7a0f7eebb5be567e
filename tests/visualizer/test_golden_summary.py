"""The board's summary of a run has the figures that Python computes from the same log."""

import json
import math
from typing import Any

import pytest

from engine import Cost, EngineConfig, EventLog, Workload, simulate
from engine.simulation.workload import poisson, uniform
from tests.visualizer.storytellers import storytellers
from tests.visualizer.test_golden_fold import node, recorded, save, windowed
from visualizer import read
from visualizer.reading.summary import PERCENTILES, percentiles

SLO_MS = {"ttft": 50, "itl": 12}
NAMES = {"median": "p50", "p95": "p95", "p99": "p99"}


def overloaded(**settings: Any) -> EventLog:
    workload = Workload.generate(
        130, arrivals=poisson(150), prompt=uniform(4, 40), output=uniform(8, 40), groups=5, seed=1
    )
    config = EngineConfig(
        token_budget=64, max_batch_size=8, max_kv_tokens=256, block_size=4, **settings
    )
    return simulate(workload, config, cost=Cost(1, 0.01, 0.02, 0.00002, 1e-6))


def in_us(values: Any) -> dict[str, float]:
    known = values.dropna()
    shown = {NAMES[name]: known.quantile(PERCENTILES[name]) for name in percentiles(known.tolist())}
    if shown:
        shown["max"] = known.max()
    return {name: 1000 * value for name, value in shown.items()}


def good(log: EventLog) -> int:
    """The finished requests within the limits."""
    gaps = read(log).tokens.dropna(subset="gap_ms").groupby("request").gap_ms.quantile(0.99)
    rows = read(log).requests[read(log).requests.finish_reason.isin(["stop", "length"])]
    slowest = gaps.reindex(rows.index).fillna(0)
    return int(((rows.ttft_ms <= SLO_MS["ttft"]) & (slowest <= SLO_MS["itl"] + 1e-9)).sum())


def test_the_board_and_python_summarize_alike(first_seed, tmp_path):
    logs = {str(seed): recorded(seed) for seed in range(first_seed, first_seed + 20)}
    logs |= {f"w{name}": log for name, log in windowed(first_seed).items()}
    logs |= {
        "story": storytellers(),
        "crowd": overloaded(),
        "static": overloaded(batching="static"),
    }
    save(logs, tmp_path)
    theirs = json.loads(node("summaries.js", tmp_path))
    for name, log in logs.items():
        ours, said = read(log).requests, theirs[name]
        assert said["ttft"] == pytest.approx(in_us(ours.ttft_ms)), name
        assert said["itl"] == pytest.approx(in_us(read(log).tokens.gap_ms)), name
        assert said["requests"] == len(ours)
        assert said["preemptions"] == read(log).steps.preempted.sum()
        ends = ours.finish_reason.value_counts().to_dict()
        unfinished = int(ours.finish_reason.isna().sum())
        assert said["ends"] == ends | ({"unfinished": unfinished} if unfinished else {}), name
    for name in ("story", "crowd", "static"):
        log, said = logs[name], theirs[name]
        prompts = read(log).requests[read(log).requests["sample"] == 0]
        assert (said["found"], said["asked"]) == (
            prompts.cached_tokens.sum(),
            prompts.prompt_tokens.sum(),
        )
        assert said["good"] == good(log)
        assert 0 < said["good"] < said["requests"]
        steps = read(log).steps
        end = (steps.start_ms + steps.duration_ms).max() - steps.start_ms.min()
        assert said["duration"] == pytest.approx(1000 * end)
    for name in ("crowd", "static"):
        steps, said = read(logs[name]).steps, theirs[name]
        assert said["waited"] == pytest.approx(1000 * (steps.waiting * steps.duration_ms).sum())
        assert math.isclose(sum(wait["amount"] for wait in said["waits"]), said["waited"])
    causes = {wait["cause"] for wait in theirs["crowd"]["waits"]}
    assert {"preempted", "after_preemption", "whole_sequence"} <= causes
    assert theirs["static"]["waits"][0]["cause"] == "static_batch"
