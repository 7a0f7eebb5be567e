"""/metrics says what the event log says, under the names that vLLM's dashboards ask for."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.core.sampling_params import SamplingParams
from engine.simulation.checking_runner import CheckingRunner
from server.core.measures import Measures
from tests.engine.workloads import TOKENIZER, next_token
from tests.server.harness import Caller, fetch, metrics, post, start, trace, watch

# vLLM 0.32's metrics (`vllm/v1/metrics/loggers.py`) that are served, and what they are.
NAMES = {
    "gauge": """
        num_requests_running num_requests_waiting num_requests_waiting_by_reason
        kv_cache_usage_perc cache_config_info
    """,
    "counter": """
        prefix_cache_queries prefix_cache_hits num_preemptions spec_decode_num_drafts
        spec_decode_num_draft_tokens spec_decode_num_accepted_tokens prompt_tokens
        generation_tokens request_success
    """,
    "histogram": """
        request_prompt_tokens request_generation_tokens iteration_tokens_total
        request_max_num_generation_tokens request_params_n request_params_max_tokens
        time_to_first_token_seconds inter_token_latency_seconds
        request_time_per_output_token_seconds e2e_request_latency_seconds
        request_queue_time_seconds request_inference_time_seconds request_prefill_time_seconds
        request_decode_time_seconds request_num_preemptions request_prefill_kv_computed_tokens
    """,
}
VLLM = {name: kind for kind, names in NAMES.items() for name in names.split()}
Values = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def measured() -> Iterator[tuple[Values, EventLog]]:
    """A run with everything in it: samples, hits, preemptions, an error and a client that leaves."""
    with start(engine={"block_size": 4, "max_kv_tokens": 64, "token_budget": 16}) as server:
        url = server.url
        for prompt in ("abcdefgh", "abcdefgh", "How?", "ij"):
            post(url, "/v1/completions", {"prompt": prompt, "stream": False, "n": 2})
        post(url, "/v1/completions", {"prompt": ["a" * 20, "b" * 20, "c" * 20], "stream": False})
        post(url, "/v1/completions", {"prompt": "x"}, **{"X-Client": "fail-after-3"})
        post(url, "/engine/pause")
        with watch(url) as feed:
            leaving = feed.queued({"prompt": "left"})
            leaving.reset()
            feed.until_kind(v.RequestFinished)
        yield metrics(url), trace(url)


Measured = tuple[Values, EventLog]


def test_counters_gauges_and_settings(measured):
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
    reasons = Counter(event.reason for event in log.of(v.RequestFinished))
    assert set(reasons) == {"stop", "length", "abort", "error"}
    for reason, count in reasons.items():
        assert values[("vllm:request_success_total", reason)] == count
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert values[(f"vllm:{name}",)] == 0
    # By name: block_size, enable_prefix_caching, num_gpu_blocks.
    settings = map(str, (4, True, log.of(v.RunStarted)[0].settings["num_blocks"]))
    assert values[("vllm:cache_config_info", *settings)] == 1


def test_the_names_are_those_of_vllm(url):
    """`url` has an unused engine: every metric is there from the start."""
    families = list(text_string_to_metric_families(fetch(url, "/metrics").text))
    own = {"underglass:engine_failed": "gauge", "underglass:trace_failed": "gauge"}
    assert {family.name: family.type for family in families} == {
        f"vllm:{name}": kind for name, kind in VLLM.items()
    }
    labels = {sample.name: sample.labels.keys() for one in families for sample in one.samples}
    for name, present in labels.items():
        expected = {"model_name", "engine"}
        expected |= {"le"} if name.endswith("_bucket") else set()
        expected |= {"finished_reason"} if name == "vllm:request_success_total" else set()
        if name not in ("vllm:cache_config_info", "vllm:num_requests_waiting_by_reason"):
            assert present == expected, name


def expected_times(log: EventLog) -> dict[str, list[float]]:
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
    parents = {event.request: event.parent for event in log.of(v.Forked)}
    scheduled: dict[int, int] = {}
    waiting: list[int] = []
    for event in log:
        if isinstance(event, v.Admitted) and not event.resumed:
            waiting.append(event.request)
        elif isinstance(event, v.StepFinished):
            for request in waiting:
                scheduled[request] = event.t["scheduled"]
                waited = (scheduled[request] - arrived[request]) / 1e6
                times["request_queue_time_seconds"].append(waited)
            waiting = []
    for event in log.of(v.RequestFinished):
        if event.reason in ("stop", "length"):
            at, root = ends[event.request], parents.get(event.request, event.request)
            times["e2e_request_latency_seconds"].append((at[-1] - arrived[root]) / 1e6)
            times["request_prefill_time_seconds"].append((at[0] - scheduled[root]) / 1e6)
            times["request_inference_time_seconds"].append((at[-1] - scheduled[root]) / 1e6)
            times["request_decode_time_seconds"].append((at[-1] - at[0]) / 1e6)
            if len(at) > 1:
                mean = (at[-1] - at[0]) / (len(at) - 1) / 1e6
                times["request_time_per_output_token_seconds"].append(mean)
    times["iteration_tokens_total"] = [
        sum(row.count for row in event.rows) for event in log.of(v.StepScheduled)
    ]
    return times


def expected_counts(log: EventLog) -> dict[str, list[float]]:
    """What the histograms count of each request that ended by itself, found the long way."""
    counts: dict[str, list[float]] = defaultdict(list)
    arrived = {event.request: event for event in log.of(v.RequestArrived)}
    cached = {event.request: 4 * len(event.blocks) for event in log.of(v.Admitted)[::-1]}
    parents = {event.request: event.parent for event in log.of(v.Forked)}
    preempted = Counter(event.request for event in log.of(v.Preempted))
    written: Counter[int] = Counter()
    for event in log.of(v.StepFinished):
        for row in event.tokens:
            written[row.request] += len(row.ids)
    outputs: dict[int, list[int]] = defaultdict(list)  # of all samples, by request
    for event in log.of(v.RequestFinished):
        if event.reason in ("stop", "length"):
            root = parents.get(event.request, event.request)
            tokens = len(arrived[root].prompt)
            outputs[root].append(written[event.request])
            counts["request_prompt_tokens"].append(tokens)
            counts["request_generation_tokens"].append(written[event.request])
            counts["request_prefill_kv_computed_tokens"].append(tokens - cached[root])
            counts["request_num_preemptions"].append(preempted[event.request])
    for root, lengths in outputs.items():
        counts["request_max_num_generation_tokens"].append(max(lengths))
        counts["request_params_n"].append(arrived[root].n)
        counts["request_params_max_tokens"].append(arrived[root].max_tokens)
    return counts


HISTOGRAMS = {name for name, kind in VLLM.items() if kind == "histogram"}


@pytest.mark.parametrize("name", sorted(HISTOGRAMS))
def test_histograms(measured, name):
    values, log = measured
    times = (expected_times(log) | expected_counts(log))[name]
    assert len(set(times)) > 1 or name == "request_params_max_tokens"
    assert values[(f"vllm:{name}_count",)] == len(times)
    assert values[(f"vllm:{name}_sum",)] == pytest.approx(sum(times))
    buckets = {key[1]: value for key, value in values.items() if key[0] == f"vllm:{name}_bucket"}
    assert len(buckets) > 5
    for limit, count in buckets.items():
        assert count == sum(time <= float(limit) for time in times), limit


def test_gauges_of_a_held_engine(serve):
    url = serve(paused=True, engine={"max_kv_tokens": 64, "max_batch_size": 2}).url
    prompts = [letter * 16 for letter in "xyz"]  # alike, they would share their blocks
    with watch(url) as feed:
        callers = [Caller(url, "/v1/completions", {"prompt": p, "max_tokens": 4}) for p in prompts]
        feed.until_kind(v.RequestArrived, 3)
        post(url, "/engine/step")
        feed.until_kind(v.StepFinished)
        values = metrics(url)
        for caller in callers:
            caller.close()
    assert values[("vllm:num_requests_running",)] == 2
    assert values[("vllm:num_requests_waiting",)] == 1
    assert values[("vllm:num_requests_waiting_by_reason", "capacity")] == 1
    assert values[("vllm:num_requests_waiting_by_reason", "deferred")] == 0
    assert values[("vllm:kv_cache_usage_perc",)] == 1.0


def test_requests_that_the_policy_defers_are_counted_apart():
    """lpm lets a request wait for the prefix that another one is about to compute."""
    log, config = EventLog(), EngineConfig(policy="lpm", block_size=4)
    engine = Engine(CheckingRunner(next_token), config, tokenizer=TOKENIZER, log=log)
    first, second = (
        engine.submit("a" * 40 + end, SamplingParams(max_tokens=2)).id for end in ("b", "c")
    )
    measures = Measures()
    engine.step()
    for event in log:
        measures.apply(event)
    assert [event.request for event in log.of(v.Admitted)] == [first]
    assert measures.deferred == {second}


def test_what_has_ended_is_forgotten(measured):
    _, log = measured
    measures = Measures()
    for event in log:
        measures.apply(event)
    kept: list[Any] = [measures._samples, measures._admitted, measures._scheduled]
    assert not any(kept)
