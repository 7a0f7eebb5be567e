"""The board of a cluster knows what Python's ClusterLog knows: the same split, the same decisions."""

import json
from typing import Any

import msgspec
import pandas as pd
import pytest

from benchmarks.chaos.sentences import check_told
from engine import ClusterLog, simulate_cluster
from engine.cluster import events as c
from tests.visualizer.clusters import (
    COST,
    config,
    crowd,
    faults,
    one_dies,
    prefill_and_decode,
    speakers,
    three_replicas,
)
from tests.visualizer.test_golden_fold import node
from visualizer import read


def logs() -> dict[str, ClusterLog]:
    window = simulate_cluster(
        speakers(), config(), cost=COST, replicas=2, router="random", log=ClusterLog(window=400)
    )
    return {
        "three": three_replicas(),
        "dies": one_dies(),
        "crowd": crowd(),
        "window": window,
        "roles": prefill_and_decode(),
        **faults(),
    }


def test_a_moved_prefix_is_expected_where_it_went(theirs):
    facts = theirs["roles"]["facts"]
    assert facts["judged"] == len(read(prefill_and_decode()).decision_rows)
    assert facts["wrong"] == 0


def in_ms(us: float | None) -> float | None:
    return None if us is None else us / 1000


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clusters")
    for name, log in logs().items():
        log.save(folder / f"{name}.jsonl")
    known: dict[str, Any] = json.loads(node("../cluster/rows.js", folder))
    return known


def test_the_log_splits_into_the_same_logs(theirs):
    for name, log in logs().items():
        split = [
            {
                "replica": run.replica,
                "events": len(events),
                "requests": len(read(events).request_rows),
                "offset": run.offset,
            }
            for _, run, events in log.parts
        ]
        assert theirs[name]["parts"] == split, name


def test_the_decisions_have_the_same_facts(theirs):
    for name, log in logs().items():
        ours = read(log).decision_rows
        assert len(theirs[name]["rows"]) == len(ours), name
        for said, row in zip(theirs[name]["rows"], ours, strict=True):
            known = msgspec.structs.asdict(row)
            assert in_ms(said.pop("routed_us")) == pytest.approx(known["routed_ms"])
            assert in_ms(said.pop("ttft_us")) == pytest.approx(known["ttft_ms"])
            assert said == {field: known[field] for field in said}, (name, row.request)


def test_the_figures_are_the_sums_of_the_rows(theirs):
    for name in ("three", "dies", "crowd", *faults()):
        rows, facts = read(logs()[name]).decisions, theirs[name]["facts"]
        judged = rows[rows.cached_tokens.notna()]
        assert facts["requests"] == rows.request.nunique()
        predicts = [bool(event.hits) for event in logs()[name] if isinstance(event, c.Routed)]
        # A decision whose prompt could not be read is no prediction.
        judged = judged[judged.prompt_tokens > 0]
        known = judged[pd.Series(predicts)[judged.index]]
        assert facts["judged"] == len(known)
        assert facts["prompt"] == (judged.prompt_tokens + judged.output_tokens).sum()
        assert facts["predicted"] == judged.predicted_tokens.sum()
        assert facts["delivered"] == judged.cached_tokens.sum()
        assert facts["wrong"] == (known.predicted_tokens != known.cached_tokens).sum()
        assert facts["lost"] == rows.lost.sum()
        assert facts["retried"] == rows[rows.attempt > 1].request.nunique()
        assert facts["continued"] == rows[rows.output_tokens > 0].request.nunique()
    assert theirs["three"]["facts"]["wrong"] > 0
    assert theirs["crowd"]["facts"]["judged"] == 0
    assert theirs["dies"]["facts"]["continued"] > 0
    assert theirs["kill"]["facts"]["continued"] > 0
    assert theirs["dies"]["facts"]["retried"] > 0


def test_every_sentence_and_every_seat_follows_from_the_events(theirs):
    for name in theirs.keys() - {"window"}:  # its first events are left out
        assert not list(check_told(logs()[name], theirs[name])), name


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (c.Routed, {"hits": {"0": 3, "1": 3}}),
        (c.Routed, {"attempt": 2}),
        (c.Routed, {"prompt": 3}),
        (c.Routed, {"t": {"at": 7}}),
        (c.ReplicaLeft, {}),
        (c.ReplicaJoined, {"t": {"at": 13_000_000, "offset": 0}}),
    ],
)
def test_words_about_another_log_are_noticed(theirs, kind, fields):
    """One event of the log is changed or, without fields, left out after the board has read it."""
    log, events = ClusterLog(), list(faults()["kill"])
    place = max(i for i, event in enumerate(events) if isinstance(event, kind))
    changed = [msgspec.structs.replace(events[place], **fields)] if fields else []
    for event in [*events[:place], *changed, *events[place + 1 :]]:
        log.append(event)
    assert list(check_told(log, theirs["kill"]))
