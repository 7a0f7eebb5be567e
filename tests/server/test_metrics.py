"""/metrics says what the event log says, under the names that vLLM's dashboards ask for."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from engine.core.sampling_params import SamplingParams
from engine.simulation.checking_runner import CheckingRunner
from server.core.causes import Causes
from server.core.measures import Measures
from tests.engine.workloads import TOKENIZER, next_token, random_log
from tests.server.harness import Caller, fetch, metrics, post, start, trace, watch
from visualizer import read

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
    kinds = {family.name: family.type for family in families}
    own = {name for name in kinds if name.startswith("underglass:")}
    assert {"underglass:engine_failed", "underglass:trace_failed"} <= own
    assert {name: kinds[name] for name in kinds.keys() - own} == {
        f"vllm:{name}": kind for name, kind in VLLM.items()
    }
    labels = {sample.name: sample.labels.keys() for one in families for sample in one.samples}
    for name, present in labels.items():
        expected = {"model_name", "engine"}
        expected |= {"le"} if name.endswith("_bucket") else set()
        expected |= {"finished_reason"} if name == "vllm:request_success_total" else set()
        if name not in ("vllm:cache_config_info", "vllm:num_requests_waiting_by_reason"):
            expected |= present & {"cause"} if name.startswith("underglass:") else set()
            assert present == expected, name


def expected(log: EventLog) -> dict[str, list[float]]:
    """What the histograms count, from the rows that the notebooks show."""
    rows, steps = read(log).request_rows, read(log).step_rows
    scheduled = {event.step: event.t["scheduled"] / 1e3 for event in log.of(v.StepFinished)}
    admitted = [row for row in rows if row.sample == 0 and row.admitted_step is not None]
    queued = {row.root: scheduled[row.admitted_step] - row.arrived_ms for row in admitted}
    ended = [row for row in rows if row.finish_reason in ("stop", "length")]
    longest: dict[int, int] = defaultdict(int)
    for row in ended:
        longest[row.root] = max(longest[row.root], row.output_tokens)
    arrived = {event.request: event for event in log.of(v.RequestArrived)}
    gaps = [row.gap_ms for row in read(log).token_rows if row.gap_ms is not None]
    per_token = [(row.e2e_ms - row.ttft_ms, row.output_tokens - 1) for row in ended]
    times = {
        "time_to_first_token": [row.ttft_ms for row in rows if row.ttft_ms is not None],
        "inter_token_latency": gaps,
        "request_time_per_output_token": [time / count for time, count in per_token if count],
        "e2e_request_latency": [row.e2e_ms for row in ended],
        "request_queue_time": list(queued.values()),
        "request_prefill_time": [row.ttft_ms - queued[row.root] for row in ended],
        "request_inference_time": [row.e2e_ms - queued[row.root] for row in ended],
        "request_decode_time": [row.e2e_ms - row.ttft_ms for row in ended],
    }
    counts = {
        "iteration_tokens_total": [row.tokens for row in steps],
        "request_prompt_tokens": [row.prompt_tokens for row in ended],
        "request_generation_tokens": [row.output_tokens for row in ended],
        "request_prefill_kv_computed_tokens": [
            row.prompt_tokens - row.cached_tokens for row in ended
        ],
        "request_num_preemptions": [row.preemptions for row in ended],
        "request_max_num_generation_tokens": list(longest.values()),
        "request_params_n": [arrived[root].n for root in longest],
        "request_params_max_tokens": [arrived[root].max_tokens for root in longest],
    }
    return counts | {f"{name}_seconds": [one / 1e3 for one in ms] for name, ms in times.items()}


HISTOGRAMS = {name for name, kind in VLLM.items() if kind == "histogram"}


@pytest.mark.parametrize("name", sorted(HISTOGRAMS))
def test_histograms(measured, name):
    values, log = measured
    times = expected(log)[name]
    assert len(set(times)) > 1 or name == "request_params_max_tokens"
    assert values[(f"vllm:{name}_count",)] == len(times)
    assert values[(f"vllm:{name}_sum",)] == pytest.approx(sum(times))
    buckets = {key[1]: value for key, value in values.items() if key[0] == f"vllm:{name}_bucket"}
    assert len(buckets) > 5
    for limit, count in buckets.items():
        assert count == sum(round(time, 9) <= float(limit) for time in times), limit


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


CAUSE = {
    **dict.fromkeys(("first", "differs", "shorter", "other_key"), "never_computed"),
    **{"whole": "last_tokens", "computing": "computing", "evicted": "lost"},
}


def test_causes_are_those_of_the_board(first_seed, soak):
    told = Counter[str]()
    for seed in range(first_seed, first_seed + (2_000 if soak else 40)):
        log, causes = random_log(seed, may_be_async=True), Causes()
        for event in log:
            before = Counter(causes.missed)
            causes.apply(event)
            if type(event) is not v.Admitted or event.resumed or log.of(v.PrefixAdopted):
                continue
            missed = causes.missed - before
            told += missed
            why, arrived = read(log).why_missed(event.request), by_id(log)[event.request]
            assert missed.total() in (0, len(arrived.prompt) - why.found)
            assert CAUSE.get(why.kind, "") in ("", *missed), (seed, event.request, why)
        regimes = read(log).regimes
        assert +causes.waited == sum((Counter(one.waited) for one in regimes), Counter())
        assert causes.recomputed == sum(regimes.columns.steps.again)
        told += causes.waited + Counter(recomputed=causes.recomputed)
    kinds = (
        "recomputed",
        "preempted",
        "no_free_blocks",
        "scored",
        *{*CAUSE.values()} - {"computing"},
    )
    assert min(told[kind] for kind in kinds) > 0, told


def by_id(log: EventLog) -> dict[int, v.RequestArrived]:
    return {event.request: event for event in log.of(v.RequestArrived)}


def test_what_has_ended_is_forgotten(measured):
    _, log = measured
    measures = Measures()
    for event in log:
        measures.apply(event)
    causes, kept = measures.causes, [measures._samples, measures._admitted, measures._scheduled]
    kept += [causes._samples, causes._waiting, causes._away, causes._steps, causes._computing]
    assert not any(kept)
