"""The metrics behind `/metrics` and `Retry-After`, computed from the event log as it is written.

Times come from the log, so a dashboard and the pictures agree. An event costs a few comparisons, and a
token costs a few additions. Finished requests are dropped.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.core.log.vocabulary import (
    Admitted,
    EnginePaused,
    EngineResumed,
    Event,
    Forked,
    Preempted,
    RequestArrived,
    RequestFinished,
    RunStarted,
    StepFinished,
    StepScheduled,
    StepStarted,
)
from engine.simulation.latencies import Latencies
from server.core.causes import Causes

# vLLM's bucket limits in seconds (`vllm/v1/metrics/loggers.py`), plus smaller ones, because a small
# model computes a token in a millisecond.
_FAST = (0.0001, 0.00025, 0.0005)
_TOKEN_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_SECONDS = (
    *(0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0),
    *(30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
# vLLM's series ends at the model's context (`vllm/v1/metrics/buckets.py`); here it is the same for all.
_REQUEST_TOKENS = [digit * 10**power for power in range(6) for digit in (1, 2, 5)]
_PARAMS_N = (1, 2, 5, 10, 20)
_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
RECENT_STEPS = 100
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Histogram:
    """Value counts per bucket: up to `limits[0]`, up to `limits[1]`, ..., above the last limit."""

    def __init__(self, limits: Iterable[float]) -> None:
        self.limits: Sequence[float] = tuple(limits)
        self.counts = [0] * (len(self.limits) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.limits, value)] += 1
        self.sum += value


@dataclass(slots=True)
class _Request:
    """A submitted request; its samples share it. Times are in microseconds.

    scheduled  when the step that admitted it was scheduled; None before
    cached     prompt tokens found in the prefix cache then
    live       number of samples that have not ended
    longest    output tokens of its longest sample that ended with "stop" or "length"; -1 if none has
    """

    arrived: int
    prompt_tokens: int
    max_tokens: int
    n: int
    scheduled: int | None = None
    cached: int = 0
    live: int = 1
    longest: int = -1


@dataclass(slots=True)
class _Sample:
    """A sample of a request. `first` and `last` are the times of its tokens; None before the first."""

    request: _Request
    first: int | None = None
    last: int | None = None
    tokens: int = 0
    preemptions: int = 0


class Measures:
    """Counts over a whole run. Lives on the event loop. `server/api/metrics.py` describes them.

    finished      number of requests by finish reason; each sample counts as one
    deferred      ids of the requests that the policy deferred in the last step
    recent_steps  (tokens, microseconds) of each of the last steps
    causes        why requests waited, what was computed twice, and why hits were not longer

    `ttft`, `itl` and `queue` are observed when they are known; the other values of a request when it
    ends with "stop" or "length". Each sample counts as a request, but `longest_output`, `request_n` and
    `request_max_tokens` count a request with several samples once. All times but `e2e` leave out the
    time in which the engine was paused.
    """

    def __init__(self) -> None:
        self.prompt_tokens = self.generation_tokens = 0
        self.cache_queries = self.cache_hits = self.preemptions = 0
        self.drafts = self.draft_tokens = self.accepted_tokens = 0
        self.finished = Counter(dict.fromkeys(("stop", "length", "abort", "error"), 0))
        self.deferred: set[int] = set()
        self.ttft = Histogram(_FAST + _TOKEN_SECONDS)
        self.itl = Histogram(_FAST + _TOKEN_SECONDS)
        self.per_output_token = Histogram(_FAST + _TOKEN_SECONDS)
        self.e2e = Histogram(_REQUEST_SECONDS)
        self.queue, self.prefill, self.decode, self.inference = (
            Histogram((0.001, 0.0025, 0.005, *_REQUEST_SECONDS)) for _ in range(4)
        )
        self.request_prompt, self.request_generation, self.request_computed = (
            Histogram(_REQUEST_TOKENS) for _ in range(3)
        )
        self.longest_output, self.request_max_tokens = (
            Histogram(_REQUEST_TOKENS) for _ in range(2)
        )
        self.request_n = Histogram(_PARAMS_N)
        self.request_preemptions = Histogram(_PREEMPTIONS)
        self.step_tokens = Histogram(_STEP_TOKENS)
        self.recent_steps: deque[tuple[int, int]] = deque(maxlen=RECENT_STEPS)
        self.causes = Causes()
        self._latencies = Latencies()
        self._step = 0
        self._scheduled: dict[int, int] = {}  # unfinished step -> tokens
        self._drafted: dict[int, int] = {}  # request -> drafts in its row of the scheduled step
        self._block_size = 0
        self._prefix_cache = True
        self._samples: dict[int, _Sample] = {}
        self._admitted: dict[int, list[_Request]] = {}  # by the step that admitted them

    def apply(self, event: Event) -> None:
        """Count an event."""
        self.causes.apply(event)
        # Not isinstance: a negative answer takes several times as long for msgspec's structs.
        if type(event) is RunStarted:
            self._block_size = event.settings["block_size"]
            self._prefix_cache = event.settings["prefix_cache"] != "off"
        elif type(event) is RequestArrived:
            self._latencies.note(event)
            at, tokens = event.t["at"], len(event.tokens)
            request = _Request(at, tokens, event.max_tokens, event.n)
            self._samples[event.request] = _Sample(request)
        elif type(event) is Admitted and not event.resumed:
            self._request_admitted(event)
        elif type(event) is StepStarted:
            self._step = event.step
        elif type(event) is Preempted:
            self.preemptions += 1
            self._samples[event.request].preemptions += 1
        elif type(event) is StepScheduled:
            tokens = self._scheduled[self._step] = sum(row.count for row in event.rows)
            self.step_tokens.observe(tokens)
            self._drafted = {row.request: len(row.drafts) for row in event.rows if row.drafts}
            self.deferred = {id_ for id_, reason in event.skipped if reason == "policy"}
        elif type(event) is Forked:
            self._latencies.note(event)
            request = self._samples[event.parent].request
            request.live += 1
            self._samples[event.request] = _Sample(request)
        elif type(event) is StepFinished:
            self._latencies.note(event)
            self._step_finished(event)
        elif type(event) is EnginePaused or type(event) is EngineResumed:
            self._latencies.note(event)
        elif type(event) is RequestFinished:
            self.finished[event.reason] += 1
            self._latencies.forget(event.request)
            self._sample_finished(self._samples.pop(event.request), event.reason)

    def _request_admitted(self, event: Admitted) -> None:
        request = self._samples[event.request].request
        self.prompt_tokens += request.prompt_tokens
        if self._prefix_cache:
            request.cached = len(event.blocks) * self._block_size
            self.cache_queries += request.prompt_tokens
            self.cache_hits += request.cached
        self._admitted.setdefault(self._step, []).append(request)

    def _step_finished(self, event: StepFinished) -> None:
        for request in self._admitted.pop(event.step, ()):
            request.scheduled = event.t["scheduled"]
            self.queue.observe(self._seconds(request.arrived, request.scheduled))
        end = event.t["end"]
        # An asynchronous step overlaps with others; its forward pass does not.
        began = event.t.get("launched", event.t["start"])
        if tokens := self._scheduled.pop(event.step, 0):
            self.recent_steps.append((tokens, event.t.get("ready", end) - began))
        for row in event.tokens:
            if drafted := self._drafted.pop(row.request, 0):
                self.drafts += 1
                self.draft_tokens += drafted
                self.accepted_tokens += row.accepted
            tokens = len(row.ids)
            self.generation_tokens += tokens
            sample = self._samples[row.request]
            sample.tokens += tokens
            if sample.first is None:
                sample.first = end
                self.ttft.observe(self._seconds(sample.request.arrived, end))
            for gap in self._latencies.gaps(row, end):
                if gap is not None:
                    self.itl.observe(gap / 1e3)
            sample.last = end

    def _sample_finished(self, sample: _Sample, reason: str) -> None:
        request = sample.request
        request.live -= 1
        if reason in ("stop", "length"):
            request.longest = max(request.longest, sample.tokens)
            self.request_prompt.observe(request.prompt_tokens)
            self.request_generation.observe(sample.tokens)
            self.request_computed.observe(request.prompt_tokens - request.cached)
            self.request_preemptions.observe(sample.preemptions)
            self._observe_times(sample)
        if not request.live and request.longest >= 0:
            self.longest_output.observe(request.longest)
            self.request_n.observe(request.n)
            self.request_max_tokens.observe(request.max_tokens)

    def _observe_times(self, sample: _Sample) -> None:
        scheduled, first, last = sample.request.scheduled, sample.first, sample.last
        if scheduled is None or first is None or last is None:
            return  # it only scored its prompt
        self.e2e.observe((last - sample.request.arrived) / 1e6)
        self.prefill.observe(self._seconds(scheduled, first))
        self.inference.observe(self._seconds(scheduled, last))
        decode = self._seconds(first, last)
        self.decode.observe(decode)
        if sample.tokens > 1:
            self.per_output_token.observe(decode / (sample.tokens - 1))

    def _seconds(self, begin: int, end: int) -> float:
        """Return the time between two times without that in which the engine was paused."""
        return self._latencies.between(begin, end) / 1e3
