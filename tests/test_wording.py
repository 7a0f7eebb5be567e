"""The wording of decisions, one file per surface: each kind of sentence once, without its numbers.

All other tests check facts. After a change of wording, run `pytest tests/test_wording.py
--update-snapshots` and read the diff.
"""

import copy
import re
from collections.abc import Iterable, Iterator

import msgspec
import pytest

from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from engine.core.sampling_params import SamplingParams
from engine.simulation.cost_runner import CostRunner
from tests.engine.workloads import make_engine, play, random_workload
from tests.visualizer.storytellers import storytellers
from visualizer import read
from visualizer.comparing.differences import first_difference, pair
from visualizer.reading.story import Story, plain
from visualizer.reading.summary import summary
from visualizer.reading.why import WhyError, why


def random_log(seed: int, **settings: object) -> EventLog:
    workload = copy.deepcopy(random_workload(seed))
    workload.config = msgspec.structs.replace(workload.config, **settings)
    engine = make_engine(workload)
    play(engine, workload)
    return engine.log


def put_off_and_scored() -> EventLog:
    """A request that the policy defers, a sample that has not forked yet, a scored prompt."""
    config = EngineConfig(max_kv_tokens=512, policy="lpm", token_budget=64)
    engine = Engine(CostRunner(1, 1), config)
    for last in (1, 2):
        engine.submit([*range(40, 96), last], SamplingParams(max_tokens=2))
    engine.submit([1] * 80, SamplingParams(max_tokens=2, n=2))
    engine.submit([*range(40, 96), 3], SamplingParams(max_tokens=2, prompt_logprobs=0))
    while engine.has_work():
        engine.step()
    return engine.log


@pytest.fixture(scope="module")
def logs() -> list[EventLog]:
    return [storytellers(), put_off_and_scored(), *(random_log(seed) for seed in range(12))]


def shape(sentence: str) -> str:
    """A sentence without what differs from run to run: names, numbers, plurals, texts, policies."""
    sentence = re.sub(r"“[^”]*”", "“…”", sentence)
    sentence = re.sub(r"\w+ \(r\d+\)|\br\d+\b", "R", sentence)
    sentence = re.sub(
        r"\b1 ((?:\w+ )?(?:seat|token|block|request|draft|sample|decision))\b", r"1 \1s", sentence
    )
    sentence = re.sub(r"\b(others? keep|policy \(?|chosen by )[A-Z]\w+", r"\1P", sentence)
    sentence = re.sub(r"-?\d[\d.,]*(?<![.,])", "N", sentence)
    sentence = re.sub(r"\bnone\b", "N", sentence)
    sentence = re.sub(
        r"(?<!budget of )(\bN(?: of N)?(?: [a-z ]*s)?(?: \(“…”\))?) (is|remains)\b",
        r"\1 are",
        sentence,
    )
    return re.sub(r"(R(?: N)?)(?:, R(?: N)?)+", r"\1, …", sentence)


def shapes(answers: Iterable[str]) -> str:
    """The different sentences of many answers, in alphabetical order."""
    sentences = (one for answer in answers for one in re.split(r"(?<=[.?]) ", shape(answer)))
    return "\n".join(sorted({one.rstrip(".") for one in sentences})) + "\n"


def test_why(logs, snapshot):
    def answers() -> Iterator[str]:
        for log in logs:
            for request in read(log).requests.index:
                for step in read(log).steps.index:
                    try:
                        yield why(log, int(request), int(step))
                    except WhyError as error:
                        yield str(error)

    snapshot("why", shapes(answers()))


def test_moments(logs, snapshot):
    def answers() -> Iterator[str]:
        for log in logs:
            for step in read(log).steps.index:
                story = Story(log, int(step))
                for request in read(log).requests.index:
                    yield plain(story.fate(int(request)), {})
                for event in story.events:
                    evicted = isinstance(event, v.RadixEvicted | v.BlockEvicted)
                    if evicted and event.reason == "room":
                        yield plain(story.evicted(event), {})

    snapshot("moments", shapes(answers()))


def test_differences(logs, snapshot):
    def answers() -> Iterator[str]:
        for seed, log in enumerate(logs[2:]):
            for other in (
                random_log(seed, policy="sjf"),
                random_log(seed, eviction="lfu", prefix_cache="radix"),
                random_log(seed, max_batch_size=log[0].settings["max_batch_size"] + 1),
            ):
                difference = first_difference(log, other, pair(log, other))
                if difference is not None:
                    yield plain(difference.a, {})
                    yield plain(difference.b, {})

    snapshot("differences", shapes(answers()))


def test_summary(logs, snapshot):
    snapshot("summary", summary(logs[0]) + "\n")
