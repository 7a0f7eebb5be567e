"""`/metrics`: the engine's counters, gauges and histograms for Prometheus.

The names, labels and the prefix are vLLM's, so that dashboards for vLLM also work here. Where vLLM has
renamed a metric, the new name is used (`kv_cache_usage_perc`, not `gpu_cache_usage_perc`). The label
`engine` is always 0. The counters and histograms are computed from the event log in
`server/core/measures.py`.

Source: vLLM 0.32, `vllm/v1/metrics/loggers.py`. docs/metrics.md says what differs and what is left out.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from server.api.operation import only_cached
from server.core.bridge import Bridge
from server.core.measures import Histogram, Measures
from server.core.models import Models

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = ["model_name", "engine"]
_ENGINE = "0"
TEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One line per value.",
        "content": {
            "text/plain": {
                "schema": {"type": "string"},
                "example": 'vllm:num_requests_running{model_name="bundled",engine="0"} 2.0\n',
            }
        },
    }
}

_COUNTERS: list[tuple[str, str, Callable[[Measures], float]]] = [
    ("prompt_tokens", "Prompt tokens of admitted requests.", lambda m: m.prompt_tokens),
    ("generation_tokens", "Output tokens.", lambda m: m.generation_tokens),
    (
        "prefix_cache_queries",
        "Prompt tokens looked up in the prefix cache.",
        lambda m: m.cache_queries,
    ),
    ("prefix_cache_hits", "Prompt tokens found in the prefix cache.", lambda m: m.cache_hits),
    ("num_preemptions", "Number of preemptions.", lambda m: m.preemptions),
    (
        "spec_decode_num_drafts",
        "Number of drafts; a draft has one or more tokens.",
        lambda m: m.drafts,
    ),
    (
        "spec_decode_num_draft_tokens",
        "Tokens in drafts that the model verified.",
        lambda m: m.draft_tokens,
    ),
    (
        "spec_decode_num_accepted_tokens",
        "Draft tokens that became output.",
        lambda m: m.accepted_tokens,
    ),
]
_HISTOGRAMS: list[tuple[str, str, Callable[[Measures], Histogram]]] = [
    ("time_to_first_token_seconds", "Time from arrival to the first token.", lambda m: m.ttft),
    ("inter_token_latency_seconds", "Time from one token to the next.", lambda m: m.itl),
    ("e2e_request_latency_seconds", "Time from arrival to the last token.", lambda m: m.e2e),
    ("request_queue_time_seconds", "Time from arrival to admission.", lambda m: m.queue),
    (
        "request_prefill_time_seconds",
        "Time from admission to the first token.",
        lambda m: m.prefill,
    ),
    (
        "request_decode_time_seconds",
        "Time from the first to the last token.",
        lambda m: m.decode,
    ),
    (
        "request_inference_time_seconds",
        "Time from admission to the last token.",
        lambda m: m.inference,
    ),
    (
        "request_time_per_output_token_seconds",
        "Mean time per token after the first, for requests with at least two tokens.",
        lambda m: m.per_output_token,
    ),
    ("request_prompt_tokens", "Prompt tokens of a request.", lambda m: m.request_prompt),
    ("request_generation_tokens", "Output tokens of a request.", lambda m: m.request_generation),
    (
        "request_max_num_generation_tokens",
        "Output tokens of a request's longest sample.",
        lambda m: m.longest_output,
    ),
    (
        "request_prefill_kv_computed_tokens",
        "Prompt tokens of a request that were not in the prefix cache.",
        lambda m: m.request_computed,
    ),
    ("request_num_preemptions", "Preemptions of a request.", lambda m: m.request_preemptions),
    ("request_params_n", "Samples of a request.", lambda m: m.request_n),
    ("request_params_max_tokens", "max_tokens of a request.", lambda m: m.request_max_tokens),
    ("iteration_tokens_total", "Tokens computed per step.", lambda m: m.step_tokens),
]


def _usage(bridge: Bridge) -> float:
    state = bridge.window.state
    return 1 - (len(state.free) + only_cached(state)) / len(state.refs)


_GAUGES: list[tuple[str, str, Callable[[Bridge], float]]] = [
    ("vllm:num_requests_running", "Requests in the batch.", lambda b: len(b.window.state.running)),
    ("vllm:num_requests_waiting", "Requests in the queue.", lambda b: len(b.window.state.waiting)),
    (
        "vllm:kv_cache_usage_perc",
        "Fraction of KV blocks in use, 0 to 1; blocks that are only cached count as free.",
        _usage,
    ),
    # vLLM has no such metrics, so they do not have its prefix.
    (
        "underglass:engine_failed",
        "1 if the engine has failed, else 0.",
        lambda b: bool(b.failure),
    ),
    (
        "underglass:trace_failed",
        "1 if an error has stopped the writing of the trace file, else 0.",
        lambda b: bool(b.trace_error),
    ),
]


def routes(models: Models) -> APIRouter:
    """Return the route /metrics for the loaded models."""
    router = APIRouter()
    engines = _Engines(models)

    @router.get("/metrics", tags=["Operation"], response_class=Response, responses=TEXT)
    async def metrics() -> Response:
        """Return counters, gauges and histograms in Prometheus text format, under vLLM's names."""
        return Response(generate_latest(engines), media_type=CONTENT_TYPE)

    return router


class _Engines(Collector):
    """Collects every metric of every loaded model on request."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        """Yield the current values."""
        bridges = {bridge.settings.model_name: bridge for bridge in self._models.bridges}
        for name, help, value in _GAUGES:
            gauge = GaugeMetricFamily(name, help, labels=_LABELS)
            for model, bridge in bridges.items():
                gauge.add_metric([model, _ENGINE], value(bridge))
            yield gauge
        yield _waiting_by_reason(bridges)
        yield _cache_config(bridges)
        measured = {model: bridge.window.measures for model, bridge in bridges.items()}
        for name, help, count in _COUNTERS:
            counter = CounterMetricFamily(f"vllm:{name}", help, labels=_LABELS)
            for model, measures in measured.items():
                counter.add_metric([model, _ENGINE], count(measures))
            yield counter
        yield _finished(measured)
        for name, help, histogram in _HISTOGRAMS:
            family = HistogramMetricFamily(f"vllm:{name}", help, labels=_LABELS)
            for model, measures in measured.items():
                family.add_metric([model, _ENGINE], *_cumulative(histogram(measures)))
            yield family


def _waiting_by_reason(bridges: Mapping[str, Bridge]) -> Metric:
    """Return the number of waiting requests, split by reason as in vLLM."""
    gauge = GaugeMetricFamily(
        "vllm:num_requests_waiting_by_reason",
        "Requests in the queue: deferred by the policy in the last step, or waiting for capacity.",
        labels=[*_LABELS, "reason"],
    )
    for model, bridge in bridges.items():
        waiting = bridge.window.state.waiting
        deferred = len(waiting.keys() & bridge.window.measures.deferred)
        gauge.add_metric([model, _ENGINE, "capacity"], len(waiting) - deferred)
        gauge.add_metric([model, _ENGINE, "deferred"], deferred)
    return gauge


def _cache_config(bridges: Mapping[str, Bridge]) -> Metric:
    """Return a gauge that is always 1 and whose labels are the KV cache's settings."""
    gauge = GaugeMetricFamily(
        "vllm:cache_config_info",
        "Settings of the KV cache.",
        labels=[*_LABELS, "block_size", "num_gpu_blocks", "enable_prefix_caching"],
    )
    for model, bridge in bridges.items():
        config = bridge.config
        cached = config.prefix_cache != "off"
        settings = (str(config.block_size), str(config.num_blocks), str(cached))
        gauge.add_metric([model, _ENGINE, *settings], 1)
    return gauge


def _finished(measured: Mapping[str, Measures]) -> Metric:
    counter = CounterMetricFamily(
        "vllm:request_success",
        "Finished requests by reason.",
        labels=[*_LABELS, "finished_reason"],
    )
    for model, measures in measured.items():
        for reason, total in measures.finished.items():
            counter.add_metric([model, _ENGINE, reason], total)
    return counter


def _cumulative(histogram: Histogram) -> tuple[list[Any], float]:
    limits = [*(str(float(limit)) for limit in histogram.limits), "+Inf"]
    return list(zip(limits, accumulate(histogram.counts), strict=True)), histogram.sum
