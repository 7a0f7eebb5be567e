"""The one thread that owns the engine.

    wait until there is work to do          on a condition variable, without polling
    run the posted commands                 submissions, aborts and the teacher's controls
    run one step of the engine              if it has work and is not paused
    deliver a report                        one call into the event loop with everything that happened

A step can take microseconds or seconds; the event loop keeps serving meanwhile. The loop is in another
process, unless the server was started with `--one-process`. vLLM splits the work at the same point
(`vllm/v1/engine/core.py`, `EngineCoreProc`).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from msgspec.structs import replace

from engine.core.engine import Engine
from engine.core.log.vocabulary import Admitted, AnyEvent, StepFinished
from engine.core.loop import StepOutput
from engine.core.output.processor import TokenOutput
from engine.core.part_errors import RECOVERABLE
from engine.core.request import Constraint, Request, TokenScore
from engine.extensions.prefix_keys import salt_digest
from engine.extensions.resumption import Begun
from server.core.adapters import ReadAdapter, change_adapters
from server.core.commands import (
    AdoptKV,
    Answer,
    AnyCommand,
    DescribeKV,
    ExportedPages,
    ExportKV,
    Kept,
    KVCommand,
    KVLayout,
    Logprobs,
    OutputDelta,
    Pause,
    Prompt,
    Release,
    ReleaseBuffer,
    RemoveAdapter,
    Report,
    Resume,
    RunUntil,
    Submit,
)
from server.core.event_log import Outbox
from server.core.replay import Replay
from server.core.run_until import Refusal, StepCommand, Stopped, must_await_token


def busy_seconds(cell: "memoryview[float]") -> float:
    """Return how long an engine thread's current round, its commands and its step, has taken so far.

    cell  one double: the monotonic time at which the round began, or 0.0. The clock is the same in
          all processes.
    """
    began: float = cell[0]
    return time.monotonic() - began if began else 0.0


@dataclass(slots=True)
class _Sample:
    """The stream, prompt and choice that an engine request belongs to; `buffer` is its prompt's.

    `is_first`: it is its prompt's first sample, so what it finds in the cache was there before.
    """

    stream: int
    prompt: int
    choice: int
    buffer: int
    is_first: bool
    has_token: bool = False


class Prepared(NamedTuple):
    """A submission whose grammars have been compiled, or why it cannot be served.

    constraints   one per prompt; None for a prompt without a grammar
    refusal       the answer instead, or None
    """

    submit: Submit
    constraints: list[Constraint | None]
    refusal: Refusal | None = None

    @property
    def reply(self) -> int:
        """The number of the submission's answer."""
        return self.submit.reply


Posted = AnyCommand | Prepared | ReadAdapter


class EngineThread:
    """Runs the engine. `post` and `cancel` may be called from any thread; the rest runs on this one.

    deliver   called with a Report after each step, and once for the commands that ran before it
    record    called with the new events and the salts of new requests, to write and publish them;
              returns why writing fails, or ""
    failed    called with the exception if one ends the loop
    replay    the requests that the server itself submits
    busy      the cell that `busy_seconds` reads; another process may read it, too
    """

    def __init__(
        self,
        engine: Engine,
        outbox: Outbox,
        *,
        replay: Replay,
        deliver: Callable[[Report], None],
        record: Callable[[list[AnyEvent], Mapping[str, str]], str],
        failed: Callable[[Exception], None],
        busy: "memoryview[float]",
    ) -> None:
        self._engine = engine
        self._outbox = outbox
        self._replay = replay
        self._deliver = deliver
        self._record = record
        self._failed = failed
        self._busy = busy
        self._inbox: deque[Posted] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._samples: dict[int, _Sample] = {}  # by the engine's request id
        self._ids: dict[int, list[int]] = {}  # by stream
        self._salts: dict[str, str] = {}  # by digest, of requests whose arrival is not recorded yet
        self._kept: dict[int, int] = {}  # stream -> the buffer that it has filled
        self._holds: dict[int, int] = {}  # buffer -> the engine's hold
        self._steps: deque[StepCommand] = deque()
        self._newest = 0  # the newest request in the queue
        self._newest_scheduled = 0  # the newest one that a step could have admitted
        self._report = Report()
        self._trace_error = ""
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

    def post(self, *commands: Posted) -> None:
        """Run commands on the engine thread after the current step, without a step between them."""
        with self._wake:
            self._inbox += commands
            self._wake.notify()

    def cancel(self, reply: int) -> None:
        """Drop a command that has not run yet: it has been answered, or its client has left."""
        with self._wake:
            self._inbox = deque(one for one in self._inbox if one.reply != reply)

    # Commands: see `commands.py`

    def _do(self, command: Posted) -> None:
        constraints: list[Constraint | None] | None = None
        if isinstance(command, Prepared):
            if command.refusal is not None:
                self._report.replies.append((command.reply, command.refusal))
                return
            constraints = command.constraints
            command = command.submit
        match command:
            case Submit() if not self._has_adapter(command):
                message = f"the adapter {command.adapter!r} was unloaded before the request began"
                refused = Refusal(404, message, "model_not_found", "model")
                self._report.replies.append((command.reply, refused))
                return
            case Submit():
                self._submit(command, constraints or [None] * len(command.prompts))
            case Release():
                self._release(command)
            case ReleaseBuffer():
                self._release_buffer(command.buffer)
            case Pause():
                self._engine.pause()
                self._end_commands("paused")
            case Resume():
                self._engine.resume()
                self._end_commands("resumed")
            case RunUntil():
                self._run_until(command)
            case ReadAdapter() | RemoveAdapter():
                self._report.replies.append((command.reply, change_adapters(self._engine, command)))
            case DescribeKV() | ExportKV() | AdoptKV():
                self._report.replies.append((command.reply, _run_kv_command(self._engine, command)))
        if command.reply and isinstance(command, Submit | Answer | Pause | Resume):
            self._report.replies.append((command.reply, self._engine.step_count))

    def _has_adapter(self, command: Submit) -> bool:
        return not command.adapter or command.adapter in self._engine.adapters.registered

    def _submit(self, command: Submit, constraints: list[Constraint | None]) -> None:
        ids: list[int] = []
        live: list[int] = []  # all samples that have not ended
        earlier: list[OutputDelta] = []
        choice = 0
        if command.cache_salt:
            self._salts[salt_digest(command.cache_salt)] = command.cache_salt
        for index, (prompt, constraint) in enumerate(
            zip(command.prompts, constraints, strict=True)
        ):
            submit = partial(
                self._engine.submit,
                prompt.tokens,
                label=command.label,
                priority=command.priority,
                submitted_at=command.submitted_at,
                constraint=constraint,
                adapter=command.adapter,
                cache_salt=command.cache_salt,
            )
            if prompt.outputs:
                samples, begun = _continue(submit, prompt, choice)
                earlier += begun
            else:
                first = submit(prompt.params).id
                samples = {choice + one: first + one for one in range(prompt.params.samples)}
            first = min(samples.values(), default=0)
            for sample_choice, id_ in samples.items():
                self._samples[id_] = _Sample(
                    command.stream, index, sample_choice, prompt.buffer, is_first=id_ == first
                )
            choice += prompt.params.samples
            ids.append(first)
            live += samples.values()
            self._newest = max(self._newest, first)
        self._ids[command.stream] = live
        self._report.queued.append((command.stream, ids, earlier))

    def _release(self, command: Release) -> None:
        for id_ in self._ids.pop(command.stream, []):
            self._samples.pop(id_, None)
            self._engine.abort(id_)
        buffer = self._kept.pop(command.stream, 0)
        if not command.kept:  # the client left while its last step ran
            self._release_buffer(buffer)

    def _release_buffer(self, buffer: int) -> None:
        hold = self._holds.pop(buffer, None)
        if hold is not None:
            self._engine.holds.release(hold)

    def _run_until(self, command: RunUntil) -> None:
        refusal = None
        if command.until == "first_token":
            refusal = must_await_token(self._engine, command.request)
        elif command.paused and not self._engine.paused:
            message = "the engine is not paused: pause it before stepping"
            refusal = Refusal(409, message, code="not_paused")
        if refusal is not None:
            self._report.replies.append((command.reply, refusal))
            return
        if not self._engine.paused:
            self._engine.pause()
        until, steps, reply = command.until, command.steps, command.reply
        self._steps.append(
            StepCommand(until, steps, reply, command.request, self._newest_scheduled)
        )

    # The loop

    def _run(self) -> None:
        try:
            self._newest = self._replay.submit_due(self._engine)
            self._hand_over(self._outbox.take())
            while (commands := self._wait()) is not None:
                self._busy[0] = time.monotonic()
                for command in commands:
                    self._do(command)
                events = self._outbox.take()
                self._advance_commands(events)
                self._hand_over(events)  # before the step, which may take a long time
                if self._may_step():
                    output = self._step()
                    self._newest = max(self._newest, self._replay.submit_due(self._engine))
                    events = self._outbox.take()
                    self._advance_commands(events, stepped=True)
                    self._hand_over(events, output)
                self._busy[0] = 0.0
            self._engine.drain()  # the model may serve another engine next
        except Exception as error:
            self._busy[0] = 0.0
            self._failed(error)

    def _wait(self) -> deque[Posted] | None:
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
            if sample is not None and sample.buffer:
                self._keep(sample, request)
        return output

    def _keep(self, sample: _Sample, request: Request) -> None:
        """Keep a finished request's tokens in its buffer, before anything can be evicted."""
        if request.finish_reason not in ("stop", "length"):
            return
        self._release_buffer(sample.buffer)  # before the new hold, as it counts
        hold = self._engine.holds.hold(request.tokens, label=request.label)
        self._holds[sample.buffer] = hold.id
        self._kept[sample.stream] = sample.buffer
        held = len(hold.block_table) * self._engine.config.block_size
        self._report.kept.append((sample.stream, Kept(list(request.tokens), held)))

    def _advance_commands(self, events: list[AnyEvent], *, stepped: bool = False) -> None:
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

    def _hand_over(self, events: list[AnyEvent], output: StepOutput | None = None) -> None:
        if events:
            self._trace_error = self._record(events, self._salts)
            self._salts.clear()
        if output is not None:
            self._add_deltas(output, events)
        report, self._report = self._report, Report()
        if events or report.replies:
            report.events, report.paused = events, self._engine.paused
            report.trace_error = self._trace_error
            report.until = self._steps[0].until if self._steps else ""
            report.urgent |= bool(report.replies)
            self._deliver(report)

    def _add_deltas(self, output: StepOutput, events: list[AnyEvent]) -> None:
        """Turn the output of a step into one delta per sample; `events` are the step's."""
        for event in events:
            if type(event) is StepFinished:
                at = int(event.t["end"])  # as logged, so clients see the same times as the pictures
            elif type(event) is Admitted and not event.resumed:
                sample = self._samples.get(event.request)
                if sample is not None and sample.is_first:
                    tokens = len(event.blocks) * self._engine.config.block_size
                    self._report.cached.append((sample.stream, sample.prompt, tokens))
        deltas: dict[int, OutputDelta] = {}
        for new in output.tokens:
            sample = self._samples.get(new.request.id)
            if sample is not None:
                delta = OutputDelta(sample.choice, at, list(new.ids), list(new.texts))
                delta.stop_reason = new.matched or new.stop_token
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
            deltas[request.id].error_field = request.error_field


def _run_kv_command(engine: Engine, command: KVCommand) -> KVLayout | ExportedPages | int | Refusal:
    """Run a command between two steps and return its reply; a `Refusal` if a learner's part fails."""
    match command:
        case DescribeKV():
            return _layout(engine)
        case ExportKV():
            blocks, data = engine.kv_transfer.export(command.tokens, command.first)
            return ExportedPages(_layout(engine), command.first, blocks, data)
        case AdoptKV():
            try:
                adopted: int = engine.kv_transfer.adopt(
                    command.tokens, command.pages, first=command.first, source=command.source
                )
                return adopted
            except RECOVERABLE as error:
                return Refusal(500, str(error), code="part_failed")


def _continue(
    submit: Callable[..., Request], prompt: Prompt, first_choice: int
) -> tuple[dict[int, int], list[OutputDelta]]:
    """Submit each sample of a prompt with its output so far.

    Returns the engine's ids of the samples that have not ended, by choice, and what the client has.
    """
    ids, earlier = dict[int, int](), list[OutputDelta]()
    for sample, output in enumerate(prompt.outputs):
        begun, choice = Begun(sample, output), first_choice + sample
        # A client that has output has the prompt's scores, too.
        scored = None if output else prompt.params.prompt_logprobs
        params = replace(prompt.params, n=1, prompt_logprobs=scored)
        request = submit(params, begun=begun)
        if request.finish_reason is None:
            ids[choice] = request.id
        if output:
            new = begun.given
            delta = OutputDelta(choice, 0, list(new.ids), list(new.texts))
            delta.finish_reason, delta.error = new.finish_reason, request.error
            delta.stop_reason = new.matched or new.stop_token
            _add_logprobs(delta, new)
            if prompt.params.prompt_logprobs is not None:
                delta.prompt_scores = [TokenScore(0.0, [])] * (len(prompt.tokens) - 1)
            earlier.append(delta)
    return ids, earlier


def _layout(engine: Engine) -> KVLayout:
    config = engine.config
    return KVLayout(engine.kv_transfer.pages.kv_format(), config.block_size, config.num_blocks)


def _add_logprobs(delta: OutputDelta, tokens: TokenOutput) -> None:
    """Add the log-probabilities that the request asked for."""
    request, params = tokens.request, tokens.request.params
    if params.logprobs is not None or params.best_of is not None:
        forced = [False] * (len(tokens.ids) - tokens.forced) + [True] * tokens.forced
        delta.logprobs = Logprobs(
            list(tokens.visible), list(tokens.logprobs), list(tokens.top), forced
        )
    first = len(tokens.ids) == len(request.tokens) - request.prompt_length
    if first and params.prompt_logprobs is not None:
        delta.prompt_scores = request.prompt_scores
