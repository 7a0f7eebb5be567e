"""The metrics behind `/metrics` and `Retry-After`, computed from the event log as it is written.

Times come from the log, so a dashboard and the pictures agree. An event costs a few comparisons, and a
token costs a few additions. Finished requests are dropped.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from engine.events.paused_time import PausedTime
from engine.events.vocabulary import (
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
RECENT_STEPS = 100
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Histogram:
    """Value counts per bucket: up to `limits[0]`, up to `limits[1]`, ..., above the last limit."""

    def __init__(self, limits: Iterable[float]) -> None:
        self.limits: Sequence[float] = tuple(limits)
        self.counts = [0] * (len(self.limits) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value `times` times."""
        self.counts[bisect_left(self.limits, value)] += times
        self.sum += value * times


class Measures:
    """Counts over a whole run. Lives on the event loop.

    prompt_tokens                      tokens of admitted prompts, each prompt counted once
    generation_tokens                  tokens generated, over all samples
    cache_queries, cache_hits          prompt tokens looked up and found in the prefix cache
    preemptions                        number of preemptions
    finished                           number of requests by finish reason; each sample counts as one
    ttft, itl, e2e, queue              seconds to the first token, between tokens, from arrival to the
                                       last token, and from arrival to the step that admitted it; all
                                       but e2e leave out the time in which the engine was paused
    step_tokens                        tokens computed per step
    recent_steps                       (tokens, microseconds) of each of the last steps
    """

    def __init__(self) -> None:
        self.prompt_tokens = self.generation_tokens = 0
        self.cache_queries = self.cache_hits = self.preemptions = 0
        self.finished = Counter(dict.fromkeys(("stop", "length", "abort", "error"), 0))
        self.ttft = Histogram(_FAST + _TOKEN_SECONDS)
        self.itl = Histogram(_FAST + _TOKEN_SECONDS)
        self.e2e = Histogram(_REQUEST_SECONDS)
        self.queue = Histogram((0.001, 0.0025, 0.005, *_REQUEST_SECONDS))
        self.step_tokens = Histogram(_STEP_TOKENS)
        self.recent_steps: deque[tuple[int, int]] = deque(maxlen=RECENT_STEPS)
        self._paused = PausedTime()
        self._step = 0
        self._scheduled: dict[int, int] = {}  # unfinished step -> tokens
        self._block_size = 0
        self._prefix_cache = True
        self._arrived: dict[int, int] = {}  # request -> microseconds
        self._prompts: dict[int, int] = {}  # request -> tokens, until it is admitted
        self._admitted: dict[int, list[int]] = {}  # step -> arrivals of the requests it admitted
        self._last: dict[int, int] = {}  # request -> time of its last token

    def apply(self, event: Event) -> None:
        """Count an event."""
        # Not isinstance: a negative answer takes several times as long for msgspec's structs.
        if type(event) is RunStarted:
            self._block_size = event.settings["block_size"]
            self._prefix_cache = event.settings["prefix_cache"] != "off"
        elif type(event) is RequestArrived:
            self._arrived[event.request] = event.t["at"]
            self._prompts[event.request] = len(event.prompt)
        elif type(event) is Admitted and not event.resumed:
            tokens = self._prompts.pop(event.request)
            self.prompt_tokens += tokens
            if self._prefix_cache:
                self.cache_queries += tokens
                self.cache_hits += len(event.blocks) * self._block_size
            self._admitted.setdefault(self._step, []).append(self._arrived[event.request])
        elif type(event) is StepStarted:
            self._step = event.step
        elif type(event) is Preempted:
            self.preemptions += 1
        elif type(event) is StepScheduled:
            tokens = self._scheduled[self._step] = sum(row.count for row in event.rows)
            self.step_tokens.observe(tokens)
        elif type(event) is Forked:
            self._arrived[event.request] = self._arrived[event.parent]
        elif type(event) is StepFinished:
            self._paused.note(event)
            self._step_finished(event)
        elif type(event) is EnginePaused or type(event) is EngineResumed:
            self._paused.note(event)
        elif type(event) is RequestFinished:
            self.finished[event.reason] += 1
            self._prompts.pop(event.request, None)
            arrived = self._arrived.pop(event.request, None)
            last = self._last.pop(event.request, None)
            if arrived is not None and last is not None and event.reason in ("stop", "length"):
                self.e2e.observe((last - arrived) / 1e6)

    def _step_finished(self, event: StepFinished) -> None:
        step = event.step or self._step
        for arrived in self._admitted.pop(step, ()):
            self.queue.observe(self._seconds(arrived, event.t["scheduled"]))
        end = event.t["end"]
        # An asynchronous step overlaps with others; its forward pass does not.
        began = event.t.get("launched", event.t["start"])
        if tokens := self._scheduled.pop(step, 0):
            self.recent_steps.append((tokens, event.t.get("ready", end) - began))
        for row in event.tokens:
            tokens = len(row.ids)
            self.generation_tokens += tokens
            last = self._last.get(row.request)
            if last is None:
                self.ttft.observe(self._seconds(self._arrived[row.request], end))
                if tokens > 1:  # accepted drafts, or tokens forced by a tool
                    self.itl.observe(0.0, tokens - 1)
            else:
                self.itl.observe(self._seconds(last, end) / tokens, tokens)
            self._last[row.request] = end

    def _seconds(self, begin: int, end: int) -> float:
        """Return the time between two times without that in which the engine was paused."""
        return (end - begin - self._paused.between(begin, end)) / 1e6
