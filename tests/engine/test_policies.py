"""In-batch sharing under lpm, fair shares for labels, and invariants of policies that defer."""

from collections import defaultdict

import msgspec
import pytest

from engine import Engine, EngineConfig, EventLog, SamplingParams
from engine.core.log import vocabulary as v
from engine.core.scheduling.policies import Fcfs, LongestPrefixMatch
from engine.simulation.checking_runner import CheckingRunner
from tests.engine.explanations import explain
from tests.engine.invariants import check, check_after_step, checked
from tests.engine.workloads import finish, random_workload, simulated
from tests.facts import assert_names
from visualizer import read


def engine_with(policy=None, **settings) -> Engine:
    """Return an engine whose log checks every invariant after every event."""
    settings = {"token_budget": 64, "max_kv_tokens": 1024} | settings
    if isinstance(policy, str):
        settings["policy"], policy = policy, None
    runner = CheckingRunner(lambda tokens, seed: 97 + hash((tuple(tokens), seed)) % 26)
    return checked(Engine, runner, EngineConfig(**settings), policy=policy)


def say(engine: Engine, prompt: list[int], output: int = 4, label: str = "", **params):
    params = SamplingParams(max_tokens=output, ignore_eos=True, **params)
    return engine.submit(prompt, params, label=label)


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
    return read(log).requests.admitted_step.dropna().astype(int).to_dict()


# lpm: a prefix that several requests wait for is computed once


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
    finish(engine, check_after_step)
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
    finish(engine, check_after_step)
    assert set(admitted_in(engine.log).values()) == {1}


class Impatient(LongestPrefixMatch):
    """Defers for a single shared token."""

    worth_waiting_for = 1


class Solitary(Fcfs):
    """Defer every request unless it would be the only one."""

    def defer(self, request, tree, computing):
        return True


class AdmitsNone(Fcfs):
    """Admit no request, so that they are served one by one."""

    def admit(self, waiting, limits):
        return ()


@pytest.mark.parametrize("policy", [Impatient, Solitary, AdmitsNone])
def test_no_invariant_breaks_where_requests_are_put_off(
    policy, soak: bool, first_seed: int
) -> None:
    """Check the invariants: every step has a row, every request ends, every stated reason is true."""
    steps, blocked = 0, set()
    for seed in range(first_seed, first_seed + (3000 if soak else 50)):
        workload = random_workload(seed)
        workload.config = msgspec.structs.replace(workload.config, policy="lpm")
        log = check(workload, policy=policy())
        steps += len(put_off(log))
        blocked |= {event.blocked.reason for event in log.of(v.StepScheduled) if event.blocked}
    assert steps > 1 or ("policy" in blocked and policy is AdmitsNone)


# fair: the label that has had the least goes first


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
    for seed in range(first_seed, first_seed + (3000 if soak else 25)):
        workload = random_workload(seed)
        workload.config = msgspec.structs.replace(workload.config, policy="fair")
        check_shares(check(workload))


def test_the_victim_is_of_the_label_that_has_had_the_most_and_was_admitted_last() -> None:
    for policy, victim in (("fair", 2), ("fcfs", 3)):
        engine = engine_with(policy, max_kv_tokens=64, block_size=8, max_batch_size=3)
        for label in ("much", "much", "little"):
            say(engine, [len(engine.requests) + 1] * 9, output=25, label=label)
        finish(engine, check_after_step)
        assert engine.log.of(v.Preempted)[0].request == victim


def test_why_names_the_request_whose_prefix_a_deferred_one_waits_for() -> None:
    engine = engine_with("lpm", token_budget=256)
    engine.submit([7] * 60, SamplingParams(max_tokens=1), cache_salt="another")
    say(engine, [7] * 60, label="Ada")
    twin = say(engine, [7] * 60, label="Bo")
    engine.step()
    told = explain(engine.log, twin.id)
    assert (twin.id, "policy") in told.facts.event.skipped
    assert told.facts.longest_shared_prefix(twin.id) == (2, 48)
    assert_names(told.text, "LongestPrefixMatch", "Ada (r2)", 48)
    finish(engine, check_after_step)


def test_fairness_remembers_no_more_labels_than_it_must(monkeypatch) -> None:
    monkeypatch.setattr("engine.core.scheduling.fairness.MAX_LABELS", 40)
    engine = simulated(policy="fair", max_batch_size=2)
    greedy = [engine.submit([97] * 8, SamplingParams(max_tokens=8), label="greedy") for _ in "abc"]
    for number in range(200):
        engine.submit([98, number % 256], SamplingParams(max_tokens=1), label=f"client {number}")
        engine.step()
        # Those that wait are never forgotten: their place in the queue hangs on it.
        assert all(request.label in engine.policy.service for request in engine.scheduler.waiting)
        assert len(engine.policy.service) <= 40 + len(engine.scheduler.waiting)
    finish(engine)
    assert all(request.finish_reason == "length" for request in greedy)


def test_with_too_many_waiting_no_request_is_deferred() -> None:
    engine = engine_with(
        policy=LongestPrefixMatch(), token_budget=2000, max_batch_size=4, max_kv_tokens=4096
    )
    for _ in range(130):
        say(engine, [7] * 60, output=1)
    engine.step()
    assert len(engine.log.of(v.StepScheduled)[0].rows) == 4
    assert not put_off(engine.log)
