"""`/metrics`: the engine's counters, gauges and histograms for Prometheus.

The names are vLLM's, including the prefix, so that dashboards for vLLM also work here. Where vLLM has
renamed a metric, the new name is used (`kv_cache_usage_perc`, not `gpu_cache_usage_perc`). All values
come from the event log: see `measures.py`.
"""

from collections.abc import Callable, Iterator
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
_LABELS = ["model_name"]
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One line per value.",
        "content": {
            "text/plain": {
                "schema": {"type": "string"},
                "example": 'vllm:num_requests_running{model_name="bundled"} 2.0\n',
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
]
_HISTOGRAMS: list[tuple[str, str, Callable[[Measures], Histogram]]] = [
    ("time_to_first_token_seconds", "Time from arrival to the first token.", lambda m: m.ttft),
    ("inter_token_latency_seconds", "Time from one token to the next.", lambda m: m.itl),
    ("e2e_request_latency_seconds", "Time from arrival to the last token.", lambda m: m.e2e),
    ("request_queue_time_seconds", "Time from arrival to admission.", lambda m: m.queue),
    ("iteration_tokens_total", "Tokens computed per step.", lambda m: m.step_tokens),
]


def _usage(bridge: Bridge) -> float:
    state = bridge.window.state
    return 1 - (len(state.free) + only_cached(state)) / len(state.refs)


_GAUGES: list[tuple[str, str, Callable[[Bridge], float]]] = [
    ("num_requests_running", "Requests in the batch.", lambda b: len(b.window.state.running)),
    ("num_requests_waiting", "Requests in the queue.", lambda b: len(b.window.state.waiting)),
    (
        "kv_cache_usage_perc",
        "Fraction of KV blocks in use, 0 to 1; blocks that are only cached count as free.",
        _usage,
    ),
]


def routes(models: Models) -> APIRouter:
    """Return the route /metrics for the loaded models."""
    router = APIRouter()
    engines = _Engines(models)

    @router.get("/metrics", tags=["Operation"], response_class=Response, responses=_TEXT)
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
        measured = {model: bridge.window.measures for model, bridge in bridges.items()}
        for name, help, value in _GAUGES:
            gauge = GaugeMetricFamily(f"vllm:{name}", help, labels=_LABELS)
            for model, bridge in bridges.items():
                gauge.add_metric([model], value(bridge))
            yield gauge
        for name, help, count in _COUNTERS:
            counter = CounterMetricFamily(f"vllm:{name}", help, labels=_LABELS)
            for model, measures in measured.items():
                counter.add_metric([model], count(measures))
            yield counter
        finished = CounterMetricFamily(
            "vllm:request_success",
            "Finished requests by reason.",
            labels=[*_LABELS, "finished_reason"],
        )
        for model, measures in measured.items():
            for reason, total in measures.finished.items():
                finished.add_metric([model, reason], total)
        yield finished
        for name, help, histogram in _HISTOGRAMS:
            family = HistogramMetricFamily(f"vllm:{name}", help, labels=_LABELS)
            for model, measures in measured.items():
                family.add_metric([model], *_cumulative(histogram(measures)))
            yield family


def _cumulative(histogram: Histogram) -> tuple[list[Any], float]:
    limits = [*(str(float(limit)) for limit in histogram.limits), "+Inf"]
    return list(zip(limits, accumulate(histogram.counts), strict=True)), histogram.sum
