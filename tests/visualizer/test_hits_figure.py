"""The figure of hit rates: one curve per router, which ends at the run's hit rate."""

import pytest

from engine import Cost, EngineConfig
from engine.events.cluster_log import ClusterLog
from engine.simulation.cluster import simulate_cluster
from engine.simulation.speakers import Speaker, workload_of
from tests.facts import assert_names
from visualizer import figures


def serve(router: str) -> ClusterLog:
    people = [
        Speaker(
            f"p{n}", own=8, shared=32, output=2, common=("clock", "letter")[n % 2], at_ms=90.0 * n
        )
        for n in range(12)
    ]
    config = EngineConfig(block_size=8, max_kv_tokens=512)
    return simulate_cluster(workload_of(people), config, cost=Cost(10, 0.2), router=router)


def test_each_curve_ends_at_the_routers_hit_rate():
    logs = {"in turn": serve("round_robin"), "tree": serve("prefix_tree")}
    figure = figures.hits(logs)
    assert [curve.name for curve in figure.data] == list(logs)
    for curve, log in zip(figure.data, logs.values(), strict=True):
        rows = log.decision_rows
        rate = sum(row.cached_tokens for row in rows) / sum(row.prompt_tokens for row in rows)
        assert curve.y[-1] == pytest.approx(100 * rate)
        assert len(curve.x) == len(rows) == 12
        assert_names(figure.layout.title.text, f"{rate:.0%}")


def test_one_log_needs_no_name_and_a_log_without_requests_says_so():
    [curve] = figures.hits(serve("prefix_tree")).data
    assert curve.name == ""
    assert_names(figures.hits(ClusterLog()).layout.title.text, "No hits")
