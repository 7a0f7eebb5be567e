"""SGLang's forward-pass metrics: how many requests each step computes, and how many wait.

A message describes one step in counts. It does not say which requests the step computes, which blocks
they have, or why others wait. A message with a duration of 0 and no scheduled requests is an idle
engine's heartbeat, not a step.

A message has the duration of the forward pass, but no time of day. So we let a step end when its
message was received, which only a capture records.

Source: SGLang 0.5.23, `srt/observability/forward_pass_metrics.py` (`--enable-forward-pass-metrics`).
"""

from collections.abc import Mapping

import msgspec

from engine.core.log import LogError
from engine.core.log.vocabulary import Event, StepFinished, StepReported, StepStarted
from engine.simulation.facts import Fact, Knowledge
from visualizer.sources.frames import Frame, gap_before, holds_map, read_frame
from visualizer.sources.limits import MAX_REQUESTS
from visualizer.sources.reader import Reader, Translator, foreign_start

VERSION = 1
MAX_TOKENS = 1 << 31  # in one step or waiting
FACTS: Mapping[Fact, Knowledge] = {
    "scheduled_tokens": "recorded",
    "queue": "recorded",
    "step_times": "inferred",
}


class _Scheduled(msgspec.Struct):
    num_prefill_requests: int = 0
    sum_prefill_tokens: int = 0
    num_decode_requests: int = 0


class _Queued(_Scheduled):
    sum_decode_kv_tokens: int = 0


class _Metrics(msgspec.Struct):
    """The fields of a message that are read. `wall_time` is the step's duration in seconds."""

    version: int
    wall_time: float
    scheduled_requests: _Scheduled
    queued_requests: _Queued
    dp_rank: int = 0


class MetricsTranslator(Translator):
    """Translates the messages of one rank."""

    def __init__(self) -> None:
        self._start: int | None = None  # when the run started, in microseconds since 1970
        self._end = 0  # when the last step ended, in microseconds since `_start`
        self._next: int | None = None
        self._rank = 0
        self._step = 0

    def feed(self, message: bytes) -> list[Event]:
        """Return the events of a line of a capture. Raises LogError for a damaged line."""
        frame = read_frame(message)
        metrics = _read(frame)
        events = list[Event]()
        duration = round(metrics.wall_time * 1e6)
        if self._start is None:
            self._start = round((frame.at or 0) * 1e6) - duration
            self._rank = metrics.dp_rank
            settings = {"block_size": 1, "num_blocks": 0, "prefix_cache": "off"}
            start = foreign_start("SGLang", "forward-pass metrics", FACTS, settings, self._start)
            events.append(start)
        if metrics.dp_rank != self._rank:
            raise LogError(
                f"dp_rank must be {self._rank} in the whole capture, got {metrics.dp_rank}: "
                "save each rank's messages in a file of its own"
            )
        if self._next is not None and frame.seq != self._next:
            events.append(gap_before(frame.seq, self._next, self._end))
        self._next = frame.seq + 1
        # If the line has no time, the step begins when the last one ended.
        end = self._end + duration if frame.at is None else round(frame.at * 1e6) - self._start
        if metrics.wall_time or metrics.scheduled_requests != _Scheduled():
            events += self._steps(metrics, max(end - duration, self._end), max(end, self._end))
        return events

    def _steps(self, metrics: _Metrics, start: int, end: int) -> list[Event]:
        self._step += 1
        self._end = end
        scheduled, queued = metrics.scheduled_requests, metrics.queued_requests
        report = StepReported(
            prefills=scheduled.num_prefill_requests,
            prefill_tokens=scheduled.sum_prefill_tokens,
            decodes=scheduled.num_decode_requests,
            waiting=queued.num_prefill_requests + queued.num_decode_requests,
            waiting_tokens=queued.sum_prefill_tokens + queued.sum_decode_kv_tokens,
        )
        t = {"start": start, "scheduled": start, "end": end}
        return [StepStarted(self._step), report, StepFinished([], self._step, t=t)]


def _read(frame: Frame) -> _Metrics:
    try:
        metrics = msgspec.convert(frame.decoded(), _Metrics)
    except (msgspec.ValidationError, OverflowError) as error:
        raise LogError(f"the message is not SGLang's forward-pass metrics: {error}") from error
    if metrics.version != VERSION:
        raise LogError(
            f"version must be {VERSION}, got {metrics.version}: "
            "a newer Underglass may read these metrics"
        )
    if not 0 <= metrics.wall_time < 1e6:
        raise LogError(f"wall_time must be from 0 to 1,000,000 seconds, got {metrics.wall_time}")
    for part in (metrics.scheduled_requests, metrics.queued_requests):
        for name in part.__struct_fields__:
            count, most = getattr(part, name), MAX_TOKENS if "tokens" in name else MAX_REQUESTS
            if not 0 <= count <= most:
                raise LogError(f"{name} must be from 0 to {most:,}, got {count}")
    return metrics


SGLANG_METRICS = Reader(
    name="sglang-metrics",
    title="forward-pass metrics of SGLang",
    facts=FACTS,
    recognizes=lambda line: holds_map(line) is True,
    translator=MetricsTranslator,
)
