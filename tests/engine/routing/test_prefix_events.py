"""The event-fed router believes the logs, and guesses only about what is on its way."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import CostRunner, Engine, EngineConfig, SamplingParams
from engine.cluster import Replica
from engine.cluster.prefix_events import CONTENDERS, PrefixEvents
from engine.core.log.state import EngineState
from tests.engine.routing.clusters import Case, cases
from tests.engine.routing.test_policies import OTHER, PROMPT, route
from visualizer import read

SECOND = 1_000_000


class Cluster:
    """Two replicas with real engines, whose events the test delivers."""

    def __init__(self, router: PrefixEvents, **config: object) -> None:
        self.router = router
        self.replicas = [Replica("0"), Replica("1")]
        settings = EngineConfig(block_size=4, **config)
        self.engines = {one.id: Engine(CostRunner(1, 1), settings) for one in self.replicas}
        self._read = dict.fromkeys(self.engines, 0)
        for name in self.engines:
            router.on_joined(name, 4)
            self.deliver(name)

    def deliver(self, name: str) -> None:
        for event in self.engines[name].log.since(self._read[name]):
            self.router.on_event(name, event, 0)
        self._read[name] = self.engines[name].log.next_seq

    def compute(self, name: str, tokens: list[int]) -> None:
        self.engines[name].complete([tokens], SamplingParams(max_tokens=1), progress=False)


def test_a_new_prefix_stays_together_until_it_is_in_demand() -> None:
    cluster, long = Cluster(PrefixEvents()), [*range(1000)]
    decisions = [route(cluster.router, at, [*long, at], cluster.replicas) for at in range(1, 7)]
    reasons = ["least_work"] + ["prefix_on_its_way"] * 4 + ["lowest_cost"]
    assert [one.reason for one in decisions] == reasons
    assert len({one.replica for one in decisions[:5]}) == 1
    assert ["copy" in one.terms["0"] for one in decisions] == [False] * 5 + [True]
    assert decisions[2].hits[decisions[2].replica] == 1000


@pytest.mark.parametrize("guesses", [True, False])
def test_what_the_log_says_counts(guesses: bool) -> None:
    cluster = Cluster(PrefixEvents(guesses=guesses))
    cluster.compute("1", PROMPT)
    before = cluster.router.choose(1, PROMPT, cluster.replicas, 0)
    cluster.deliver("1")
    after = cluster.router.choose(1, PROMPT, cluster.replicas, 0)
    assert before.hits == {"0": 0, "1": 0}
    assert after.hits == {"0": 0, "1": 60}
    assert (after.replica, after.reason) == ("1", "longest_prefix")


def test_a_new_prefix_goes_where_less_was_computed() -> None:
    cluster = Cluster(PrefixEvents(), max_kv_tokens=80)
    cluster.router.on_routed(1, PROMPT, "0", 0)
    cluster.router.on_ended(1, 0)
    decision = cluster.router.choose(2, OTHER, cluster.replicas, 0)
    assert decision.replica == "1" and not decision.ties
    assert decision.terms["0"]["evictions"] == decision.terms["0"]["prefill"] / 2 * (64 / 80)


@settings(max_examples=60, deadline=None)
@given(
    seats=st.integers(1, 6),
    loads=st.lists(st.integers(0, 12), min_size=12, max_size=16),
    sent=st.lists(st.tuples(st.integers(0, 11), st.sampled_from([PROMPT, OTHER])), max_size=9),
)
def test_of_many_replicas_the_compared_ones_include_the_best(
    seats: int, loads: list[int], sent: list[tuple[int, list[int]]]
) -> None:
    router = PrefixEvents()
    replicas = [Replica(str(number), load) for number, load in enumerate(loads)]
    config = EngineConfig(block_size=4, max_batch_size=seats, max_kv_tokens=160)
    (start,) = Engine(CostRunner(1, 1), config).log
    for one in replicas:
        router.on_joined(one.id, 4)
        router.on_event(one.id, start, 0)
    for at, (number, prompt) in enumerate(sent, start=1):
        router.on_routed(at, prompt, str(number), 0)
    decision = router.choose(99, PROMPT, replicas, 0)
    assert len(decision.scores) <= CONTENDERS + 1
    hits = {one.id: router._last.hits.get(one.id, 0) for one in replicas}
    assert max(decision.hits.values()) == max(hits.values())
    every = [sum(router._terms(router._last, one).values()) for one in replicas]
    assert decision.scores[decision.replica] == pytest.approx(min(every))


def test_a_prefix_that_fills_its_replica_is_copied() -> None:
    cluster, long = Cluster(PrefixEvents(), max_batch_size=8), [*range(200)] * 5
    cluster.compute("1", long)
    cluster.deliver("1")
    cluster.replicas[1].in_flight = 8
    assert cluster.router.choose(1, long, cluster.replicas, 0).replica == "1"
    cluster.replicas[1].in_flight = 9
    decision = cluster.router.choose(2, long, cluster.replicas, 0)
    assert (decision.replica, decision.reason) == ("0", "lowest_cost")


def test_a_guess_ends_when_the_log_confirms_it() -> None:
    cluster = Cluster(PrefixEvents())
    chosen = route(cluster.router, 1, PROMPT, cluster.replicas).replica
    cluster.compute(chosen, PROMPT)
    cluster.deliver(chosen)
    cluster.router.on_first_token(1, 0)
    cluster.router.on_ended(1, 0)
    cluster.replicas[int(chosen)].in_flight = 0
    assert cluster.router.choose(2, PROMPT, cluster.replicas, 0).reason == "longest_prefix"
    cluster.engines[chosen].clear_prefix_cache()
    cluster.deliver(chosen)
    assert not any(cluster.router.choose(3, PROMPT, cluster.replicas, 0).hits.values())


def test_a_guess_ends_after_its_time() -> None:
    cluster = Cluster(PrefixEvents(guess_ms=5000))
    route(cluster.router, 1, PROMPT, cluster.replicas)
    assert any(cluster.router.choose(2, PROMPT, cluster.replicas, 5 * SECOND - 1).hits.values())
    assert not any(cluster.router.choose(3, PROMPT, cluster.replicas, 5 * SECOND).hits.values())


def test_a_replica_that_left_is_forgotten() -> None:
    cluster = Cluster(PrefixEvents())
    cluster.compute("1", PROMPT)
    cluster.deliver("1")
    cluster.router.on_routed(1, OTHER, "1", 0)
    cluster.router.on_left("1")
    assert cluster.router.choose(2, PROMPT, cluster.replicas[:1], 0).hits == {"0": 0}
    cluster.router.on_joined("1", 4)
    assert cluster.router.choose(3, OTHER, cluster.replicas, 0).hits == {"0": 0, "1": 0}


@settings(max_examples=60, deadline=None)
@given(cases(gap_ms=st.just(10_000.0)))
def test_predictions_hold_exactly_when_the_news_has_arrived(case: Case) -> None:
    case.router = "prefix_events"
    case.faults = []
    rows = read(case.run()).decision_rows
    admitted = [row for row in rows if row.cached_tokens is not None]
    assert [row.predicted_tokens for row in admitted] == [row.cached_tokens for row in admitted]


def without_order(state: EngineState) -> dict[str, Any]:
    """The state without the order in which a radix tree evicts, which routing does not need."""
    core = state.core() | {"tick": 0}
    core["nodes"] = [node | {"last": 0, "lock_ref": 0} for node in core["nodes"]]
    return core


@settings(max_examples=60, deadline=None)
@given(cases())
def test_nothing_is_left_of_requests_that_ended(case: Case) -> None:
    router = PrefixEvents()
    case.router = router  # type: ignore[assignment]
    log = case.run()
    assert not router._owed_by
    assert not any(known.owed for known in router._known.values())
    for replica, its in log.replicas.items():
        if replica in router._known:
            assert without_order(router._known[replica].tree.state) == without_order(its.state())
    router._guesses.expire(1_000_000 * SECOND)
    assert not len(router._guesses) and not len(router._guesses.index)
    assert not router._guesses._copies and not router._guesses._ending_in
