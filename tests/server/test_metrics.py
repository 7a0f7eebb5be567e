"""/metrics says what the event log says, under the names that vLLM's dashboards ask for."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.events import vocabulary as v
from engine.events.log import EventLog
from server.core.measures import Measures
from server.process import BackgroundServer
from tests.server.harness import Caller, Feed, http, post, trace

Values = dict[tuple[str, ...], float]


def scrape(url: str) -> Values:
    """Sample name and labels other than the model's -> value."""
    with http(url) as client:
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("model_name") == "alphabet"
            values[(sample.name, *labels.values())] = sample.value
    return values


@pytest.fixture(scope="module")
def measured() -> Iterator[tuple[Values, EventLog]]:
    """A run with everything in it: samples, hits, preemptions, an error and a client that leaves."""
    from tests.server.harness import start

    with start(engine={"block_size": 4, "max_kv_tokens": 64, "token_budget": 16}) as server:
        url = server.url
        for prompt in ("abcdefgh", "abcdefgh", "How?", "ij"):
            post(url, "/v1/completions", {"prompt": prompt, "stream": False, "n": 2})
        post(url, "/v1/completions", {"prompt": ["a" * 20, "b" * 20, "c" * 20], "stream": False})
        post(url, "/v1/completions", {"prompt": "x"}, **{"X-Client": "fail-after-3"})
        post(url, "/engine/pause")
        with Feed(url) as feed:
            feed.keyframe()
            leaving = Caller(url, "/v1/completions", {"prompt": "left"})
            feed.until_kind(v.RequestArrived)
            leaving.reset()
            feed.until_kind(v.RequestFinished)
        yield scrape(url), trace(url)


Measured = tuple[Values, EventLog]


def test_counters(measured: Measured) -> None:
    values, log = measured
    admitted = [event for event in log.of(v.Admitted) if not event.resumed]
    prompts = {event.request: len(event.prompt) for event in log.of(v.RequestArrived)}
    looked_up = sum(prompts[event.request] for event in admitted)
    hits = sum(4 * len(event.blocks) for event in admitted)
    tokens = [row for event in log.of(v.StepFinished) for row in event.tokens]
    preempted = len(log.of(v.Preempted))
    assert min(hits, preempted) > 0  # else the run shows nothing
    assert values[("vllm:prompt_tokens_total",)] == looked_up == sum(prompts.values()) - 5
    assert values[("vllm:prefix_cache_queries_total",)] == looked_up
    assert values[("vllm:prefix_cache_hits_total",)] == hits
    assert values[("vllm:num_preemptions_total",)] == preempted
    assert values[("vllm:generation_tokens_total",)] == sum(len(row.ids) for row in tokens)


def test_requests_by_finish_reason(measured: Measured) -> None:
    values, log = measured
    reasons = Counter(event.reason for event in log.of(v.RequestFinished))
    assert set(reasons) == {"stop", "length", "abort", "error"}
    for reason, count in reasons.items():
        assert values[("vllm:request_success_total", reason)] == count


def test_gauges(measured: Measured) -> None:
    values, _ = measured
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert values[(f"vllm:{name}",)] == 0


def expected_times(log: EventLog) -> dict[str, list[float]]:
    """Every latency in the log in seconds, found the long way."""
    times: dict[str, list[float]] = defaultdict(list)
    arrived = {event.request: event.t["at"] for event in log.of(v.RequestArrived)}
    for event in log.of(v.Forked):
        arrived[event.request] = arrived[event.parent]
    steps = log.of(v.StepFinished)
    ends: dict[int, list[int]] = defaultdict(list)
    for step in steps:
        for row in step.tokens:
            ends[row.request] += [step.t["end"]] * len(row.ids)
    for request, at in ends.items():
        times["time_to_first_token_seconds"].append((at[0] - arrived[request]) / 1e6)
        gaps = [(later - earlier) / 1e6 for earlier, later in pairwise(at)]
        times["inter_token_latency_seconds"] += gaps
    for event in log.of(v.RequestFinished):
        if event.reason in ("stop", "length"):
            last = ends[event.request][-1]
            times["e2e_request_latency_seconds"].append((last - arrived[event.request]) / 1e6)
    waiting: list[int] = []
    for event in log:
        if isinstance(event, v.Admitted) and not event.resumed:
            waiting.append(event.request)
        elif isinstance(event, v.StepFinished):
            for request in waiting:
                waited = (event.t["scheduled"] - arrived[request]) / 1e6
                times["request_queue_time_seconds"].append(waited)
            waiting = []
    times["iteration_tokens_total"] = [
        sum(row.count for row in event.rows) for event in log.of(v.StepScheduled)
    ]
    return times


@pytest.mark.parametrize(
    "name",
    [
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "iteration_tokens_total",
    ],
)
def test_histograms(measured: Measured, name: str) -> None:
    values, log = measured
    times = expected_times(log)[name]
    assert times
    assert values[(f"vllm:{name}_count",)] == len(times)
    assert values[(f"vllm:{name}_sum",)] == pytest.approx(sum(times))
    buckets = {key[1]: value for key, value in values.items() if key[0] == f"vllm:{name}_bucket"}
    assert len(buckets) > 10
    for limit, count in buckets.items():
        assert count == sum(time <= float(limit) for time in times), limit


def test_gauges_of_a_held_engine(serve: Callable[..., BackgroundServer]) -> None:
    url = serve(paused=True, engine={"max_kv_tokens": 64, "max_batch_size": 2}).url
    prompts = [letter * 16 for letter in "xyz"]  # alike, they would share their blocks
    with Feed(url) as feed:
        feed.keyframe()
        callers = [Caller(url, "/v1/completions", {"prompt": p, "max_tokens": 4}) for p in prompts]
        feed.until_kind(v.RequestArrived, 3)
        post(url, "/engine/step")
        feed.until_kind(v.StepFinished)
        values = scrape(url)
        for caller in callers:
            caller.close()
    assert values[("vllm:num_requests_running",)] == 2
    assert values[("vllm:num_requests_waiting",)] == 1
    assert values[("vllm:kv_cache_usage_perc",)] == 1.0


def test_what_has_ended_is_forgotten(measured: Measured) -> None:
    _, log = measured
    measures = Measures()
    for event in log:
        measures.apply(event)
    kept: list[Any] = [measures._arrived, measures._prompts, measures._admitted, measures._last]
    assert not any(kept)
