"""A learner's router: its mistakes name the class, the method, the value and what is allowed."""

import pytest

from engine.cluster import Decision, NoReplicaError, Router
from engine.cluster.checked import RouterError, checked_router
from engine.cluster.load import RoundRobin
from engine.cluster.simulate_cluster import simulate_cluster
from engine.simulation.workload import Arrival, Workload
from tests.engine.routing.clusters import COST
from tests.facts import raises_naming
from visualizer import read

ONE = Workload([Arrival(prompt=[97, 98])])


class Mine(Router):
    """A learner's router that decides as told."""

    def __init__(self, decide) -> None:
        self._decide = decide

    def choose(self, request, tokens, replicas, now_us) -> Decision:
        return self._decide(request, tokens, replicas, now_us)


@pytest.mark.parametrize(
    ("choose", "facts"),
    [
        (lambda *_: "0", ["Decision", "'0'"]),
        (lambda *_: None, ["Decision", "None"]),
        (lambda *_: Decision("2", "random"), ["0, 1", "'2'"]),
        (lambda *_: Decision("0", "because"), ["least_loaded", "'because'"]),
        (lambda *_: Decision("0", "random", hits=[1]), ["hits", "[1]"]),
        (lambda *_: Decision("0", "random", scores={0: 1}), ["scores", "{0: 1}"]),
        (lambda *_: Decision("0", "random", ties=[2]), ["ties", "[2]"]),
        (lambda *_: Decision("0", "random", terms={"0": {"load": "1"}}), ["terms['0']", "'1'"]),
        (lambda *_: Decision("0", "random", {}, {"0": 3}, {"0": {"load": 2}}), ["terms", "3", "2"]),
        (lambda *_: 1 // 0, ["ZeroDivisionError"]),
    ],
)
def test_a_wrong_choice_is_named(choose, facts: list[str]) -> None:
    with raises_naming(RouterError, "Mine.choose", *facts):
        simulate_cluster(ONE, cost=COST, router=Mine(choose))


def test_a_mistake_in_a_hook_is_named_and_a_router_without_mistakes_is_in_the_log() -> None:
    class Deaf(RoundRobin):
        def on_event(self, replica, event, now_us) -> None:
            raise KeyError(replica)

    with raises_naming(RouterError, "Deaf.on_event", "KeyError"):
        simulate_cluster(ONE, cost=COST, router=Deaf())
    log = simulate_cluster(ONE, cost=COST, router=Mine(lambda *_: Decision("1", "random")))
    assert [row.replica for row in read(log).decision_rows] == ["1"]
    assert next(iter(log)).router == "Mine"


def test_what_is_not_a_router_is_named() -> None:
    with raises_naming(ValueError, "router", "RoundRobin()"):
        checked_router(RoundRobin)  # type: ignore[arg-type]
    with raises_naming(ValueError, "router", "7"):
        checked_router(7)  # type: ignore[arg-type]


def test_no_replica_is_an_error_that_names_the_request() -> None:
    late = Workload([Arrival(prompt=[97]), Arrival(prompt=[97], at_ms=500)])
    with raises_naming(NoReplicaError, "2"):
        simulate_cluster(late, cost=COST, fail={"0": 100, "1": 200})
