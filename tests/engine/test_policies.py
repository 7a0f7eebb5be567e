"""In-batch sharing under lpm, fair shares for labels, and invariants of policies that defer."""

import random
from collections import defaultdict

import msgspec
import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import vocabulary as v
from engine.events.log import EventLog
from engine.scheduling.policies import Fcfs, LongestPrefixMatch
from engine.scheduling.sampling_params import SamplingParams
from engine.simulation.checking_runner import CheckingRunner
from engine.simulation.cost_runner import Cost, CostRunner
from engine.simulation.what_if import what_if
from tests.engine.explanations import explain
from tests.engine.invariants import CheckingLog, check, check_after_step
from tests.engine.storyboard import Speaker, simulate
from tests.engine.workloads import random_workload
from tests.facts import assert_names

TEXT = list(range(97, 123))


def engine_with(policy=None, **settings) -> Engine:
    """Return an engine whose log checks every invariant after every event."""
    settings = {"token_budget": 64, "max_kv_tokens": 1024} | settings
    if isinstance(policy, str):
        settings["policy"], policy = policy, None
    config = EngineConfig(**settings)
    log = CheckingLog()
    runner = CheckingRunner(lambda tokens, seed: 97 + hash((tuple(tokens), seed)) % 26)
    engine = Engine(runner, config, policy=policy, log=log)
    log.engine = engine
    return engine


def say(engine: Engine, prompt: list[int], output: int = 4, label: str = "", **params):
    params = SamplingParams(max_tokens=output, ignore_eos=True, **params)
    return engine.submit(prompt, params, label=label)


def run(engine: Engine) -> None:
    while engine.has_work():
        engine.step()
        check_after_step(engine)


def put_off(log: EventLog) -> dict[int, list[int]]:
    """Return step -> requests that the policy deferred in it."""
    found = {}
    for step, event in enumerate(log.of(v.StepScheduled), 1):
        ids = [id_ for id_, reason in event.skipped if reason == "policy"]
        if ids:
            found[step] = ids
    return found


def admitted_in(log: EventLog) -> dict[int, int]:
    """Return request -> the step of its first admission."""
    return log.requests.admitted_step.dropna().astype(int).to_dict()


# lpm: a prefix that several requests wait for is computed once


@pytest.mark.parametrize(("policy", "computed"), [("fcfs", 265), ("lpm", 121)])
def test_a_prefix_that_four_wait_for_is_computed_once(policy: str, computed: int) -> None:
    speakers = [
        Speaker(f"r{i}", 1, "system", 48, own, 8) for i, own in [(1, 10), (2, 14), (3, 12), (4, 9)]
    ]
    config = EngineConfig(token_budget=256, max_kv_tokens=1024, policy=policy)
    engine, _ = simulate(config, speakers)
    assert engine.log.steps.tokens.sum() == computed
    if policy == "lpm":
        assert put_off(engine.log) == {1: [2, 3, 4]}
        assert admitted_in(engine.log) == {1: 1, 2: 2, 3: 2, 4: 2}
        assert engine.log.requests.cached_tokens.tolist() == [0, 48, 48, 48]


def test_a_deferred_request_does_not_block_those_behind_it() -> None:
    engine = engine_with(policy=LongestPrefixMatch(), token_budget=256)
    first, twin, other = say(engine, [7] * 60), say(engine, [7] * 60), say(engine, [8] * 60)
    engine.step()
    assert engine.scheduler.running == [first, other]
    assert put_off(engine.log) == {1: [twin.id]}
    assert engine.log.of(v.StepScheduled)[0].blocked is None
    run(engine)


@pytest.mark.parametrize(
    ("shared", "steps_off", "admitted"), [(68, [], 2), (92, [], 2), (96, [2], 3), (120, [2], 3)]
)
def test_a_request_is_put_off_only_if_what_it_gains_is_worth_the_wait(
    shared: int, steps_off: list[int], admitted: int
) -> None:
    """The first request takes all of step 1's budget; deferring pays from 32 more shared tokens on."""
    engine = engine_with(policy=LongestPrefixMatch(), token_budget=64, block_size=4)
    stem = [3 + i % 50 for i in range(shared)]
    say(engine, [*stem, 1, 1], output=9)
    say(engine, [*stem, 2, 2])
    run(engine)
    assert engine.log.of(v.StepScheduled)[0].blocked.reason == "token_budget"
    assert list(put_off(engine.log)) == steps_off
    assert admitted_in(engine.log)[2] == admitted


@pytest.mark.parametrize(
    ("settings", "params"), [({"prefix_cache": False}, {}), ({}, {"prompt_logprobs": 0})]
)
def test_a_request_that_cannot_use_the_cache_is_not_deferred(settings: dict, params: dict) -> None:
    engine = engine_with(policy=LongestPrefixMatch(), token_budget=256, **settings)
    for _ in range(3):
        say(engine, [7] * 60, **params)
    run(engine)
    assert set(admitted_in(engine.log).values()) == {1}


def test_with_too_many_waiting_no_request_is_deferred() -> None:
    engine = engine_with(
        policy=LongestPrefixMatch(), token_budget=2000, max_batch_size=4, max_kv_tokens=4096
    )
    for _ in range(130):
        say(engine, [7] * 60, output=1)
    engine.step()
    assert len(engine.log.of(v.StepScheduled)[0].rows) == 4
    assert not put_off(engine.log)


class Impatient(LongestPrefixMatch):
    """Defers for a single shared token."""

    worth_waiting_for = 1


class Solitary(Fcfs):
    """Defer every request unless it would be the only one."""

    def defer(self, request, tree, computing):
        return True


@pytest.mark.parametrize("policy", [Impatient, Solitary])
def test_no_invariant_breaks_where_requests_are_put_off(
    policy, soak: bool, first_seed: int
) -> None:
    """Check the invariants: every step has a row, every request ends, every stated reason is true."""
    steps = 0
    for seed in range(first_seed, first_seed + (3000 if soak else 150)):
        workload = random_workload(seed)
        workload.config = msgspec.structs.replace(workload.config, policy="lpm")
        steps += len(put_off(check(workload, policy=policy())))
    assert steps > 5


# admit: a policy chooses the requests to admit


class AdmitsNone(Fcfs):
    """Admit no request."""

    def admit(self, waiting, limits):
        return ()


def test_if_the_policy_admits_none_requests_are_served_one_by_one() -> None:
    engine = engine_with(AdmitsNone())
    for _ in range(3):
        say(engine, TEXT, output=4)
    run(engine)
    assert admitted_in(engine.log) == {1: 1, 2: 5, 3: 9}
    blocked = [event.blocked for event in engine.log.of(v.StepScheduled) if event.blocked]
    assert {one.reason for one in blocked} == {"policy"}


def test_no_invariant_breaks_if_the_policy_admits_none(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 60):
        check(random_workload(seed), policy=AdmitsNone())


# fair: the label that has had the least goes first


def crowd(policy: str, *, greedy: int, modest: int, late: int) -> tuple[EventLog, list[int]]:
    """A greedy label floods the queue in step 1; a modest one sends a few requests in step `late`."""
    engine = engine_with(policy, max_batch_size=4, block_size=8)
    for i in range(greedy):
        say(engine, [1 + i] * 20, output=10, label="greedy")
    for _ in range(late - 1):
        engine.step()
    modest_ids = [say(engine, [101 + i] * 20, output=10, label="modest").id for i in range(modest)]
    run(engine)
    return engine.log, modest_ids


def greedy_between(log: EventLog, modest: list[int]) -> list[int]:
    """Return how many greedy requests were admitted before each modest one since its arrival."""
    admitted = [e.request for e in log.of(v.Admitted) if not e.resumed]
    arrived = next(i for i, e in enumerate(log) if getattr(e, "request", 0) == modest[0])
    before = sum(isinstance(e, v.Admitted) for e in log[:arrived])
    return [sum(r not in modest for r in admitted[before : admitted.index(m)]) for m in modest]


def test_a_greedy_label_delays_a_modest_one_by_a_request_each_not_by_its_queue() -> None:
    log, modest = crowd("fcfs", greedy=50, modest=3, late=5)
    assert greedy_between(log, modest) == [46, 46, 46]
    log, modest = crowd("fair", greedy=50, modest=3, late=5)
    # It is lifted to the greedy label's counter, which grows on while the batch is full.
    assert greedy_between(log, modest) == [0, 0, 0]
    requests = log.requests
    waits = (requests.admitted_step - requests.arrived_step)[modest]
    assert waits.tolist() == [6, 6, 6]  # until a place falls free; under fcfs more than 100


class Service:
    """The service of each label and the waiting requests, event by event, from the log alone."""

    def __init__(self, log: EventLog) -> None:
        self.size = log[0].settings["block_size"]
        self.label: dict[int, str] = {}
        self.prompt: dict[int, int] = {}
        self.waiting: dict[str, set[int]] = defaultdict(set)
        self.got: dict[str, int] = defaultdict(int)

    def apply(self, event: v.Event) -> None:
        match event:
            case v.RequestArrived():
                for sample in range(event.n):
                    self.label[event.request + sample] = event.label
                self.prompt[event.request] = len(event.prompt)
                self.waiting[event.label].add(event.request)
            case v.Preempted():
                self.waiting[self.label[event.request]].add(event.request)
            case v.Admitted():
                label = self.label[event.request]
                self.waiting[label].remove(event.request)
                if not event.resumed:
                    cached = len(event.blocks) * self.size
                    self.got[label] += self.prompt[event.request] - cached
            case v.StepFinished():
                for row in event.tokens:
                    self.got[self.label[row.request]] += 2 * len(row.ids)
            case v.RequestFinished():
                self.waiting[self.label[event.request]].discard(event.request)

    def backlogged(self) -> set[str]:
        return {label for label, requests in self.waiting.items() if requests}


def check_shares(log: EventLog) -> None:
    """Every admission is from the waiting label with the smallest counter; a label that joins when
    it has none waiting is lifted to the smallest of those that have, or to the last one admitted."""
    service, counter, last = Service(log), defaultdict(int), ""
    for event in log:
        before, waiting = dict(service.got), service.backlogged()
        joining = isinstance(event, v.RequestArrived | v.Preempted)
        if isinstance(event, v.Admitted):
            label = service.label[event.request]
            assert event.key == [counter[label]]
            assert counter[label] == min(counter[one] for one in waiting)
            last = last if event.resumed else label
        service.apply(event)
        for label in service.got:
            counter[label] += service.got[label] - before.get(label, 0)
        if joining and (label := service.label[event.request]) not in waiting:
            level = min((counter[one] for one in waiting), default=counter[last])
            counter[label] = max(counter[label], level)


def test_counters_are_those_of_the_virtual_token_counter(soak: bool, first_seed: int) -> None:
    for seed in range(first_seed, first_seed + (3000 if soak else 60)):
        workload = random_workload(seed)
        workload.config = msgspec.structs.replace(workload.config, policy="fair")
        check_shares(check(workload))


@pytest.mark.parametrize("seed", range(25))
def test_two_labels_that_wait_are_served_alike_within_the_papers_bound(seed: int) -> None:
    """Over any time in which both have requests waiting, service differs by at most 2U;
    U = max(w_p * longest prompt, w_q * most tokens in the batch)."""
    rng = random.Random(seed)
    config = EngineConfig(
        policy="fair",
        max_batch_size=rng.randint(1, 5),
        token_budget=rng.choice([8, 64]),
        max_kv_tokens=256,
        block_size=4,
    )
    engine = Engine(CheckingRunner(lambda tokens, seed: 97 + len(tokens) % 26), config)
    # One asks for much, one for little; both often enough to keep the other waiting.
    wants = {"a": (rng.randint(1, 40), rng.randint(1, 30)), "b": (rng.randint(1, 40), 3)}
    arrivals = sorted((rng.randint(1, 40), rng.choice("ab")) for _ in range(40))
    in_batch = 0
    while arrivals or engine.has_work():
        while arrivals and (arrivals[0][0] <= engine.step_count + 1 or not engine.has_work()):
            _, label = arrivals.pop(0)
            prompt, output = (rng.randint(1, most) for most in wants[label])
            say(engine, [rng.randint(1, 90) for _ in range(prompt)], output, label)
        engine.step()
        in_batch = max(in_batch, sum(len(one.tokens) for one in engine.scheduler.running))
    # A request that ends in a step has left `running`: its last token is added.
    bound = 2 * max(40, 2 * (in_batch + config.max_batch_size))
    service, ahead, most = Service(engine.log), list[int](), 0
    for event in engine.log:
        service.apply(event)
        both = service.backlogged() == {"a", "b"}
        ahead = [*ahead, service.got["a"] - service.got["b"]] if both else []
        most = max(most, max(ahead, default=0) - min(ahead, default=0))
    assert 0 < most <= bound


def test_a_label_that_was_idle_does_not_live_on_what_it_did_not_use() -> None:
    """A label that comes late takes turns from then on and does not catch up."""
    engine = engine_with("fair", max_batch_size=1)
    for i in range(8):
        say(engine, [1 + i] * 20, output=10, label="busy")
    for _ in range(45):
        engine.step()
    for i in range(4):
        say(engine, [101 + i] * 20, output=10, label="new")
    run(engine)
    order = [engine.log.requests.label[e.request] for e in engine.log.of(v.Admitted)]
    assert order == ["busy"] * 5 + ["new", "busy"] * 3 + ["new"]


def test_within_a_label_the_order_is_that_of_arrival_and_no_label_is_one() -> None:
    engine = engine_with("fair", max_batch_size=1)
    for label in ("a", "", "a", "", "", "b"):
        say(engine, [7 + len(engine.requests)] * 9, output=2, label=label)
    run(engine)
    admitted = [e.request for e in engine.log.of(v.Admitted)]
    assert admitted == [1, 2, 6, 3, 4, 5]


def test_the_victim_is_of_the_label_that_has_had_the_most_and_was_admitted_last() -> None:
    for policy, victim in (("fair", 2), ("fcfs", 3)):
        engine = engine_with(policy, max_kv_tokens=64, block_size=8, max_batch_size=3)
        for label in ("much", "much", "little"):
            say(engine, [len(engine.requests) + 1] * 9, output=25, label=label)
        run(engine)
        assert engine.log.of(v.Preempted)[0].request == victim


@pytest.mark.parametrize("changes", [{}, {"policy": "fcfs"}, {"max_batch_size": 2}])
def test_a_log_under_fair_is_reproduced(changes: dict) -> None:
    log, _ = crowd("fair", greedy=12, modest=3, late=5)
    cost = Cost(10, 0.25)
    again = what_if(log, cost=cost, **changes)
    assert (again.deterministic()[1:] == log.deterministic()[1:]) == (not changes)
    other, _ = crowd("fcfs", greedy=12, modest=3, late=5)
    if "policy" in changes:
        assert again.deterministic()[1:] == other.deterministic()[1:]
        assert (
            what_if(other, cost=cost, policy="fair").deterministic()[1:]
            == (log.deterministic()[1:])
        )


def test_why_names_the_request_whose_prefix_a_deferred_one_waits_for() -> None:
    engine = engine_with("lpm", token_budget=256)
    say(engine, [7] * 60, label="Ada")
    twin = say(engine, [7] * 60, label="Bo")
    engine.step()
    told = explain(engine.log, twin.id)
    assert (twin.id, "policy") in told.facts.event.skipped
    assert told.facts.longest_shared_prefix(twin.id) == (1, 48)
    assert_names(told.text, "LongestPrefixMatch", "Ada (r1)", 48)
    run(engine)


def test_fairness_remembers_no_more_labels_than_it_must(monkeypatch) -> None:
    monkeypatch.setattr("engine.scheduling.fairness.MAX_LABELS", 40)
    runner = CostRunner(1, 0)
    engine = Engine(runner, EngineConfig(policy="fair", max_batch_size=2), clock=runner.clock)
    greedy = [engine.submit([97] * 8, SamplingParams(max_tokens=8), label="greedy") for _ in "abc"]
    for number in range(200):
        engine.submit([98, number % 256], SamplingParams(max_tokens=1), label=f"client {number}")
        engine.step()
        # Those that wait are never forgotten: their place in the queue hangs on it.
        assert all(request.label in engine.policy.service for request in engine.scheduler.waiting)
        assert len(engine.policy.service) <= 40 + len(engine.scheduler.waiting)
    while engine.has_work():
        engine.step()
    assert all(request.finish_reason == "length" for request in greedy)
