"""`underglass spans`: a receiver that decodes with the official package gets the waterfall."""

import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from typer.testing import CliRunner

from engine import EventLog
from engine.core.log import vocabulary as v
from tests.engine.workloads import random_log
from underglass.commands import app
from visualizer import read
from visualizer.reading.waterfall import RequestTime
from visualizer.reading.waterfall import Span as Cut
from visualizer.spans import ended as ended_requests
from visualizer.spans.export import Outbox
from visualizer.spans.runs import Runs


class Receiver(ThreadingHTTPServer):
    """Collects the messages that come to /v1/traces."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.bodies: list[bytes] = []

    def take(self) -> dict[bytes, list[Span]]:
        """The spans that have come since the last call, by trace."""
        traces: dict[bytes, list[Span]] = {}
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        traces.setdefault(span.trace_id, []).append(span)
        self.bodies.clear()
        return traces


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/traces":
            self.server.bodies.append(body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def attributes(span: Span) -> dict[str, object]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def seconds(span: Span) -> dict[str, float]:
    start = "underglass.seconds."
    found = attributes(span).items()
    return {name.removeprefix(start): value for name, value in found if name.startswith(start)}  # type: ignore[misc]


def phases(time: RequestTime) -> Iterator[tuple[object, ...]]:
    """The phases of a request from its spans one by one: name, times, causes, links by their time."""
    computed = {step for step, one in time.life.work.items() if not one.in_vain}
    away = [range(one.begin, one.end or 10**9) for one in time.life.absences]

    def name_of(span: Cut) -> str:
        if span.step not in computed and any(span.step in steps for steps in away):
            return "preempted"
        if time.first_token is not None and span.start >= time.first_token:
            return "decode"
        began = min([*time.life.work, *(steps.start for steps in away), 10**9])
        return "queue" if span.step < began else "prefill"

    for name, group in groupby(time.spans, name_of):
        causes, about, spans = Counter[str](), Counter[int | None](), [*group]
        for span in spans:
            causes[span.cause] += span.duration / 1e6
            about[span.about] += span.duration
        del about[None]
        links = [us / 1e6 for us in sorted(about.values(), reverse=True)[:8]]
        yield name, spans[0].start, spans[-1].end, pytest.approx(causes), links


def links(span: Span) -> list[float]:
    return [one.attributes[1].value.double_value for one in span.links]


def check(trace: list[Span], time: RequestTime, roots: dict[int, Span]) -> Counter[str]:
    """Compare a trace with a request of the waterfall; count its phases and links."""
    *its, root = trace
    zero = root.start_time_unix_nano - 1000 * time.spans[0].start
    assert not root.parent_span_id and {one.parent_span_id for one in its} == {root.span_id}
    assert root.end_time_unix_nano - zero == 1000 * time.spans[-1].end
    assert seconds(root) == {cause: us / 1e6 for cause, us in time.by_cause.items()}
    assert attributes(root)["underglass.finish_reason"] == time.reason
    for phase, (name, start, end, *more) in zip(its, phases(time), strict=True):
        times = (phase.start_time_unix_nano - zero, phase.end_time_unix_nano - zero)
        assert (phase.name, *times) == (name, 1000 * start, 1000 * end)
        assert [seconds(phase), links(phase)] == more
    found = Counter(one.name for one in its)
    about = {span.about for span in time.spans if span.about is not None}
    known = {roots[one].trace_id for one in about if one in roots}
    for link in (link for one in its for link in one.links):
        assert link.trace_id in known or len(known) < len(about)
        found[link.attributes[0].value.string_value] += 1
    return found


def ended(log: EventLog) -> list[RequestTime]:
    return [one for one in read(log).waterfall if one.reason is not None and one.spans]


def test_a_receiver_gets_the_waterfall(receiver, first_seed, tmp_path):
    found = Counter[str]()
    for seed in range(first_seed, first_seed + 25):
        log, path = random_log(seed, may_be_async=True), tmp_path / "run.jsonl"
        log.save(path)
        done = CliRunner().invoke(app, ["spans", str(path), "--otlp", receiver.url])
        assert done.exit_code == 0, done.output
        traces = receiver.take()
        roots = {
            attributes(spans[-1])["underglass.request"]: spans[-1] for spans in traces.values()
        }
        times = {one.request: one for one in ended(log)}
        assert roots.keys() == times.keys()
        for spans in traces.values():
            found += check(spans, times[attributes(spans[-1])["underglass.request"]], roots)
    kinds = ("queue", "prefill", "decode", "preempted", "waited_behind", "preempted_by")
    assert all(found[kind] > 3 for kind in kinds), found


def test_a_log_that_grows_gives_the_same_spans(receiver, first_seed, monkeypatch):
    monkeypatch.setattr(ended_requests, "_NEAR", 3)
    exporter = OTLPSpanExporter(f"{receiver.url}/v1/traces")
    for seed in range(first_seed, first_seed + 10):
        log, taken = random_log(seed), list[dict[bytes, list[Span]]]()
        for pieces in (1, 40):
            outbox = Outbox()
            runs, events = Runs(outbox), list(log)
            for at in range(pieces):
                runs.add(events[at * len(events) // pieces : (at + 1) * len(events) // pieces])
            runs.end()
            assert outbox.send(exporter) and runs.requests == len(log.of(v.RequestFinished))
            taken.append(receiver.take())
        one, other = ({s.span_id: plain(s) for t in all_.values() for s in t} for all_ in taken)
        assert one == other


def plain(span: Span) -> tuple[object, ...]:
    """A span without what depends on later steps: how much of a decode is due to others' prefill."""
    causes = {k: n for k, n in seconds(span).items() if k not in ("decode", "others_prefill")}
    times = span.start_time_unix_nano, span.end_time_unix_nano
    return span.name, *times, sorted(causes.items()), links(span)


def test_errors_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    path = tmp_path / "run.jsonl"
    random_log(1).save(path)
    for url, said in (("localhost:4318", "http://"), ("http://127.0.0.1:9", "does not answer")):
        done = CliRunner().invoke(app, ["spans", str(path), "--otlp", url])
        assert done.exit_code == 2 and said in done.output
