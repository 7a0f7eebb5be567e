"""Prefill on one simulated replica, decode on another: what holds for every workload."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from engine import ClusterLog, Cost, EngineConfig, SamplingParams, Workload, simulate_cluster
from engine.cluster import events as c
from engine.cluster.router import NoReplicaError
from engine.cluster.simulated_roles import Roles
from engine.cluster.transfer import TransferCosts, blocks_to_move
from engine.simulation.workload import Abort, Arrival
from visualizer import read

COST = Cost(10, 0.25)
LINK = TransferCosts(2, 0.13, 0.25)
SIZE = 4


def workload(seed: int, aborts: bool = False) -> Workload:
    """Random requests of a few families with common beginnings, some of them twice."""
    chance = random.Random(seed)
    inputs, at = [], 0.0
    for _ in range(chance.randint(2, 14)):
        at += chance.choice((0, 0, 15, 120)) * chance.random()
        family, length = chance.randint(1, 3), chance.randint(1, 40)
        shared = chance.randint(0, length)
        prompt = [family * 100 + place for place in range(shared)]
        prompt += [chance.randint(1000, 1003) for _ in range(length - shared)]
        params = SamplingParams(max_tokens=chance.randint(1, 12), ignore_eos=True)
        label = f"request {len(inputs) + 1}"
        inputs.append(Arrival(at_ms=at, prompt=prompt, params=params, label=label))
    requests = len(inputs)
    if aborts:
        ends = sorted((at * chance.random(), chance.randint(1, requests)) for _ in range(4))
        inputs += [Abort(at_ms=at + one, request=request) for one, request in ends]
    return Workload(sorted(inputs, key=lambda one: one.at_ms), {"vocab_size": 2000, "eos_ids": []})


def texted(work: Workload) -> Workload:
    for one in work.inputs:
        if isinstance(one, Arrival):
            one.texts = [f" {token}" for token in one.prompt]
    return work


def run(work: Workload, roles: Roles | None = None, **how) -> ClusterLog:
    cache = "hash" if len(work.inputs) % 2 else "radix"
    config = EngineConfig(
        token_budget=16, max_batch_size=4, max_kv_tokens=160, block_size=SIZE, prefix_cache=cache
    )
    how = {"router": "prefix_events", "cost": COST} | how
    return simulate_cluster(texted(work), config, roles=roles, **how)


def roles(seed: int = 0, **how) -> Roles:
    chance = random.Random(seed)
    link = replace(LINK, fixed_ms=chance.choice((0, 2, 40)), block_ms=chance.choice((0, 0.1, 3)))
    return Roles(chance.randint(1, 2), chance.randint(1, 2), link, **how)


def lengths(log: ClusterLog) -> Counter[int]:
    return Counter(row.request for row in read(log).token_rows)


def moves(log: ClusterLog) -> list[c.Moved]:
    return [event for event in log if isinstance(event, c.Moved)]


@pytest.fixture
def seeds(soak: bool) -> range:
    return range(30 if soak else 8)


def test_answers_are_whole_causes_come_first_and_runs_repeat(seeds: range) -> None:
    for seed in seeds:
        asked = []

        def rule(tokens, here, there, block_size, costs) -> int:
            blocks = blocks_to_move(tokens, here, there, block_size, costs)
            asked.append((tokens, here, there, blocks))  # noqa: B023
            return blocks

        work = workload(seed)
        lengths_asked = {n: one.params.max_tokens for n, one in enumerate(work.inputs, 1)}
        log = run(work, roles(seed, rule=rule))
        assert lengths(log) == lengths_asked == lengths(run(work)), seed
        check_causes(log)
        # No block is moved that is there already, and none of the last token.
        decided = {((here + blocks) * SIZE, blocks) for _, here, _, blocks in asked if blocks}
        assert {(one.tokens, one.blocks) for one in moves(log)} <= decided
        for tokens, here, there, blocks in asked:
            assert here + blocks <= max(here, there)
            assert (here + blocks) * SIZE < tokens
        again = run(workload(seed), roles(seed))
        assert log.deterministic() == again.deterministic()
        assert read(log).token_rows == read(again).token_rows
        for replica in ClusterLog.from_bytes(log.to_bytes()).replicas.values():
            state = replica.state()
            assert not state.requests
            cached = sum(len(node.blocks) + len(node.copies) for node in state.nodes.values())
            assert len(state.free) + cached == 40


def check_causes(log: ClusterLog) -> None:
    role = {event.replica: event.role for event in log if isinstance(event, c.ReplicaJoined)}
    first: dict[int, float] = {}
    for row in read(log).token_rows:
        assert role[row.replica] == "decode"
        first.setdefault(row.request, row.time_ms)
    for move in moves(log):
        mine = [one for one in log if getattr(one, "request", 0) == move.request]
        routed = [one.t["at"] for one in mine if isinstance(one, c.Routed)]
        placed = {one.replica: one.t["at"] for one in mine if isinstance(one, c.Placed)}
        assert (role[move.source], role[move.target]) == ("prefill", "decode")
        arrived = move.t["at"] + move.t["us"]
        times = [routed[0], placed[move.source], move.t["at"], arrived, placed[move.target]]
        assert times == sorted(times)
        assert routed[1] == move.t["at"]
        assert first[move.request] > placed[move.target] / 1000
    assert all(ttft > 0 for row in read(log).decision_rows if (ttft := row.ttft_ms) is not None)


def test_when_replicas_die_every_request_ends_once(seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        setting = replace(roles(seed), prefill=2, decode=2)
        work = workload(seed)
        end = max(row.time_ms for row in read(run(work, setting)).token_rows)
        dying = chance.sample("0123", 2) if seed % 2 else [chance.choice("0123")]
        if set(dying) == {"2", "3"}:  # one decode replica has to stay
            dying.pop()
        log = run(work, setting, fail={one: end * chance.random() for one in dying})
        lost = {event.request for event in log if isinstance(event, c.RequestLost)}
        for number, one in enumerate(work.inputs, 1):
            asked, count = one.params.max_tokens, lengths(log)[number]
            assert count == asked or (number in lost and count < asked), seed


def test_an_aborted_request_leaves_nothing_behind_wherever_it_is(seeds: range) -> None:
    for seed in seeds:
        work = workload(seed, aborts=True)
        log = run(work, roles(seed))
        aborted = {one.request for one in work.inputs if isinstance(one, Abort)}
        arrivals = [one for one in work.inputs if isinstance(one, Arrival)]
        for number, one in enumerate(arrivals, 1):
            asked, count = one.params.max_tokens, lengths(log)[number]
            assert count == asked or (number in aborted and count < asked), seed
        assert not any(replica.state().requests for replica in log.replicas.values())


def one_after_the_other(*prompts: list[int]) -> Workload:
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    arrivals = [
        Arrival(at_ms=500 * number, prompt=prompt, params=params)
        for number, prompt in enumerate(prompts)
    ]
    return Workload(list(arrivals), {"vocab_size": 2000, "eos_ids": []})


def test_a_prompt_moves_once_and_a_longer_one_moves_only_the_rest() -> None:
    first, second = list(range(17)), list(range(30))
    log = run(one_after_the_other(first, first, second), Roles(1, 1, LINK))
    assert [(one.request, one.tokens, one.blocks) for one in moves(log)] == [(1, 16, 4), (3, 28, 3)]
    cached = [row.cached_tokens for row in read(log).decision_rows if row.ttft_ms is not None]
    assert cached == [16, 16, 28]


def test_a_move_takes_a_fixed_time_and_a_time_for_each_block() -> None:
    log = run(one_after_the_other(list(range(17))), Roles(1, 1, TransferCosts(5, 3, 9)))
    [move] = moves(log)
    assert move.t == {"at": 24_250, "us": 17_000}  # after steps of 16 tokens and of 1
    assert read(log).token_rows[0].time_ms == 24.25 + 17 + 10.25


def test_without_a_prefill_replica_a_decode_replica_does_both() -> None:
    log = run(one_after_the_other(list(range(17))), Roles(1, 1, LINK), fail={"0": 0.001})
    assert lengths(log) == {1: 3}
    assert {row.replica for row in read(log).token_rows} == {"1"}


def test_a_role_without_a_replica_and_a_prompt_with_samples_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"decode must be at least 1 replica, got 0"):
        Roles(1, 0, LINK)
    params = SamplingParams(max_tokens=2, n=2, temperature=1)
    work = Workload([Arrival(prompt=[1, 2], params=params, label="Ada")])
    with pytest.raises(ValueError, match="one sample, got 2 of Ada"):
        run(work, Roles(1, 1, LINK))


SLOW = TransferCosts(1000, 0, 1e6)  # the move lasts from 24.25 to 1024.25 ms


def test_a_request_whose_decode_replica_dies_during_the_move_moves_again() -> None:
    work = one_after_the_other(list(range(17)))
    routed = [
        event.replica for event in run(work, Roles(1, 2, SLOW)) if isinstance(event, c.Routed)
    ]
    [other] = {"1", "2"} - {routed[1]}
    log = run(work, Roles(1, 2, SLOW), fail={routed[1]: 500})
    assert [one.replica for one in log if isinstance(one, c.Placed)] == ["0", "0", other]
    assert lengths(log) == {1: 3}
    assert [(one.target, one.t["at"]) for one in moves(log)] == [(other, 510_250)]


def test_without_a_decode_replica_a_request_finds_none() -> None:
    with pytest.raises(NoReplicaError, match="request 1 cannot be routed"):
        run(one_after_the_other(list(range(17))), Roles(1, 1, SLOW), fail={"1": 500})
