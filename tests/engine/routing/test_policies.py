"""What each policy decides, as a function of what it was told."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cluster import ROUTERS, Decision, Replica, Router, router_named
from tests.engine.routing.clusters import check_decision
from tests.engine.witness import common
from tests.facts import raises_naming

PROMPT = [*range(100, 164)]
OTHER = [*range(200, 264)]


def joined(router: Router, replicas: int, block_size: int = 4) -> list[Replica]:
    for number in range(replicas):
        router.on_joined(str(number), block_size)
    return [Replica(str(number)) for number in range(replicas)]


def route(router: Router, request: int, tokens: list[int], replicas: list[Replica]) -> Decision:
    decision = router.choose(request, tokens, replicas, 0)
    router.on_routed(request, tokens, decision.replica, 0)
    next(one for one in replicas if one.id == decision.replica).in_flight += 1
    return decision


@pytest.mark.parametrize("name", ROUTERS)
@settings(max_examples=20, deadline=None)
@given(
    prompts=st.lists(st.lists(st.integers(1, 2), min_size=1, max_size=20), max_size=20),
    loads=st.lists(st.integers(0, 200), min_size=1, max_size=4),
)
def test_equal_histories_give_equal_decisions_on_a_replica_that_is_alive(
    name: str, prompts: list[list[int]], loads: list[int]
) -> None:
    decisions = []
    for _ in range(2):
        router = router_named(name)
        replicas = joined(router, len(loads))
        for replica, load in zip(replicas, loads, strict=True):
            replica.in_flight = load
        decisions.append([])
        for at, one in enumerate(prompts):
            before = {replica.id: replica.in_flight for replica in replicas}
            decisions[-1].append(decision := route(router, at, one, replicas))
            check_decision(decision, before)
    assert decisions[0] == decisions[1]
    alive = {str(number) for number in range(len(loads))}
    assert {one.replica for one in decisions[0]} <= alive


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=5))
def test_the_most_loaded_of_all_is_never_the_choice_of_two(loads: list[int]) -> None:
    router = router_named("power_of_two")
    replicas = [Replica(str(number), load) for number, load in enumerate(loads)]
    for at in range(20):
        decision = router.choose(at, [], replicas, 0)
        assert len(decision.scores) == 2
        if loads.count(max(loads)) == 1:
            assert loads[int(decision.replica)] < max(loads)


# prefix_tree


@settings(deadline=None)
@given(
    sent=st.lists(
        st.tuples(st.sampled_from("012"), st.lists(st.integers(1, 2), max_size=12)), max_size=6
    ),
    prompt=st.lists(st.integers(1, 2), min_size=1, max_size=12),
)
def test_the_tree_predicts_what_was_sent(
    sent: list[tuple[str, list[int]]], prompt: list[int]
) -> None:
    router = router_named("prefix_tree")
    replicas = joined(router, 3, block_size=2)
    for at, (replica, tokens) in enumerate(sent, start=1):
        router.on_routed(at, tokens, replica, 0)
    hits = router.choose(99, prompt, replicas, 0).hits
    for replica in "012":
        texts = [tokens for name, tokens in sent if name == replica]
        blocks = max((common(prompt, text) // 2 for text in texts), default=0)
        assert hits[replica] == min(blocks, (len(prompt) - 1) // 2) * 2


def test_the_tree_forgets_the_ends_of_the_oldest_prompts_first() -> None:
    router = router_named("prefix_tree", max_tree_size=96, cache_threshold=0)
    replicas = joined(router, 1)
    for at, tokens in enumerate([PROMPT, OTHER], start=1):
        router.on_routed(at, tokens, "0", 0)
    assert router.choose(3, [*OTHER, 1], replicas, 0).hits == {"0": 64}
    assert router.choose(4, [*PROMPT, 1], replicas, 0).hits == {"0": 32}
    router.on_routed(5, PROMPT, "0", 0)
    assert router.choose(6, [*OTHER, 1], replicas, 0).hits == {"0": 32}


def test_the_tree_goes_by_the_queues_when_they_differ_too_much() -> None:
    router = router_named("prefix_tree", balance_abs_threshold=4, balance_rel_threshold=1.5)
    replicas = joined(router, 2)
    router.on_routed(1, PROMPT, "0", 0)
    replicas[0].in_flight = 4
    decision = router.choose(2, PROMPT, replicas, 0)
    assert (decision.replica, decision.reason) == ("0", "longest_prefix")
    replicas[0].in_flight = 5
    decision = router.choose(3, PROMPT, replicas, 0)
    assert (decision.replica, decision.reason) == ("1", "load_unbalanced")
    replicas[1].in_flight = 20
    replicas[0].in_flight = 25
    assert router.choose(4, PROMPT, replicas, 0).reason == "longest_prefix"


# Names


def test_unknown_names_and_options_are_named() -> None:
    with raises_naming(ValueError, "prefix_events", "round_robin", "nearest"):
        router_named("nearest")
    with raises_naming(ValueError, "lag", "prefix_events", "guesses", "guess_ms"):
        router_named("prefix_events", lag=3)
    with raises_naming(ValueError, "seed", "round_robin", "none"):
        router_named("round_robin", seed=3)
