"""Why a request missed the cache: what `why_missed` says is true of the live objects."""

from collections import Counter
from typing import Any

import pytest

from engine import ClusterLog, Engine, EventLog, SamplingParams
from engine.cluster.events import Of
from engine.core.log import vocabulary as v
from engine.core.request import Request
from tests.engine.witness import Witness, common, keyed, spelled, watched_engine
from tests.engine.workloads import (
    Workload,
    adapter_workload,
    finish,
    play,
    random_workload,
    simulated,
    sliding_workload,
)
from tests.facts import assert_names
from tests.visualizer.clusters import one_dies
from visualizer import read
from visualizer.reading.why import WhyError
from visualizer.reading.why.find import request_named
from visualizer.reading.why.miss import WhyMissed


def of(request: Request) -> list[Any]:
    return keyed(request.tokens, request.extra_key)


def plain(tokens: list[Any]) -> list[int]:
    return [one[1] if isinstance(one, tuple) else one for one in tokens]


class Moment:
    """What the live objects said when a request was first admitted."""

    def __init__(self, log: Witness, request: int) -> None:
        engine = log.engine
        assert engine is not None
        live, self.size = engine.requests[request], engine.config.block_size
        self.found, self.tokens = live.num_computed_tokens, of(live)
        end = self.found + self.size
        self.lost = [
            step for path, stays, step, _ in log.losses if stays < end <= common(path, self.tokens)
        ]
        self.computing = [
            other.id
            for other in engine.scheduler.running
            if other is not live
            and other.num_computed_tokens < end <= common(of(other), self.tokens)
        ]
        paths = (spelled(node) for node in engine.tree.nodes.values())
        self.cached = max(common(path, self.tokens) for path in paths)
        self.is_unscored = live.params.prompt_logprobs is not None
        pages, tree = engine.cache.pages, engine.tree
        blocks = tree.match(self.tokens, (len(self.tokens) - 1) // self.size).blocks
        self.lacks_page = pages is not None and not all(map(pages.has_page, blocks))


class Moments(Witness):
    """A witness that keeps the moment in which each request was first admitted."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: dict[int, Moment] = {}

    def append(self, event: v.Event) -> None:
        super().append(event)
        if isinstance(event, v.Admitted) and not event.resumed:
            self.moments[event.request] = Moment(self, event.request)


def check(answer: WhyMissed, moment: Moment, ends: dict[int, list[int]]) -> None:
    end = moment.found + moment.size
    prompt = moment.tokens[: answer.length]
    assert (answer.found, prompt) == (moment.found, moment.tokens)
    assert_names(str(answer), answer.found or "none", answer.length, answer.step)
    assert (answer.kind == "scored") == moment.is_unscored
    assert (answer.kind == "whole") == (end > len(prompt) - 1 and not moment.is_unscored)
    assert answer.agree >= (moment.cached if answer.kind in ("differs", "shorter") else 0)
    match answer.kind:
        case "evicted":
            assert answer.evicted == moment.lost[-1]
            assert_names(str(answer), answer.evicted, end)
        case "no_window":
            assert moment.found < end <= answer.agree <= moment.cached
            assert answer.agree == min(moment.cached, len(prompt) - 1) // moment.size * moment.size
            # Full layers could have used it; some window page before each larger end is missing.
            assert moment.lacks_page
        case "computing":
            assert answer.about in moment.computing
        case "never_stored":
            assert not moment.lost
            assert common(ends[answer.about], prompt) >= end
        case "differs":
            assert not moment.lost
            assert moment.found <= answer.agree < end
            assert_names(str(answer), answer.agree + 1)
            if answer.about is None:  # adopted from another replica
                assert answer.agree == moment.cached
            else:
                assert common(ends[answer.about], prompt) >= answer.agree
        case "shorter":
            assert moment.found <= answer.agree < end
            assert common(ends[answer.about], prompt) >= answer.agree
        case "first":
            assert moment.found == moment.cached == 0
        case "other_key":
            theirs = ends[answer.about or 0]
            assert not moment.lost and common(theirs, prompt) == 0
            assert common(plain(theirs), plain(prompt)) >= answer.agree >= end


def test_every_answer_of_random_workloads_is_true(soak: bool, first_seed: int) -> None:
    count = 1000 if soak else 12
    kinds = ask_all({seed: random_workload(seed) for seed in range(first_seed, first_seed + count)})
    assert kinds.keys() >= {"whole", "off", "evicted", "differs", "first"}


def test_every_answer_is_true_with_sliding_layers(soak: bool, first_seed: int) -> None:
    count = 1000 if soak else 12
    workloads = {seed: sliding_workload(seed) for seed in range(first_seed, first_seed + count)}
    kinds = ask_all(
        {seed: one for seed, one in workloads.items() if not one.config.async_scheduling}
    )
    assert kinds.keys() >= {"no_window", "evicted", "differs", "first"}


def test_every_answer_is_true_with_adapters_and_salts(soak: bool, first_seed: int) -> None:
    count = 1000 if soak else 12
    workloads = {seed: adapter_workload(seed) for seed in range(first_seed, first_seed + count)}
    kinds = ask_all(
        {seed: one for seed, one in workloads.items() if not one.config.async_scheduling}
    )
    assert kinds.keys() >= {"other_key", "evicted", "differs", "first"}


def ask_all(workloads: dict[int, Workload]) -> Counter[str]:
    """Ask about every request of the workloads; return how often each kind was the answer."""
    kinds = Counter[str]()
    for seed, workload in workloads.items():
        engine, log = watched_engine(workload, Moments)
        ends = {one.id: of(one) for one in play(engine, workload)}
        for request, moment in log.moments.items():
            answer = read(log).why_missed(request)
            kinds[answer.kind] += 1
            assert (answer.kind == "off") == (workload.config.prefix_cache == "off")
            if answer.kind != "off":
                try:
                    check(answer, moment, ends)
                except Exception as error:
                    raise AssertionError(f"seed {seed}, untrue: {answer}") from error
    return kinds


def run(engine: Engine, *prompts: str) -> EventLog:
    for prompt in prompts:
        engine.submit(prompt, SamplingParams(max_tokens=1), label=prompt[:3])
        finish(engine)
    return engine.log


def test_the_first_token_that_differs_is_named_with_both_texts() -> None:
    answer = read(run(simulated(block_size=4), "abcdefghij", "abcdeXghij")).why_missed("abc (r2)")
    assert (answer.kind, answer.found, answer.most, answer.about) == ("differs", 4, 8, 1)
    bos = 1
    assert (answer.agree, answer.token, answer.other) == (bos + 5, "X", "f")
    assert_names(str(answer), "abc (r1)", '"X"', '"f"', 4, bos + 10)


@pytest.mark.parametrize("cache", ["radix", "hash"])
def test_an_evicted_prefix_is_named_with_the_step_and_the_request(cache: str) -> None:
    engine = simulated(block_size=4, max_kv_tokens=32, prefix_cache=cache)
    log = run(engine, "abcdefghijkl", "A" * 28, "abcdefghijkl")
    answer = read(log).why_missed(3)
    assert (answer.kind, answer.needed_by, answer.eviction) == ("evicted", 2, "room")
    assert_names(str(answer), "AAA", f"step {answer.evicted}")


def test_a_request_in_the_queue_and_an_unknown_one() -> None:
    engine = simulated(block_size=4, max_batch_size=1)
    engine.submit([1] * 4, SamplingParams(max_tokens=5, ignore_eos=True), label="first")
    engine.submit([1] * 4, SamplingParams(max_tokens=5), label="chatcmpl-1234")
    engine.step()
    assert read(engine.log).why_missed("chatcmpl-1234").kind == "waiting"
    with pytest.raises(WhyError, match="similar: chatcmpl-1234"):
        read(engine.log).why_missed("chatcmpl-1243")
    with pytest.raises(WhyError, match=r"first \(r1\), chatcmpl-1234 \(r2\)"):
        read(engine.log).why_slow(7)


def test_a_part_that_only_one_label_has_names_its_request() -> None:
    names = {1: "chatcmpl-70 (r1)", 2: "chatcmpl-70 (r2)", 3: "chatcmpl-71", 4: "r4"}
    assert request_named(names, "-70") == 1
    assert request_named(names, "l-71") == 3
    assert request_named(names, "r4") == 4
    for wrong in ("chatcmpl", "70", "", 70):
        with pytest.raises(WhyError):
            request_named(names, wrong)


def test_another_replica_that_has_the_prefix_is_named() -> None:
    log: ClusterLog = one_dies()
    answers = [read(log).why_missed(number) for number in range(1, 29)]
    elsewhere = [one for one in answers if one.kind == "other_replica"]
    assert elsewhere
    replicas = {event.replica for event in log if isinstance(event, Of)}
    for answer in elsewhere:
        assert answer.elsewhere is not None
        replica, tokens = answer.elsewhere
        assert replica in replicas
        assert answer.found < tokens <= answer.most
        assert_names(str(answer), f"Replica {replica}", tokens)
