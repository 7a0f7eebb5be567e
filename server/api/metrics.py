"""`/metrics`: the engine's counters, gauges and histograms for Prometheus.

The names, labels and the prefix are vLLM's, so that dashboards for vLLM also work here. Where vLLM has
renamed a metric, the new name is used (`kv_cache_usage_perc`, not `gpu_cache_usage_perc`). The label
`engine` is always 0. The counters and histograms are computed from the event log in
`server/core/measures.py`.

Source: vLLM 0.32, `vllm/v1/metrics/loggers.py`. docs/metrics.md says what differs and what is left out.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.core.log.fold import State
from server.api.operation import only_cached
from server.core.bridge import Bridge
from server.core.measures import Histogram
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


class Declared(NamedTuple):
    """A metric: `read` returns its value, or {label values: value} if it has more labels."""

    kind: type[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]
    name: str
    help: str
    read: Callable[[Bridge], Any]
    labels: tuple[str, ...] = ()


def _state(bridge: Bridge) -> State:
    return bridge.window.state


def _usage(bridge: Bridge) -> float:
    state = _state(bridge)
    return 1 - (len(state.free) + only_cached(state)) / len(state.refs)


def _waiting_by_reason(bridge: Bridge) -> dict[tuple[str, ...], float]:
    waiting = _state(bridge).waiting
    deferred = len(waiting.keys() & bridge.window.measures.deferred)
    return {("capacity",): len(waiting) - deferred, ("deferred",): deferred}


def _cache_config(bridge: Bridge) -> dict[tuple[str, ...], float]:
    config = bridge.config
    cached = config.prefix_cache != "off"
    return {(str(config.block_size), str(config.num_blocks), str(cached)): 1}


def _finished(bridge: Bridge) -> dict[tuple[str, ...], float]:
    return {(reason,): total for reason, total in bridge.window.measures.finished.items()}


def _waited(bridge: Bridge) -> dict[tuple[str, ...], float]:
    return {(cause,): us / 1e6 for cause, us in bridge.window.measures.causes.waited.items()}


def _missed(bridge: Bridge) -> dict[tuple[str, ...], float]:
    return {(cause,): count for cause, count in bridge.window.measures.causes.missed.items()}


def _measured(name: str) -> Callable[[Bridge], Any]:
    return lambda bridge: getattr(bridge.window.measures, name)


_GAUGE, _COUNTER, _HISTOGRAM = GaugeMetricFamily, CounterMetricFamily, HistogramMetricFamily
_COUNTERS = [  # name, the measure that it is read from, help
    ("prompt_tokens", "prompt_tokens", "Prompt tokens of admitted requests."),
    ("generation_tokens", "generation_tokens", "Output tokens."),
    ("prefix_cache_queries", "cache_queries", "Prompt tokens looked up in the prefix cache."),
    ("prefix_cache_hits", "cache_hits", "Prompt tokens found in the prefix cache."),
    ("num_preemptions", "preemptions", "Number of preemptions."),
    ("spec_decode_num_drafts", "drafts", "Number of drafts; a draft has one or more tokens."),
    ("spec_decode_num_draft_tokens", "draft_tokens", "Tokens in drafts that the model verified."),
    ("spec_decode_num_accepted_tokens", "accepted_tokens", "Draft tokens that became output."),
]
_HISTOGRAMS = [  # name, the measure that it is read from, help
    ("time_to_first_token_seconds", "ttft", "Time from arrival to the first token."),
    ("inter_token_latency_seconds", "itl", "Time from one token to the next."),
    ("e2e_request_latency_seconds", "e2e", "Time from arrival to the last token."),
    ("request_queue_time_seconds", "queue", "Time from arrival to admission."),
    ("request_prefill_time_seconds", "prefill", "Time from admission to the first token."),
    ("request_decode_time_seconds", "decode", "Time from the first to the last token."),
    ("request_inference_time_seconds", "inference", "Time from admission to the last token."),
    (
        "request_time_per_output_token_seconds",
        "per_output_token",
        "Mean time per token after the first, for requests with at least two tokens.",
    ),
    ("request_prompt_tokens", "request_prompt", "Prompt tokens of a request."),
    ("request_generation_tokens", "request_generation", "Output tokens of a request."),
    (
        "request_max_num_generation_tokens",
        "longest_output",
        "Output tokens of a request's longest sample.",
    ),
    (
        "request_prefill_kv_computed_tokens",
        "request_computed",
        "Prompt tokens of a request that were not in the prefix cache.",
    ),
    ("request_num_preemptions", "request_preemptions", "Preemptions of a request."),
    ("request_params_n", "request_n", "Samples of a request."),
    ("request_params_max_tokens", "request_max_tokens", "max_tokens of a request."),
    ("iteration_tokens_total", "step_tokens", "Tokens computed per step."),
]
# In the order of /metrics and of the table in docs/metrics.md, which is written from this list.
METRICS = [
    Declared(
        _GAUGE,
        "vllm:num_requests_running",
        "Requests in the batch.",
        lambda b: len(_state(b).running),
    ),
    Declared(
        _GAUGE,
        "vllm:num_requests_waiting",
        "Requests in the queue.",
        lambda b: len(_state(b).waiting),
    ),
    Declared(
        _GAUGE,
        "vllm:num_requests_waiting_by_reason",
        "Requests in the queue: deferred by the policy in the last step, or waiting for capacity.",
        _waiting_by_reason,
        ("reason",),
    ),
    Declared(
        _GAUGE,
        "vllm:kv_cache_usage_perc",
        "Fraction of KV blocks in use, 0 to 1; blocks that are only cached count as free.",
        _usage,
    ),
    Declared(
        _GAUGE,
        "vllm:cache_config_info",
        "Always 1; the labels are settings of the KV cache.",
        _cache_config,
        ("block_size", "num_gpu_blocks", "enable_prefix_caching"),
    ),
    # vLLM has no such metrics, so they do not have its prefix.
    Declared(
        _GAUGE,
        "underglass:engine_failed",
        "1 while the engine has stopped by itself, else 0.",
        lambda b: bool(b.failure),
    ),
    Declared(
        _GAUGE,
        "underglass:trace_failed",
        "1 if an error has stopped the writing of the trace file, else 0.",
        lambda b: bool(b.trace_error),
    ),
    Declared(
        _COUNTER,
        "underglass:request_wait_seconds",
        "Seconds that requests waited, added up over the requests.",
        _waited,
        ("cause",),
    ),
    Declared(
        _COUNTER,
        "underglass:recomputed_tokens",
        "Tokens that were computed again because of preemptions.",
        lambda b: b.window.measures.causes.recomputed,
    ),
    Declared(
        _COUNTER,
        "underglass:prefix_cache_missed_tokens",
        "Prompt tokens that were looked up in the prefix cache and not found.",
        _missed,
        ("cause",),
    ),
    *(
        Declared(kind, f"vllm:{name}", help, _measured(measure))
        for kind, metrics in ((_COUNTER, _COUNTERS), (_HISTOGRAM, _HISTOGRAMS))
        for name, measure, help in metrics
    ),
    Declared(
        _COUNTER,
        "vllm:request_success",
        "Finished requests by reason.",
        _finished,
        ("finished_reason",),
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
        for one in METRICS:
            family = one.kind(one.name, one.help, labels=[*_LABELS, *one.labels])
            for bridge in self._models.bridges:
                value = one.read(bridge)
                for more, number in (value if one.labels else {(): value}).items():
                    sample = _cumulative(number) if isinstance(number, Histogram) else (number,)
                    family.add_metric([bridge.settings.model_name, _ENGINE, *more], *sample)
            yield family


def _cumulative(histogram: Histogram) -> tuple[list[Any], float]:
    limits = [*(str(float(limit)) for limit in histogram.limits), "+Inf"]
    return list(zip(limits, accumulate(histogram.counts), strict=True)), histogram.sum
