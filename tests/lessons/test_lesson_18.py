"""Lesson 18's exercise: right functions are accepted, and route in the simulator."""

from itertools import takewhile

import pytest

from checks import check
from checks.broken import Broken
from checks.lesson_18 import MACHINE, RUNS, SETTINGS, Choice, Promise, YourRouter, attempt_choice
from engine.cluster.checked import RouterError
from engine.cluster.prefix_events import PrefixEvents
from engine.cluster.simulate_cluster import simulate_cluster
from solutions.lesson_18 import route as solution
from tests.facts import raises_naming
from visualizer import read

SIX, HOT = RUNS

OWN = PrefixEvents


def size(one):
    return len(one.sent) if hasattr(one, "sent") else 9


def cached_in(replica, known, in_flight, now):
    rows = [row for row in in_flight if row[0] == replica and not row[3] and now - row[2] <= 5000]
    return known[replica].union(*(blocks for _, blocks, _, _ in rows))


def by_cost(blocks, load, known, in_flight, now):
    """As Dynamo does: blocks to compute plus load."""

    def cost(replica):
        cached = cached_in(replica, known, in_flight, now)
        return len(blocks) - len(list(takewhile(cached.__contains__, blocks))) + load[replica]

    return min(load, key=cost)


def balance_first(blocks, load, known, in_flight, now):
    """As SGLang and Ray do: if loads differ too much, the least loaded; else the longest prefix."""
    least = min(load, key=load.get)
    if max(load.values()) > 8 and max(load.values()) > 1.5 * load[least]:
        return least
    best, longest = least, 0
    for replica in load:
        cached, hit = cached_in(replica, known, in_flight, now), 0
        for block in blocks:
            if block not in cached:
                break
            hit += 1
        if hit > longest or (hit == longest and load[replica] < load[best]):
            best, longest = replica, hit
    return best


def drops_guesses_a_little_early(blocks, load, known, in_flight, now):
    rows = [row for row in in_flight if now - row[2] < 4950]
    return solution(blocks, load, known, rows, now)


RIGHT = [solution, by_cost, balance_first, drops_guesses_a_little_early]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_function_is_accepted_and_routes(right) -> None:
    make = check.lesson_18(right)
    router = make()
    assert isinstance(router, YourRouter)
    log = simulate_cluster(SIX.workload(), SETTINGS, cost=MACHINE, replicas=3, router=router)
    rows = read(log).decision_rows
    assert {row.replica for row in rows} == {"0", "1", "2"}
    assert all(row.ttft_ms is not None for row in rows)


def test_what_the_function_gets_is_true() -> None:
    """Without lag, known is what the replica has, and a guess is reported once it is known."""
    asked = []

    def remember(blocks, load, known, in_flight, now):
        asked.append((len(blocks), load, known, in_flight, now))
        return solution(blocks, load, known, in_flight, now)

    log = simulate_cluster(
        HOT.workload(), SETTINGS, cost=MACHINE, replicas=2, router=YourRouter(remember), lag_ms=0
    )
    assert len(asked) == HOT.each
    for blocks, load, known, in_flight, now in asked:
        assert blocks == (HOT.prefix + 24 - 1) // SETTINGS.block_size
        assert list(load) == list(known) == ["0", "1"]
        for replica, sent, at, reported in in_flight:
            assert at <= now
            assert reported or not known[replica].issuperset(sent)
    guesses = [row for *_, in_flight, _ in asked for row in in_flight]
    assert any(row[3] for row in guesses) and not all(row[3] for row in guesses)
    rows = read(log).decision_rows
    assert sum(row.predicted_tokens == row.cached_tokens for row in rows) > 0.9 * len(rows)


def test_a_dead_replica_gets_nothing_and_its_requests_go_elsewhere() -> None:
    log = simulate_cluster(
        HOT.workload(), SETTINGS, cost=MACHINE, replicas=3, router=YourRouter(solution),
        fail={"1": 400.0},
    )  # fmt: skip
    rows = read(log).decision_rows
    assert any(row.replica == "1" for row in rows if (row.routed_ms or 0) < 400)
    assert not any(row.replica == "1" for row in rows if (row.routed_ms or 0) > 400)
    assert any(row.attempt == 2 for row in rows)
    ended = {row.request for row in rows if row.ttft_ms is not None or row.lost}
    assert len(ended) == HOT.each


def test_a_function_that_names_no_replica_is_an_error_that_says_so() -> None:
    router = YourRouter(lambda *_: "7")
    with raises_naming(RouterError, "7"):
        simulate_cluster(SIX.workload(), SETTINGS, cost=MACHINE, router=router)


def test_a_longer_beginning_with_more_load_may_be_chosen_or_not() -> None:
    either = Choice((1, 2), {"0": 3, "1": 2}, {"0": {1, 2}, "1": set()})
    for replica in ("0", "1"):
        attempt_choice(lambda *_, chosen=replica: chosen, either)
    full = Choice((1, 2), {"0": 9, "1": 2, "2": 0}, {"0": {1, 2}, "1": set(), "2": set()})
    with pytest.raises(Broken) as broken:
        attempt_choice(lambda *_: "0", full)
    assert broken.value.promise is Promise.OVERLOADED
