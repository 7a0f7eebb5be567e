"""Send the phases of requests as OpenTelemetry spans, with the official SDK: OTLP over HTTP.

A request is a trace: a span `llm_request`, and one for each phase below it. Ids follow from when the
run began and the request, so a log that is sent twice gives the same traces, and a span can link to a
request that has not ended. Attributes that vLLM has too have its names (`vllm/tracing/utils.py`): with
`gen_ai.request.id`, vLLM's own span of a request and this one can be found together.
"""

import hashlib
from collections.abc import Iterable

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from visualizer.reading.waterfall.waterfall import RequestTime
from visualizer.spans.phases import Phase, phases_of

_BATCH = 512  # spans in a message
_MOST = 100_000  # spans that wait for a receiver which does not answer
Attributes = dict[str, str | int | float]


class Outbox(SpanProcessor):
    """Keeps the spans of all runs until they are sent; `dropped` counts those that did not fit.

    The SDK's own processor sends in a thread, and says nothing of what it drops.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._kept: list[ReadableSpan] = []

    @property
    def is_full(self) -> bool:
        """Whether there are enough spans for a message."""
        return len(self._kept) >= _BATCH

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span."""
        if len(self._kept) < _MOST:
            self._kept.append(span)
        else:
            self.dropped += 1

    def send(self, exporter: SpanExporter) -> bool:
        """Send what is kept; return whether it has arrived. What has not is sent with the next call."""
        while batch := self._kept[:_BATCH]:
            if exporter.export(batch) is not SpanExportResult.SUCCESS:
                return False
            del self._kept[:_BATCH]
        return True


class RunSpans:
    """Makes the spans of one run's requests.

    began    when the run began, in microseconds since 1970
    model    the model's name
    replica  of a cluster; "" for an engine alone
    """

    def __init__(self, outbox: Outbox, began: int, model: str, replica: str = "") -> None:
        self._began, self._model, self._replica = began, model, replica
        self._ids = _Ids()
        service = {"service.name": "underglass"} | (
            {"service.instance.id": replica} if replica else {}
        )
        # OTEL_RESOURCE_ATTRIBUTES adds others, and OTEL_SERVICE_NAME replaces the name.
        provider = TracerProvider(ALWAYS_ON, Resource.create(service), id_generator=self._ids)
        provider.add_span_processor(outbox)
        self._tracer = provider.get_tracer("underglass")

    def add(self, time: RequestTime) -> None:
        """Make the spans of a request that has ended."""
        if not time.stretches:
            return
        attributes = _of_request(time, self._model)
        self._ids.next = self._context(time.request)
        root = self._tracer.start_span(
            "llm_request",
            trace.set_span_in_context(trace.INVALID_SPAN),
            SpanKind.SERVER,
            attributes,
            start_time=self._ns(time.stretches[0].start),
        )
        if time.reason == "error":
            root.set_status(Status(StatusCode.ERROR))
        inside = trace.set_span_in_context(root)
        for number, phase in enumerate(phases_of(time), 1):
            self._ids.next = self._context(time.request, number)
            span = self._tracer.start_span(
                phase.name,
                inside,
                attributes=_of_phase(phase),
                links=self._links(phase),
                start_time=self._ns(phase.start),
            )
            span.end(self._ns(phase.end))
        root.end(self._ns(time.stretches[-1].end))

    def _ns(self, us: int) -> int:
        return (self._began + us) * 1000

    def _context(self, request: int, phase: int = 0) -> SpanContext:
        name = f"{self._began} {self._replica} {request}"
        trace_id, span_id = (
            hashlib.sha256(one.encode()).digest() for one in (name, f"{name} {phase}")
        )
        return SpanContext(
            int.from_bytes(trace_id[:16]),
            int.from_bytes(span_id[:8]),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )

    def _links(self, phase: Phase) -> list[Link]:
        kind = "preempted_by" if phase.name == "preempted" else "waited_behind"
        return [
            Link(self._context(request), {"underglass.link": kind, "underglass.seconds": us / 1e6})
            for request, us in phase.longest
        ]


def _of_request(time: RequestTime, model: str) -> Attributes:
    life = time.life
    latencies = {"e2e": time.total, "time_to_first_token": time.ttft}
    began = next((one.start for one in time.stretches if one.has_row), None)
    if time.arrived is not None and began is not None:
        latencies["time_in_queue"] = began - time.arrived
    attributes: Attributes = {
        "gen_ai.response.model": model,
        "gen_ai.request.id": time.name,
        "gen_ai.usage.prompt_tokens": life.prompt_tokens,
        "gen_ai.usage.completion_tokens": life.output_tokens,
        "underglass.request": time.request,
        "underglass.finish_reason": time.reason or "",
        "underglass.cached_tokens": life.found or 0,
        "underglass.preemptions": len(life.absences),
        "underglass.recomputed_tokens": sum(work.again for work in life.work.values()),
    }
    attributes |= {
        f"gen_ai.latency.{name}": us / 1e6 for name, us in latencies.items() if us is not None
    }
    return attributes | _seconds(time.by_cause.items())


def _of_phase(phase: Phase) -> Attributes:
    return {"underglass.steps": phase.steps} | _seconds(phase.causes.items())


def _seconds(causes: Iterable[tuple[str, int]]) -> Attributes:
    return {f"underglass.seconds.{cause}": us / 1e6 for cause, us in causes if us}


class _Ids(IdGenerator):
    """Gives out the ids that were chosen for the next span."""

    next: SpanContext

    def generate_span_id(self) -> int:
        return self.next.span_id

    def generate_trace_id(self) -> int:
        return self.next.trace_id
