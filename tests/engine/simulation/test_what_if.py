"""Replays: the same settings give the same run, a changed setting changes only that."""

from engine import ConfigError, Cost, Workload, simulate, what_if
from engine.core.log import vocabulary as v
from engine.core.scheduling.policies import Fcfs
from engine.simulation.scenarios import scenario
from engine.simulation.workload import poisson, uniform
from tests.engine.drafters import Knowing, drafted
from tests.engine.simulation.pinned import texts_of
from tests.engine.workloads import adapter_workload, make_engine, play, random_workload, windowed
from tests.facts import raises_naming
from visualizer import read

COST = Cost(10, 0.25)


def test_with_no_change_the_log_is_reproduced(soak: bool, first_seed: int) -> None:
    """Preemptions, hits, adapters, holds, samples, drafts, forced tokens and aborts included."""
    kinds: set[type] = set()
    for seed in range(first_seed, first_seed + (5000 if soak else 20)):
        workload = (
            adapter_workload(seed) if seed % 3 == 1 else random_workload(seed, may_be_begun=True)
        )
        workload.failures, workload.pauses = set(), []  # neither is an input
        workload.draft_failures = set()
        engine = make_engine(workload)
        play(engine, workload)
        if not engine.log.of(v.StepFinished):
            continue
        again = what_if(engine.log, cost=COST)
        assert again.deterministic()[1:] == engine.log.deterministic()[1:], f"seed {seed}"
        assert again[0].settings == engine.log[0].settings
        assert again[0].tokenizer == engine.log[0].tokenizer
        kinds |= {type(event) for event in again}
    assert {v.Preempted, v.Forked, v.RadixEvicted, v.RadixJoined, v.BlocksTrimmed} <= kinds


def test_fewer_drafts_are_right_where_the_log_knows_it() -> None:
    """If a drafter's guess depends only on the text, a run with fewer drafts is known exactly."""
    lengths = {"prompt": uniform(4, 9), "output": uniform(20, 40)}
    workload = Workload.generate(6, arrivals=poisson(20), **lengths)
    texts, rare = (
        texts_of(simulate(workload, cost=COST)).values(),
        lambda position: not position % 3,
    )
    runs = [simulate(workload, cost=COST, drafter=Knowing(texts, n, rare)) for n in range(5)]
    assert drafted(runs[4])[1]
    for length, run in enumerate(runs):
        again = what_if(runs[4], cost=COST, pinned="time", draft_length=length)
        assert again.deterministic()[1:] == run.deterministic()[1:]
    for run, most in ((runs[4], 4), (runs[0], 0)):
        with raises_naming(ConfigError, "draft_length", most, most + 1):
            what_if(run, draft_length=most + 1)


def test_a_changed_setting_leaves_what_people_say() -> None:
    log = scenario("first_look").run()
    other = what_if(log, token_budget=8, block_size=4, cost=COST)
    for mine, theirs in zip(
        read(log).tokens.groupby("request"), read(other).tokens.groupby("request"), strict=True
    ):
        assert mine[1].text.tolist() == theirs[1].text.tolist()


def test_the_header_has_what_the_fitted_cost_takes_for_each_step_of_the_log(soak: bool) -> None:
    """A replay has the prices that a comparison needs to time both runs alike."""
    kinds = set[str]()
    for seed in range(60 if soak else 15):
        workload = random_workload(seed)
        workload.failures, workload.pauses = set(), []
        engine = make_engine(workload)
        play(engine, workload)
        if workload.draft_length or not engine.log.of(v.StepFinished):
            continue
        log = engine.log
        again = what_if(log)
        header = again[0].t["fitted"]
        took = [event.t["end"] - event.t["start"] for event in again.of(v.StepFinished)]
        assert header["step_us"] == took, f"seed {seed}"
        assert header["unix_us"] == log[0].t["unix_us"]
        kinds |= {type(event).__name__ for event in again}
    assert {"Preempted", "Forked"} <= kinds
    assert "fitted" not in what_if(log, cost=COST)[0].t


class OldestGivesWay(Fcfs):
    def victim(self, running, needed_by):
        return running[0]


def test_a_policy_of_your_own_has_to_come_along() -> None:
    one = scenario("preemption")
    log = simulate(one.workload, one.config, cost=COST, policy=OldestGivesWay())
    with raises_naming(ConfigError, "policy", "OldestGivesWay"):
        what_if(log, cost=COST)
    assert len(read(what_if(log, cost=COST, policy=OldestGivesWay())).steps) == 33
    assert len(read(what_if(log, cost=COST, policy="fcfs")).steps) == 31


def test_a_log_without_its_beginning_is_refused() -> None:
    log = scenario("first_look").run()
    with raises_naming(ValueError, "run_started"):
        what_if(windowed(log, 20))


def test_an_answer_of_another_tokenizer_ends_as_it_did() -> None:
    """Its prompt's ids are no bytes of UTF-8: nothing of them may be appended to the answer."""
    workload = Workload.generate(
        5, arrivals=poisson(20), prompt=uniform(4, 9), output=uniform(3, 9)
    )
    log = simulate(workload, cost=COST)
    started = log[0]
    started.tokenizer = started.tokenizer | {"name": "another"}
    for event in log.of(v.RequestArrived):
        event.prompt[-1] = 0xC3  # the first byte of two
        event.prompt[-2] = event.request
    again = what_if(log, cost=COST)
    assert read(again).tokens.text.tolist() == read(log).tokens.text.tolist()
