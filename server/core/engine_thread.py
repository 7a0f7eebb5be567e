"""The one thread that owns the engine.

    wait until there is something to do     a condition, no polling
    run what was posted                     submissions, aborts, the teacher's controls: between steps
    one step of the engine                  if there is work and nobody holds it
    hand over                               one call into the event loop with all that happened

A step may take microseconds or seconds; the event loop goes on serving meanwhile. vLLM draws the
line in the same place and makes it a process boundary (`vllm/v1/engine/core.py`, `EngineCoreProc`).
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.engine import Engine, StepOutput
from engine.events.vocabulary import Admitted, Event, StepFinished
from engine.output.processor import TokenOutput
from engine.scheduling.request import Request
from server.core.report import Report
from server.core.request_stream import Logprobs, OutputDelta, Prompt, RequestStream
from server.core.window import Outbox
from server.http.errors import ApiError


@dataclass(slots=True)
class _Owner:
    """Whom a request of the engine belongs to; `ended` is its prompt's, `began` after a token."""

    generation: RequestStream
    prompt: int
    choice: int
    ended: Callable[[Engine, Request], None] | None
    began: bool = False


@dataclass(slots=True)
class _Steps:
    """Steps somebody asked of a held engine."""

    left: int
    reply: asyncio.Future[Any]


class EngineThread:
    """Runs the engine. `post` may be called from any thread, the rest belongs to its own.

    deliver   takes a Report; called once per step, and once for all that was posted before it
    record    takes the new events, for a file on disk
    failed    takes the exception that ended the loop, if one does
    """

    def __init__(
        self,
        engine: Engine,
        outbox: Outbox,
        *,
        deliver: Callable[[Report], None],
        record: Callable[[list[Event]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._engine = engine
        self._outbox = outbox
        self._deliver = deliver
        self._record = record
        self._failed = failed
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._owners: dict[int, _Owner] = {}  # by the engine's request id
        self._ids: dict[RequestStream, list[int]] = {}
        self._steps: deque[_Steps] = deque()
        self._report = Report()
        self._busy_since: float | None = None
        # A daemon, so that a forward pass that never returns cannot keep the process alive.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, patience: float) -> bool:
        """End after the round that is running; wait for it `patience` seconds at most.

        Returns whether it has ended.
        """
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(patience)
        return not self._thread.is_alive()

    def post(self, command: Callable[[], None]) -> None:
        """Run `command` on the engine thread, after the step that is running."""
        with self._wake:
            self._inbox.append(command)
            self._wake.notify()

    def busy_seconds(self) -> float:
        """How long the round that is running has taken so far: its step, and what is around it."""
        began = self._busy_since
        return 0.0 if began is None else time.monotonic() - began

    # Commands: called on the engine thread, by way of `post`

    def submit(
        self,
        generation: RequestStream,
        prompts: list[Prompt],
        *,
        label: str,
        priority: int,
        reply: asyncio.Future[Any],
    ) -> None:
        """Queue all prompts of a request, next to each other, and say so."""
        self._report.replies.append((reply, None))
        if generation.closed:  # the client left while its prompt was tokenized
            return
        ids: list[int] = []
        choice = 0
        for index, prompt in enumerate(prompts):
            request = self._engine.submit(
                prompt.tokens,
                prompt.params,
                label=label,
                priority=priority,
                submitted_at=generation.submitted_at,
            )
            ids.append(request.id)
            for sample in range(prompt.params.samples):
                self._owners[request.id + sample] = _Owner(generation, index, choice, prompt.ended)
                choice += 1
        self._ids[generation] = list(range(ids[0], ids[-1] + prompts[-1].params.samples))
        self._report.queued.append((generation, prompts, ids))

    def release(self, generation: RequestStream) -> None:
        """Nobody waits for this request any more: end what is left of it, in whatever state it is.

        Harmless for one that has finished, and the second time.
        """
        for id_ in self._ids.pop(generation, []):
            self._owners.pop(id_, None)
            self._engine.abort(id_)

    def pause(self, reply: asyncio.Future[Any]) -> None:
        """Hold the engine; answers with the number of the last step."""
        self._engine.pause()
        self._report.replies.append((reply, self._engine.step_count))

    def resume(self, reply: asyncio.Future[Any]) -> None:
        """Let it go on."""
        self._engine.resume()
        self._report.replies.append((reply, self._engine.step_count))

    def step(self, steps: int, reply: asyncio.Future[Any]) -> None:
        """Run up to `steps` steps of a held engine; answers with the last one's number.

        Fewer are run when there is no more work.
        """
        if self._engine.paused:
            self._steps.append(_Steps(steps, reply))
        else:
            running = ApiError(409, "the engine runs by itself: pause it first", code="not_paused")
            self._report.replies.append((reply, running))

    # The loop

    def _run(self) -> None:
        try:
            while self._wait():
                self._busy_since = time.monotonic()
                for command in self._take_inbox():
                    command()
                if not self._may_step():  # nothing to step through
                    self._answer_steps(len(self._steps))
                self._hand_over()  # before the step, which may take long
                if self._may_step():
                    self._hand_over(self._step())
                self._busy_since = None
        except Exception as error:
            self._busy_since = None
            self._failed(error)

    def _wait(self) -> bool:
        with self._wake:
            self._wake.wait_for(
                lambda: self._inbox or self._steps or self._stopping or self._may_step()
            )
            return not self._stopping

    def _take_inbox(self) -> deque[Callable[[], None]]:
        with self._wake:
            taken, self._inbox = self._inbox, deque()
        return taken

    def _may_step(self) -> bool:
        held = self._engine.paused and not self._steps
        return self._engine.has_work() and not held

    def _step(self) -> StepOutput:
        output = self._engine.step()
        for request in output.finished:
            owner = self._owners.get(request.id)
            if owner is not None and owner.ended is not None:
                owner.ended(self._engine, request)
        if self._steps:
            self._steps[0].left -= 1
            if self._steps[0].left == 0 or not self._engine.has_work():
                self._answer_steps(1)
        return output

    def _answer_steps(self, count: int) -> None:
        for _ in range(count):
            self._report.replies.append((self._steps.popleft().reply, self._engine.step_count))

    def _hand_over(self, output: StepOutput | None = None) -> None:
        events = self._outbox.take()
        if events:
            self._record(events)
        if output is not None:
            self._note_cached(events)
            self._sort(output, at=_end_of_step(events))
        report, self._report = self._report, Report()
        if events or report.replies:
            report.events, report.paused = events, self._engine.paused
            report.urgent |= bool(report.replies)
            self._deliver(report)

    def _note_cached(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Admitted) and not event.resumed and event.request in self._owners:
                owner = self._owners[event.request]
                tokens = len(event.blocks) * self._engine.config.block_size
                self._report.cached.append((owner.generation, owner.prompt, tokens))

    def _sort(self, output: StepOutput, at: int) -> None:
        """Sort what a step brought by whom it belongs to."""
        gains: dict[int, OutputDelta] = {}
        for tokens in output.tokens:
            owner = self._owners.get(tokens.request.id)
            if owner is not None:
                gain = OutputDelta(owner.choice, at, list(tokens.ids), list(tokens.texts))
                _tell(gain, tokens)
                gains[tokens.request.id] = gain
                self._report.gains.append((owner.generation, gain))
                self._report.urgent |= not owner.began
                owner.began = True
        for request in output.finished:
            owner = self._owners.pop(request.id, None)
            if owner is None:
                continue
            self._report.urgent = True
            if request.id not in gains:  # it failed, so it gained nothing
                gains[request.id] = OutputDelta(owner.choice, at)
                self._report.gains.append((owner.generation, gains[request.id]))
            gains[request.id].finish_reason = request.finish_reason
            gains[request.id].error = request.error


def _tell(gain: OutputDelta, tokens: TokenOutput) -> None:
    """Add the log-probabilities that the request asks for."""
    request = tokens.request
    params = request.params
    if params.logprobs is not None or params.best_of is not None:
        forced = [False] * (len(tokens.ids) - tokens.forced) + [True] * tokens.forced
        gain.logprobs = Logprobs(
            list(tokens.pieces), list(tokens.logprobs), list(tokens.top), forced
        )
    first = len(tokens.ids) == len(request.tokens) - request.prompt_length
    if first and params.prompt_logprobs is not None:
        gain.prompt_scores = request.prompt_scores


def _end_of_step(events: list[Event]) -> int:
    """The step's end as the log has it, so that a client is told what the pictures show."""
    return next(
        int(event.t["end"]) for event in reversed(events) if isinstance(event, StepFinished)
    )
