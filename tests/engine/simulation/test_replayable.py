"""A log without token ids is replayed as if it had them: the same decisions, the same hits."""

import msgspec
import pytest

from engine import ConfigError, Cost, EngineConfig, EventLog, Workload, simulate, study, what_if
from engine.core.log import vocabulary as v
from engine.simulation.facts import simulated_facts
from engine.simulation.measures import measures, samples
from engine.simulation.reproduced import reproduced
from engine.simulation.unknown_tokens import with_unknown_tokens
from engine.simulation.workload import lognormal, poisson, uniform
from tests.engine.drafters import drafted
from tests.engine.workloads import make_engine, play, random_workload
from tests.facts import assert_names, raises_naming
from tests.recorders.scenarios import RECORDINGS
from visualizer.indexed.part import replayed_part
from visualizer.reading.without_text import without_text
from visualizer.sources import read_source

COST = Cost(10, 0.25)
SOURCE = {"engine": "vLLM 0.32.0", "recorder": "test", "facts": simulated_facts({})}


def random_log(seed: int) -> EventLog:
    workload = random_workload(seed, may_be_begun=True)
    workload.failures, workload.pauses, workload.moves = set(), [], []
    workload.draft_length = 0
    if workload.config.policy == "lpm":  # sorts by hits that the log does not show
        workload.config = msgspec.structs.replace(workload.config, policy="fcfs")
    engine = make_engine(workload)
    play(engine, workload)
    return engine.log


def vllm_log(**settings: int) -> EventLog:
    """Return a log like vLLM's: shared prefixes, a tight memory, evictions."""
    workload = Workload.generate(
        60,
        arrivals=poisson(40),
        prompt=uniform(5, 40),
        output=lognormal(12, 0.5, 60),
        groups=8,
        shared_tokens=64,
    )
    sizes = {"token_budget": 64, "max_batch_size": 6, "max_kv_tokens": 640, "block_size": 16}
    return simulate(workload, EngineConfig.like("vllm", **sizes | settings), cost=COST)


def stripped(log: EventLog) -> EventLog:
    return with_unknown_tokens(log, SOURCE)


def test_without_tokens_every_decision_is_reproduced(soak: bool) -> None:
    """Hits, preemptions, samples, forced tokens and aborts included, of both caches."""
    kinds, caches = set[type](), set[str]()
    for seed in range(120 if soak else 20):
        log = random_log(seed)
        if not log.of(v.StepFinished):
            continue
        again = what_if(stripped(log), cost=COST)
        assert reproduced(log, again).first is None, f"seed {seed}"
        ends = [(event.request, event.reason) for event in log.of(v.RequestFinished)]
        assert ends == [(event.request, event.reason) for event in again.of(v.RequestFinished)]
        kinds |= {type(event) for event in log}
        caches.add(log[0].settings["prefix_cache"])
    assert {v.Preempted, v.Forked, v.RadixJoined, v.RadixSplit, v.BlocksStored} <= kinds
    assert caches == {"radix", "hash", "off"}


@pytest.mark.parametrize("log", [vllm_log(), stripped(vllm_log())], ids=["tokens", "blind"])
def test_a_part_of_a_run_goes_on_as_the_run_did(log: EventLog) -> None:
    for first in (51, 101):
        part = replayed_part(log, first, first + 60)
        assert part[0].state.running and part[0].state.waiting
        again, pinned = what_if(part, cost=COST, pinned="time"), what_if(part, cost=COST)
        assert reproduced(part, pinned).first is None
        assert samples(again, window=part.window) == samples(part, window=part.window)


@pytest.mark.parametrize("tokens", [320, 640, 64_000])
def test_more_memory_finds_as_much_without_the_tokens(tokens: int) -> None:
    """Although a prefix was evicted in the recording, more memory would have kept it."""
    log = vllm_log()
    assert log.of(v.BlockEvicted)
    real, blind = (
        dict(
            (one.name, one.value) for one in measures(what_if(one, cost=COST, max_kv_tokens=tokens))
        )
        for one in (log, stripped(log))
    )
    assert real == blind


def test_token_zero_ends_no_output_and_a_log_may_end_in_the_middle_of_a_step() -> None:
    events = list(read_source(RECORDINGS / "vllm_ngram.jsonl.gz"))
    for event in events:
        for row in event.tokens if isinstance(event, v.StepFinished) else ():
            row.ids = [one if one % 5 else 0 for one in row.ids]
    middle = events.index(v.StepStarted(50))
    while not isinstance(events[middle], v.StepScheduled):
        middle += 1
    for end in (len(events), middle + 1):
        log = EventLog.from_events(events[:end])
        assert reproduced(log, what_if(log, cost=COST)).first is None


def test_a_log_of_our_own_without_texts_can_be_replayed() -> None:
    log = vllm_log()
    again = what_if(EventLog.from_events(list(map(without_text, log))), cost=COST)
    assert reproduced(log, again).first is None
    assert again[0].source["facts"]["token_ids"] == "unknown"


def test_the_log_of_a_replay_shows_no_invented_token() -> None:
    again = what_if(stripped(vllm_log()), token_budget=32)
    assert {id_ for event in again.of(v.RequestArrived) for id_ in event.prompt} == {-1}
    assert {id_ for e in again.of(v.StepFinished) for row in e.tokens for id_ in row.ids} == {-1}
    facts = again[0].source["facts"]
    assert (facts["arrivals"], facts["token_ids"]) == ("recorded", "unknown")
    assert_names(again[0].source["engine"], "vLLM", "simulation")
    assert again.state().core()["waiting"] == []  # it folds


@pytest.mark.parametrize("name", ["drafts", "vllm_ngram", "vllm_draft_model"])
def test_drafts_are_scheduled_as_vllm_did(name: str) -> None:
    log = read_source(RECORDINGS / f"{name}.jsonl.gz")
    for one in (log, EventLog.from_events(list(map(without_text, log)))):
        assert reproduced(log, what_if(one, cost=COST)).first is None
    assert drafted(log)[1]
    assert drafted(what_if(log, cost=COST, draft_length=0)) == (0, 0)
    assert 0 < drafted(what_if(log, cost=COST, draft_length=1))[1] <= drafted(log)[1]
    assert_names(" ".join(study(log, {"draft_length": [0]}).notes), "drafts", "right", "price")


def test_settings_that_a_vllm_log_does_not_name_are_those_of_vllm() -> None:
    log = stripped(vllm_log())
    started = log[0]
    for name in ("admission", "prefix_cache", "max_kv_tokens"):
        del started.settings[name]
    again = what_if(log, cost=COST)
    assert again[0].settings["admission"] == "whole"
    assert again[0].settings["prefix_cache"] == "hash"
    assert again[0].settings["max_kv_tokens"] == 640
    del started.settings["token_budget"]
    with raises_naming(ConfigError, "token_budget"):
        what_if(log, cost=COST)


@pytest.mark.parametrize("fact", ["arrivals", "scheduled_tokens"])
def test_a_log_that_lacks_what_a_replay_needs_is_refused(fact: str) -> None:
    log = with_unknown_tokens(vllm_log(), SOURCE | {"facts": simulated_facts({fact: "unknown"})})
    with raises_naming(ValueError, fact):
        what_if(log, cost=COST)


def test_a_recording_that_was_cut_off_ends_there() -> None:
    log = stripped(vllm_log())
    cut = EventLog.from_events(log[: len(log) // 2])
    again = what_if(cut, cost=COST)
    found = reproduced(cut, again)
    assert found.equal >= found.steps - 1
    assert not again.state().core()["running"]
    ends_later = found.equal == found.steps and found.first is not None
    assert ("goes on after" in str(found)) == ends_later
    left = len(cut.of(v.RequestArrived)) - len(cut.of(v.RequestFinished))
    assert_names(" ".join(study(cut, {"token_budget": [32]}).notes), left)
