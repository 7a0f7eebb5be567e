"""`underglass spans`: send where each request's time went to a tracing tool, as OpenTelemetry spans."""

import logging
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from underglass.commands.options import KINDS, fail, progress, tell
from underglass.commands.read_log import read_named

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    from visualizer.spans.export import Outbox
    from visualizer.spans.runs import Runs


def spans(
    file: Annotated[str, typer.Argument(metavar="FILE", help=KINDS)],
    otlp: Annotated[
        str | None,
        typer.Option(
            help="Where to send them: http://HOST:4318.",
            show_default="OTEL_EXPORTER_OTLP_ENDPOINT, or this machine",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Send each request of a file that grows when it has ended."),
    ] = False,
) -> None:
    """Send where each request's time went to Jaeger, Tempo or another tool, as OpenTelemetry spans.

    A request is a trace with a span for each phase: queue, prefill, decode, preempted. Its attributes
    have the seconds by cause, and its links lead to the requests that it waited behind and to those
    that preempted it. Texts and token ids are not sent. OTEL_EXPORTER_OTLP_HEADERS sets a key.
    """
    from engine.core.extras import MissingExtraError, needs_extra
    from engine.core.log import LogError

    try:
        with needs_extra("underglass spans"):
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            from visualizer.spans.export import Outbox
            from visualizer.spans.runs import Runs
    except MissingExtraError as error:
        fail(str(error))
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a line for each attempt
    exporter, outbox = OTLPSpanExporter(_traces(otlp)), Outbox()
    runs = Runs(outbox)
    try:
        if follow:
            _follow(Path(file), runs, outbox, exporter)
        else:
            log = read_named(file)
            with progress(None, "sending", " requests") as on_request:
                for _ in runs.add_whole(log):
                    on_request(runs.requests)
                    if outbox.is_full and not outbox.send(exporter):
                        break
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror or error}")
    except LogError as error:
        fail(f"{file}: {error}")
    if not outbox.send(exporter) or outbox.dropped:
        fail(f"{otlp or 'the receiver'} does not answer, or did not take all spans")
    dated = "; the log does not say when it began, so they begin now" if runs.undated else ""
    tell(f"sent {runs.requests:,} requests{dated}")


def _traces(url: str | None) -> str | None:
    """Return the address of a receiver's spans: with OTLP's path, if it has none."""
    if url is None:
        return None
    if not url.startswith(("http://", "https://")):
        fail(f"--otlp must begin with http:// or https://, got {url}")
    return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1/traces"


def _follow(path: Path, runs: "Runs", outbox: "Outbox", exporter: "OTLPSpanExporter") -> None:
    """Send requests as they end, until Ctrl-C."""
    from visualizer.sources import READERS
    from visualizer.sources.follow import FollowedFile

    if not path.exists():
        tell(f"waiting for {path}, which does not exist yet")
    arrives = True
    try:
        with closing(FollowedFile(path, READERS).events()) as batches:
            for batch in batches:
                runs.add(batch)
                if outbox.send(exporter) is not arrives:
                    arrives = not arrives
                    tell(
                        "the receiver answers again" if arrives else "the receiver does not answer"
                    )
    except KeyboardInterrupt:
        runs.end()
