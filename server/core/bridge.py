"""The asyncio side of the engine thread: admission, live requests, controls, drain.

    handler --encode--> tokenizer thread --post--> engine thread --one report per step--> here

A separate thread tokenizes all prompts. A long prompt takes milliseconds, which would hold up the event
loop's streams and the engine thread's steps. It is a single thread, so requests reach the queue in the
order in which they arrived. The `tokenizers` library releases the GIL while it works.

If a forward pass hangs, Python cannot interrupt its thread, so the step itself keeps running. The
bridge fails the requests and commands that wait for it and accepts no new ones until the step returns.
It then drops the late results, frees their memory and resumes service. vLLM leaves this to the program
that monitors `/health`. SGLang's `watchdog_thread` (`sglang/srt/managers/scheduler.py`) kills the
process and relies on an orchestrator to restart it, which a classroom does not have.
"""

import asyncio
import gc
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

from engine.engine import Engine
from engine.events.vocabulary import Event
from engine.scheduling.admission import RequestError
from engine.text.chat_template import ChatTemplateError
from engine.text.tokenizer import TokenizerError
from server.core.admission import Admission
from server.core.engine_thread import EngineThread, Report
from server.core.event_log import Outbox, PreviousRun, Window
from server.core.replay import Replay
from server.core.request_stream import (
    GenerationRequest,
    Prompt,
    RequestContext,
    RequestStream,
    StreamPacer,
)
from server.core.run_until import Stopped, Until
from server.core.settings import ServerSettings
from server.http.errors import ApiError, bad_request, unavailable

logger = logging.getLogger(__name__)

# The garbage collector runs this long after the last request has ended.
COLLECT_AFTER_SECONDS = 0.1
COLLECTED_GENERATION = 1  # the oldest generation to scan; older objects have been scanned before
# Number of new objects after which it runs even under load. A busy server reaches it once, while its
# log window fills; after that, only cycles can reach it.
MAX_NEW_OBJECTS = 500_000


def freeze_heap() -> None:
    """Exempt all existing objects from garbage collection, and make automatic collections rare.

    Reference counting frees nearly everything immediately; the collector only looks for cycles. It
    scans every young object, including those of the event log, and all streams stop meanwhile: 8 ms per
    20,000 objects and about 75 ms for the older ones, which is 3 to 6 % of the time with 64 streams
    (measured with the bundled model). So the bridge collects once its last request has ended.

    Source: vLLM also freezes its heap (`vllm/utils/gc_utils.py`).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(MAX_NEW_OBJECTS)


class Bridge:
    """The routes' view of one engine. Lives on the event loop.

    `engine` must have been created with `outbox` as its log. After `start`, only its own thread touches
    it, except for what never changes (tokenizer, configuration, clock).

    window          the log's window and the folded state
    paused          whether the engine is paused
    until           what the paused engine runs until, or ""
    last_stop       why the last `run_until` stopped; None after another command
    holding         whether new requests are held back
    screen          the earlier step that the projector's screen looks back at, or None
    draining        the server is about to stop and accepts no more requests
    retired         the engine is being replaced by a restarted one
    successor       the bridge of the restarted engine; set before `stopped`
    previous        the run before the restart that made this engine, or None
    failure         the error that ended the engine thread, or ""
    stopped         set when the engine thread is asked to stop; viewers wait for it too
    """

    def __init__(
        self,
        engine: Engine,
        outbox: Outbox,
        settings: ServerSettings,
        record: Callable[[list[Event]], None] | None = None,
        *,
        replay: Replay | None = None,
        previous: PreviousRun | None = None,
    ) -> None:
        self.tokenizer = engine.tokenizer
        self.config = engine.config
        self.max_context = engine.runner.max_context
        self.settings = settings
        self.window = Window(settings.log_window)
        self._admission = Admission(settings, self.window.state, self.window.measures)
        self._reports: deque[Report] = deque()  # delivered, but not processed yet
        self._pacer = StreamPacer(on_rested=self._process_reports)
        self.paused = engine.paused
        self.until = ""
        self.last_stop: Stopped | None = None
        self.holding = False
        self.screen: int | None = None
        self.draining = False
        self.retired = False
        self.successor: Bridge | None = None
        self.previous = previous
        self.failure = ""
        self._engine = engine
        self._record = record or (lambda _events: None)
        self._thread = EngineThread(
            engine,
            outbox,
            replay=replay or Replay(),
            deliver=self._deliver,
            record=self._record,
            failed=lambda error: self._on_loop(self._fail, error),
        )
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")
        self._live: set[RequestStream] = set()
        # Admitted, but not in the engine's queue yet. The values are token counts, 0 until known.
        self._pending: dict[RequestStream, int] = {}
        self._replies: set[asyncio.Future[Any]] = set()  # the engine thread settles them
        # Submissions that are held back, with the commands that will queue them.
        self._held: dict[RequestStream, Callable[[], None]] = {}
        self._idle = asyncio.Event()  # set while no request is live
        self._idle.set()
        self._collection: asyncio.TimerHandle | None = None
        self._stuck_timer: asyncio.TimerHandle | None = None
        self.stopped = asyncio.Event()
        started = outbox.take()
        self._record(started)
        self.window.extend(started)

    # Start and stop

    def start(self) -> None:
        """Start the engine thread; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def drain(self) -> None:
        """Accept no more requests and let live ones finish within the limit.

        A paused engine is resumed, so that accepted requests are served.
        """
        self.draining = True
        self.window.wake()
        if not self.failure:
            self._thread.post(self._engine.resume)
            self._thread.post(self._take_held())
        try:
            async with asyncio.timeout(self.settings.drain_seconds):
                await self._idle.wait()
        except TimeoutError:
            message = "the server stopped before this request finished"
            self._end_all(unavailable(message, "shutdown"))

    async def stop(self) -> bool:
        """End the engine thread after its step, and every feed; return False if it did not end."""
        self.stopped.set()
        return await self._stop_thread(2.0)

    async def retire(self) -> Engine | None:
        """End all requests and the engine thread; return the engine, whose model is free then.

        Feeds go on: they wait for `successor`. Returns None if a step did not end in time.
        """
        self.retired = True
        error = unavailable("the engine was restarted: send the request again", "engine_restarted")
        self._end_all(error)
        if not self.failure and not self.stuck:
            with suppress(ApiError):  # it gets stuck now
                await self._run_on_thread(self._thread.answer)  # after the aborts: the log has them
        ended = await self._stop_thread(self.settings.stuck_seconds)
        self._end_all(error)
        if not ended or self._engine.is_in_flight:
            self.failure = "its step did not end, so it cannot be restarted yet"
            return None
        self._process_reports()
        return self._engine

    async def _stop_thread(self, timeout: float) -> bool:
        for timer in (self._stuck_timer, self._collection):
            if timer is not None:
                timer.cancel()
        ended = await asyncio.to_thread(self._thread.stop, timeout=timeout)
        self._tokenizing.shutdown(wait=False, cancel_futures=True)
        return ended

    def free_model(self) -> None:
        """Free the weights and the KV memory of a stopped engine now.

        The engine and the bridge are small; they are part of reference cycles, so the garbage collector
        frees them later.
        """
        del self._engine.runner

    @property
    def unfinished(self) -> int:
        """The number of requests that clients or the engine are not done with."""
        return max(len(self._live), len(self.window.state.requests))

    @property
    def pending_submit(self) -> int:
        """The number of requests that are admitted but not in the engine's queue yet."""
        return len(self._pending)

    @property
    def stuck(self) -> str:
        """A message if the engine is stuck; empty if it is not."""
        seconds = self._thread.busy_seconds()
        if seconds <= self.settings.stuck_seconds:
            return ""
        return f"the engine has been in one step for {seconds:.0f} s"

    @property
    def not_ready(self) -> str:
        """The reason why the server accepts no requests now; empty if it is ready."""
        if self.failure:
            return f"the engine has failed: {self.failure}"
        if self.draining:
            return "the server is shutting down"
        return self.stuck

    # Requests

    @asynccontextmanager
    async def generate(
        self, request: GenerationRequest, context: RequestContext | None = None
    ) -> AsyncIterator[RequestStream]:
        """Queue a request. On exit the request is aborted and its resources are freed.

        The block is entered once the engine has the request in its queue. Raises ApiError for a
        request that cannot be accepted.
        """
        self._check_alive()
        if self.draining:
            raise unavailable("the server is shutting down", "shutdown")
        if self.retired:
            raise unavailable("the engine is being restarted", "restarting")
        self._admission.check_requests(len(self._pending))
        stream = RequestStream(
            self._engine.clock.now(),
            self.settings.buffer_bytes,
            release=lambda: self._thread.post(lambda: self._thread.release(stream)),
            label=request.label,
        )
        self._live.add(stream)
        self._idle.clear()
        if self._collection is not None:
            self._collection.cancel()
        try:
            await self._submit(stream, request)
            yield stream
        finally:
            stream.close()
            if context is not None:
                context.on_end(stream)
            self._live.discard(stream)
            if not self._live:
                self._idle.set()
                self._collection = self._loop.call_later(
                    COLLECT_AFTER_SECONDS, gc.collect, COLLECTED_GENERATION
                )

    def _check_alive(self) -> None:
        """Raise ApiError while the engine cannot work."""
        if self.failure:
            raise unavailable(f"the engine has failed: {self.failure}", "engine_failed")
        if stuck := self.stuck:
            raise unavailable(f"{stuck}: no requests are accepted until it ends", "engine_stuck")

    async def _submit(self, stream: RequestStream, request: GenerationRequest) -> None:
        self._pending[stream] = 0
        try:
            prompts = await self._loop.run_in_executor(self._tokenizing, self._encode, request)
            if stream.failure:  # the server stopped meanwhile
                raise stream.failure
            pending = sum(self._pending.values())
            self._pending[stream] = self._admission.check_tokens(prompts, pending)
            await self._ask(
                lambda reply: self._thread.submit(stream, prompts, request.priority, reply),
                stream if self.holding else None,
            )
        except RequestError as error:
            field = request.fields.get(error.field, error.field)
            raise bad_request(field, field + str(error).removeprefix(error.field)) from error
        except (TokenizerError, ChatTemplateError) as error:
            raise bad_request(request.fields.get("prompt", "prompt"), str(error)) from error
        finally:
            self._pending.pop(stream, None)

    def _encode(self, request: GenerationRequest) -> list[Prompt]:
        """Tokenize and validate the prompts; called on the tokenizer thread."""
        prompts = request.encode(self)
        for prompt in prompts:
            self._engine.validate(prompt.tokens, prompt.params, request.priority)
        return prompts

    # The teacher's controls

    async def pause(self) -> int:
        """Pause the engine after its step; return the number of that step."""
        self._forget_stop()
        return int(await self._ask(self._thread.pause))

    async def resume(self) -> int:
        """Resume the engine; return the number of the last step."""
        self._forget_stop()
        return int(await self._ask(self._thread.resume))

    async def step(self, steps: int) -> int:
        """Run up to `steps` steps of a paused engine; return the number of the last one."""
        self._forget_stop()
        stopped: Stopped = await self._ask(lambda reply: self._thread.step(steps, reply))
        return stopped.step

    async def run_until(self, until: Until, request: int | None, steps: int) -> Stopped:
        """Pause the engine and run it until something happens, for at most `steps` steps."""
        self._forget_stop()
        stopped: Stopped = await self._ask(
            lambda reply: self._thread.run_until(until, request, steps, reply)
        )
        self.last_stop = stopped
        self.window.wake()
        return stopped

    def _forget_stop(self) -> None:
        self.last_stop = None
        self.window.wake()

    def show_on_screen(self, step: int | None) -> None:
        """Tell all viewers which earlier step the projector's screen looks back at; None: none."""
        self.screen = step
        self.window.wake()

    @property
    def held(self) -> list[str]:
        """The labels of the requests that are held back, in order of submission.

        They are empty if the event log has no names.
        """
        has_names = self.settings.trace_text == "on"
        return [stream.label if has_names else "" for stream in self._held]

    def hold_submissions(self) -> None:
        """Hold new requests back until `release_submissions`."""
        self.holding = True
        self.window.wake()

    async def release_submissions(self) -> int:
        """Queue all held requests before the next step; return their number."""
        count, queue = len(self._held), self._take_held()

        def release(reply: asyncio.Future[Any]) -> None:
            queue()
            self._thread.answer(reply)

        await self._ask(release)
        return count

    def _take_held(self) -> Callable[[], None]:
        """Stop holding requests back; return a command that queues the held ones."""
        held, self._held = self._held, {}
        self.holding = False
        self.window.wake()
        now = self._engine.clock.now()
        for stream in held:
            stream.submitted_at = now  # the wait before was the teacher's

        def queue() -> None:
            for submit in held.values():
                submit()

        return queue

    async def _ask(
        self,
        command: Callable[[asyncio.Future[Any]], None],
        held: RequestStream | None = None,
    ) -> Any:
        """Run a command on the engine thread and return its reply; fail if that thread does.

        `held` is the stream whose submission the command is, if it is to be held back.
        """
        self._check_alive()
        if self.retired:
            raise unavailable("the engine is being restarted", "restarting")
        return await self._run_on_thread(command, held)

    async def _run_on_thread(
        self,
        command: Callable[[asyncio.Future[Any]], None],
        held: RequestStream | None = None,
    ) -> Any:
        self._watch_step()
        reply = self._loop.create_future()
        self._replies.add(reply)

        def run() -> None:
            # A command that was already answered with "stuck", or whose client has left, must not run.
            if not reply.done():
                command(reply)

        try:
            if held is None:
                self._thread.post(run)
            else:
                self._held[held] = run
                self.window.wake()
            return await reply
        finally:
            self._replies.discard(reply)
            if held is not None and self._held.pop(held, None) is not None:
                self.window.wake()  # its client has left

    def between_steps(self, change: Callable[[Engine], None]) -> None:
        """Call `change` on the engine thread after the current step, without waiting for it."""
        self._thread.post(lambda: change(self._engine))

    # Reports of the engine thread

    def _deliver(self, report: Report) -> None:
        """Queue a report; called on the engine thread.

        Wakes the event loop unless the loop will process reports soon anyway.
        """
        self._reports.append(report)
        if report.urgent or not self._pacer.resting:
            self._on_loop(self._process_reports)

    def _on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():  # closed: the process is ending
                raise

    def _process_reports(self) -> None:
        try:
            while self._reports:
                report = self._reports.popleft()
                self.window.extend(report.events)
                self.paused, self.until = report.paused, report.until
                for stream, prompts, ids in report.queued:
                    stream.queued(prompts, ids)
                    self._pending.pop(stream, None)  # from now on it counts as waiting
                for reply, result in report.replies:
                    if reply.done():
                        continue
                    if isinstance(result, Exception):
                        reply.set_exception(result)
                    else:
                        reply.set_result(result)
                for stream, prompt, tokens in report.cached:
                    stream.cached_tokens[prompt] = tokens
                for stream, delta in report.deltas:
                    stream.put(delta)
                self._pacer.add(stream for stream, _ in report.deltas)
        except Exception as error:  # a bug in the server: fail everything that waits
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End all requests and commands because the engine thread has failed."""
        logger.error("the engine has failed", exc_info=error)
        self.failure = f"{type(error).__name__}: {error}"
        self._end_all(unavailable(f"the engine has failed: {self.failure}", "engine_failed"))

    def _watch_step(self) -> None:
        """Check for a stuck engine when the current step would exceed the limit."""
        if self._stuck_timer is None:
            left = max(self.settings.stuck_seconds - self._thread.busy_seconds(), 0.01)
            self._stuck_timer = self._loop.call_later(left, self._check_stuck)

    def _check_stuck(self) -> None:
        self._stuck_timer = None
        if stuck := self.stuck:
            self._end_all(unavailable(f"{stuck}: this request was ended", "engine_stuck"))
        elif self._live or self._replies:
            self._watch_step()

    def _end_all(self, error: ApiError) -> None:
        for reply in self._replies:
            if not reply.done():
                reply.set_exception(error)
        for stream in self._live:
            stream.fail(error)
        self.window.wake()
