"""The one thread that owns the engine.

    wait until there is work to do          on a condition variable, without polling
    run the posted commands                 submissions, aborts and the teacher's controls
    run one step of the engine              if it has work and is not paused
    deliver a report                        one call into the event loop with everything that happened

A step can take microseconds or seconds; the event loop keeps serving meanwhile.

Differs from vLLM, which splits the work at the same point but into two processes
(`vllm/v1/engine/core.py`, `EngineCoreProc`).
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.engine import Engine, StepOutput
from engine.events.vocabulary import Admitted, Event, StepFinished
from engine.output.processor import TokenOutput
from engine.scheduling.request import Request
from server.core.event_log import Outbox
from server.core.replay import Replay
from server.core.request_stream import Logprobs, OutputDelta, Prompt, RequestStream
from server.core.run_until import StepCommand, Stopped, Until, check_awaits_token, not_paused
from server.http.errors import ApiError


@dataclass(slots=True)
class Report:
    """Everything that happened since the last report.

    events    the new events of the log
    queued    (stream, its prompts, the engine's id of each prompt's first sample)
    deltas    new output of the streams' choices, or how they ended
    cached    (stream, index of the prompt, tokens found in the prefix cache)
    replies   (a command's future, its result or exception)
    paused    whether the engine is paused
    until     what a paused engine runs until, or ""
    urgent    whether the event loop must see it now: it has a reply, a first token or an end
    """

    events: list[Event] = field(default_factory=list)
    queued: list[tuple[RequestStream, list[Prompt], list[int]]] = field(default_factory=list)
    deltas: list[tuple[RequestStream, OutputDelta]] = field(default_factory=list)
    cached: list[tuple[RequestStream, int, int]] = field(default_factory=list)
    replies: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)
    paused: bool = False
    until: str = ""
    urgent: bool = False


@dataclass(slots=True)
class _Sample:
    """The stream, prompt and choice that an engine request belongs to; `ended` is its prompt's."""

    stream: RequestStream
    prompt: int
    choice: int
    ended: Callable[[Engine, Request], None] | None
    has_token: bool = False


class EngineThread:
    """Runs the engine. `post` may be called from any thread; everything else runs on this thread.

    deliver   called with a Report after each step, and once for the commands that ran before it
    record    called with the new events, to write them to a file
    failed    called with the exception if one ends the loop
    replay    the requests that the server itself submits
    """

    def __init__(
        self,
        engine: Engine,
        outbox: Outbox,
        *,
        replay: Replay,
        deliver: Callable[[Report], None],
        record: Callable[[list[Event]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._engine = engine
        self._outbox = outbox
        self._replay = replay
        self._deliver = deliver
        self._record = record
        self._failed = failed
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._samples: dict[int, _Sample] = {}  # by the engine's request id
        self._ids: dict[RequestStream, list[int]] = {}
        self._steps: deque[StepCommand] = deque()
        self._newest = 0  # the newest request in the queue
        self._newest_scheduled = 0  # the newest one that a step could have admitted
        self._report = Report()
        self._busy_since: float | None = None
        # A daemon thread: a forward pass that never returns must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End the thread after the current step; return whether it ended within `timeout` seconds."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def post(self, command: Callable[[], None]) -> None:
        """Run `command` on the engine thread, after the current step."""
        with self._wake:
            self._inbox.append(command)
            self._wake.notify()

    def busy_seconds(self) -> float:
        """Return how long the current round, its commands and its step, has taken so far."""
        began = self._busy_since
        return 0.0 if began is None else time.monotonic() - began

    # Commands: called on the engine thread through `post`

    def submit(
        self,
        stream: RequestStream,
        prompts: list[Prompt],
        priority: int,
        reply: asyncio.Future[Any],
    ) -> None:
        """Queue all prompts of a request consecutively, and reply."""
        self.answer(reply)
        ids: list[int] = []
        choice = 0
        for index, prompt in enumerate(prompts):
            request = self._engine.submit(
                prompt.tokens,
                prompt.params,
                label=stream.label,
                priority=priority,
                submitted_at=stream.submitted_at,
            )
            ids.append(request.id)
            self._newest = request.id
            for sample in range(prompt.params.samples):
                self._samples[request.id + sample] = _Sample(stream, index, choice, prompt.ended)
                choice += 1
        self._ids[stream] = list(range(ids[0], ids[-1] + prompts[-1].params.samples))
        self._report.queued.append((stream, prompts, ids))

    def answer(self, reply: asyncio.Future[Any]) -> None:
        """Reply with the number of the last step."""
        self._report.replies.append((reply, self._engine.step_count))

    def release(self, stream: RequestStream) -> None:
        """Abort the unfinished samples of a request. A second call does nothing."""
        for id_ in self._ids.pop(stream, []):
            self._samples.pop(id_, None)
            self._engine.abort(id_)

    def pause(self, reply: asyncio.Future[Any]) -> None:
        """Pause the engine and end the commands that step it; reply with the last step's number."""
        self._engine.pause()
        self._end_commands("paused")
        self.answer(reply)

    def resume(self, reply: asyncio.Future[Any]) -> None:
        """Resume the engine; reply with the number of the last step."""
        self._engine.resume()
        self._end_commands("resumed")
        self.answer(reply)

    def step(self, steps: int, reply: asyncio.Future[Any]) -> None:
        """Run up to `steps` steps of a paused engine; reply with a `Stopped`.

        Fewer steps run if the engine runs out of work.
        """
        if self._engine.paused:
            self._steps.append(StepCommand("steps", steps, reply))
        else:
            self._report.replies.append((reply, not_paused()))

    def run_until(
        self, until: Until, request: int | None, steps: int, reply: asyncio.Future[Any]
    ) -> None:
        """Pause the engine and run it until something happens; reply with a `Stopped`."""
        try:
            if until == "first_token":
                check_awaits_token(self._engine, request)
        except ApiError as error:
            self._report.replies.append((reply, error))
            return
        if not self._engine.paused:
            self._engine.pause()
        command = StepCommand(until, steps, reply, request, self._newest_scheduled)
        self._steps.append(command)

    # The loop

    def _run(self) -> None:
        try:
            self._newest = self._replay.submit_due(self._engine)
            self._hand_over(self._outbox.take())
            while (commands := self._wait()) is not None:
                self._busy_since = time.monotonic()
                for command in commands:
                    command()
                events = self._outbox.take()
                self._advance_commands(events)
                self._hand_over(events)  # before the step, which may take a long time
                if self._may_step():
                    output = self._step()
                    self._newest = max(self._newest, self._replay.submit_due(self._engine))
                    events = self._outbox.take()
                    self._advance_commands(events, stepped=True)
                    self._hand_over(events, output)
                self._busy_since = None
            self._engine.drain()  # the model may serve another engine next
        except Exception as error:
            self._busy_since = None
            self._failed(error)

    def _wait(self) -> deque[Callable[[], None]] | None:
        """Wait for work; return the posted commands, or None if the thread must end."""
        with self._wake:
            self._wake.wait_for(
                lambda: self._inbox or self._steps or self._stopping or self._may_step()
            )
            commands, self._inbox = self._inbox, deque()
            return None if self._stopping else commands

    def _may_step(self) -> bool:
        may_schedule = not self._engine.paused or bool(self._steps)
        return (self._engine.has_work() and may_schedule) or self._engine.is_in_flight

    def _step(self) -> StepOutput:
        self._newest_scheduled = self._newest
        if self._engine.paused and not self._steps:
            output = self._engine.drain()  # the step that was in flight when the engine paused
        else:
            output = self._engine.step()
        for request in output.finished:
            sample = self._samples.get(request.id)
            if sample is not None and sample.ended is not None:
                sample.ended(self._engine, request)
        return output

    def _advance_commands(self, events: list[Event], *, stepped: bool = False) -> None:
        """Show events to the first command that steps the engine, and end the commands that are over.

        `stepped`: the events are those of a step.
        """
        if not self._steps:
            return
        first = self._steps[0]
        first.see(events)
        stopped = first.after_step(self._engine) if stepped else None
        while self._steps and (stopped := stopped or self._steps[0].when_idle(self._engine)):
            self._report.replies.append((self._steps.popleft().reply, stopped))
            stopped = None

    def _end_commands(self, reason: Literal["paused", "resumed"]) -> None:
        while self._steps:
            reply = self._steps.popleft().reply
            self._report.replies.append((reply, Stopped(self._engine.step_count, reason)))

    def _hand_over(self, events: list[Event], output: StepOutput | None = None) -> None:
        if events:
            self._record(events)
        if output is not None:
            self._add_deltas(output, events)
        report, self._report = self._report, Report()
        if events or report.replies:
            report.events, report.paused = events, self._engine.paused
            report.until = self._steps[0].until if self._steps else ""
            report.urgent |= bool(report.replies)
            self._deliver(report)

    def _add_deltas(self, output: StepOutput, events: list[Event]) -> None:
        """Turn the output of a step into one delta per sample; `events` are the step's."""
        for event in events:
            if type(event) is StepFinished:
                at = int(event.t["end"])  # as logged, so clients see the same times as the pictures
            elif type(event) is Admitted and not event.resumed:
                sample = self._samples.get(event.request)
                if sample is not None:
                    tokens = len(event.blocks) * self._engine.config.block_size
                    self._report.cached.append((sample.stream, sample.prompt, tokens))
        deltas: dict[int, OutputDelta] = {}
        for new in output.tokens:
            sample = self._samples.get(new.request.id)
            if sample is not None:
                delta = OutputDelta(sample.choice, at, list(new.ids), list(new.texts))
                _add_logprobs(delta, new)
                deltas[new.request.id] = delta
                self._report.deltas.append((sample.stream, delta))
                self._report.urgent |= not sample.has_token
                sample.has_token = True
        for request in output.finished:
            sample = self._samples.pop(request.id, None)
            if sample is None:
                continue
            self._report.urgent = True
            if request.id not in deltas:  # it failed, so it has no new token
                deltas[request.id] = OutputDelta(sample.choice, at)
                self._report.deltas.append((sample.stream, deltas[request.id]))
            deltas[request.id].finish_reason = request.finish_reason
            deltas[request.id].error = request.error


def _add_logprobs(delta: OutputDelta, tokens: TokenOutput) -> None:
    """Add the log-probabilities that the request asked for."""
    request, params = tokens.request, tokens.request.params
    if params.logprobs is not None or params.best_of is not None:
        forced = [False] * (len(tokens.ids) - tokens.forced) + [True] * tokens.forced
        delta.logprobs = Logprobs(
            list(tokens.pieces), list(tokens.logprobs), list(tokens.top), forced
        )
    first = len(tokens.ids) == len(request.tokens) - request.prompt_length
    if first and params.prompt_logprobs is not None:
        delta.prompt_scores = request.prompt_scores
