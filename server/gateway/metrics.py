"""`/metrics` of a gateway: every replica's metrics with a label `replica`, and sums over the replicas.

The replicas' metrics keep their names, so dashboards for several vLLM servers work: they add up series
that differ in one label. The sums have names of their own, `cluster:...` instead of `vllm:...`;
otherwise every dashboard that adds up all series would count them twice. A fraction, such as
`kv_cache_usage_perc`, is averaged, not summed.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from server.api.metrics import CONTENT_TYPE, TEXT
from server.gateway.follower import Follower
from server.gateway.gateway import Gateway
from server.gateway.health import counts
from server.gateway.upstream import LostError, lost


def routes(gateway: Gateway) -> APIRouter:
    """Return the route /metrics."""
    router = APIRouter()

    @router.get("/metrics", tags=["Operation"], response_class=Response, responses=TEXT)
    async def metrics() -> Response:
        """Return every replica's metrics and their sums in Prometheus text format."""
        followers = [one for one in gateway.followers.values() if one.joined]
        texts = await asyncio.gather(*(_metrics_of(gateway, one) for one in followers))
        ids = [one.member.id for one in followers]
        collected = _Cluster(gateway, dict(zip(ids, texts, strict=True)))
        return Response(generate_latest(collected), media_type=CONTENT_TYPE)

    return router


async def _metrics_of(gateway: Gateway, follower: Follower) -> str:
    """Return a replica's metrics; nothing if it is lost meanwhile."""
    try:
        async with (
            lost(follower),
            gateway.session.get(f"{follower.member.url}/metrics") as response,
        ):
            return await response.text() if response.status == 200 else ""
    except LostError:
        return ""


class _Cluster(Collector):
    """The metrics of all replicas; `texts` has the text of each, by id."""

    def __init__(self, gateway: Gateway, texts: dict[str, str]) -> None:
        self._gateway = gateway
        self._texts = texts

    def collect(self) -> Iterator[Metric]:
        """Yield each family with all replicas' samples, and its sums; then the gateway's own."""
        families: dict[str, Metric] = {}
        for id_, text in self._texts.items():
            for family in text_string_to_metric_families(text):
                merged = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for one in family.samples:
                    merged.add_sample(one.name, one.labels | {"replica": id_}, one.value)
        for family in families.values():
            yield family
            if not family.name.endswith("_info"):  # its value is always 1
                yield _combined(family)
        yield from self._own()

    def _own(self) -> Iterator[Metric]:
        gateway = self._gateway
        replicas = GaugeMetricFamily("cluster:replicas", "Replicas by state.", labels=["state"])
        for state, count in counts(gateway).items():
            replicas.add_metric([state], count)
        yield replicas
        running = GaugeMetricFamily(
            "cluster:requests_in_flight", "Requests routed and not ended.", labels=["replica"]
        )
        for id_, replica in gateway.dispatcher.replicas.items():
            running.add_metric([id_], replica.in_flight)
        yield running
        routed = CounterMetricFamily(
            "cluster:requests_routed", "Decisions of the router.", labels=["replica", "reason"]
        )
        for labels, count in gateway.routed.items():
            routed.add_metric(labels, count)
        yield routed
        yield GaugeMetricFamily(
            "cluster:gateway_trace_failed",
            "1 if an error has stopped the writing of the gateway's trace file, else 0.",
            value=bool(gateway.log.trace and gateway.log.trace.problem),
        )


def _combined(family: Metric) -> Metric:
    """Return the sums of a family over the replicas; of fractions, the means."""
    sums, counts = Counter[tuple[str, tuple[Any, ...]]](), Counter[Any]()
    for one in family.samples:
        labels = tuple((name, value) for name, value in one.labels.items() if name != "replica")
        sums[one.name, labels] += one.value  # type: ignore[assignment]
        counts[one.name, labels] += 1
    is_fraction = family.name.endswith("_perc")
    prefix = family.name.partition(":")[0]  # vllm or underglass
    name = family.name.replace(prefix, "cluster", 1)
    how = "Mean over the replicas" if is_fraction else "Sum over the replicas"
    combined = Metric(name, f"{how}: {family.documentation}", family.type)
    for key, total in sums.items():
        value = total / counts[key] if is_fraction else total
        combined.add_sample(key[0].replace(prefix, "cluster", 1), dict(key[1]), value)
    return combined
