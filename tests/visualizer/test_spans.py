"""`underglass spans`: a receiver that decodes with the official package gets the waterfall."""

import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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


def check(trace: list[Span], time: RequestTime, roots: dict[int, Span]) -> Counter[str]:
    """Compare a trace with a request of the waterfall; count its phases and links."""
    *phases, root = trace
    assert not root.parent_span_id and {one.parent_span_id for one in phases} == {root.span_id}
    assert root.end_time_unix_nano - root.start_time_unix_nano == 1000 * time.total
    assert seconds(root) == {cause: us / 1e6 for cause, us in time.by_cause.items()}
    assert attributes(root)["underglass.finish_reason"] == time.reason
    ends = [root.start_time_unix_nano, *(one.end_time_unix_nano for one in phases)]
    assert ends[:-1] == [one.start_time_unix_nano for one in phases]
    assert ends[-1] == root.end_time_unix_nano
    causes, found = Counter[str](), Counter(one.name for one in phases)
    for phase in phases:
        lasted = phase.end_time_unix_nano - phase.start_time_unix_nano
        assert round(1e9 * sum(seconds(phase).values())) == lasted
        causes.update({cause: round(1e6 * one) for cause, one in seconds(phase).items()})
        about = {span.about for span in time.spans if span.about is not None}
        for link in phase.links:
            known = {roots[one].trace_id for one in about if one in roots}
            assert link.trace_id in known or len(known) < len(about)
            found[link.attributes[0].value.string_value] += 1
    assert causes == Counter(time.by_cause)
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


def test_a_log_that_grows_gives_the_same_spans(receiver, first_seed):
    exporter = OTLPSpanExporter(f"{receiver.url}/v1/traces")
    for seed in range(first_seed, first_seed + 10):
        log, taken = random_log(seed), list[dict[bytes, list[Span]]]()
        for pieces in (1, 7):
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
    return span.name, *times, sorted(causes.items()), len(span.links)


def test_errors_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    path = tmp_path / "run.jsonl"
    log = random_log(1)
    log.save(path)
    for url, said in (("localhost:4318", "http://"), ("http://127.0.0.1:9", "does not answer")):
        done = CliRunner().invoke(app, ["spans", str(path), "--otlp", url])
        assert done.exit_code == 2 and said in done.output
