"""`compare` of two cluster runs: totals, and each request in both."""

import math

import pytest

from engine.cluster.simulate_cluster import simulate_cluster
from tests.facts import assert_names, raises_naming
from tests.visualizer.clusters import COST, config, speakers, three_replicas
from tests.visualizer.storytellers import storytellers
from visualizer import ClusterComparison, compare, read


@pytest.fixture(scope="module")
def comparison():
    """The same workload with a router that knows nothing, and with one that knows the prefixes."""
    blind = simulate_cluster(speakers(seed=2), config(), cost=COST, replicas=3, router="random")
    return compare(blind, three_replicas(), ("random", "tree"))


def test_the_totals_are_those_of_the_decisions(comparison):
    for log, name in zip(comparison.logs, ("random", "tree"), strict=True):
        rows, totals = read(log).decisions, comparison.totals[name]
        assert totals["requests"] == 28
        assert totals["hit_rate"] == rows.cached_tokens.sum() / rows.prompt_tokens.sum()
        assert totals["ttft_mean_ms"] == pytest.approx(rows.ttft_ms.mean())
    tree = read(comparison.logs[1]).decisions
    right = comparison.totals.loc["right_predictions"]
    assert right["tree"] == (tree.predicted_tokens == tree.cached_tokens).mean()
    assert math.isnan(right["random"])  # it predicts nothing
    assert comparison.totals.loc["hit_rate", "tree"] > comparison.totals.loc["hit_rate", "random"]


def test_each_request_has_its_replica_and_its_first_token_in_both(comparison):
    table = comparison.requests
    assert sorted(table.index) == list(range(1, 29))
    changes = table.ttft_change_ms.abs()
    assert list(changes) == sorted(changes, reverse=True)
    for log, name in zip(comparison.logs, ("random", "tree"), strict=True):
        for row in read(log).decision_rows:
            assert table.loc[row.request, f"replica_{name}"] == row.replica
            assert table.loc[row.request, f"ttft_ms_{name}"] == row.ttft_ms
    moved = int((table.replica_random != table.replica_tree).sum())
    assert moved > 0
    assert_names(repr(comparison), 28, moved)


def test_a_cluster_log_is_compared_with_a_cluster_log_only(tmp_path):
    three_replicas().save(tmp_path / "run.jsonl")
    same = compare(tmp_path / "run.jsonl", three_replicas())  # type: ignore[call-overload]
    assert isinstance(same, ClusterComparison)
    assert (same.requests.ttft_change_ms == 0).all()
    with raises_naming(TypeError, "b", "EventLog"):
        compare(three_replicas(), storytellers())  # type: ignore[call-overload]
