"""The asyncio side of the engine thread: admission, live requests, controls, drain.

    handler --encode--> tokenizer thread --post--> engine thread --one report per step--> here

A separate thread tokenizes all prompts. A long prompt takes milliseconds, which would hold up the event
loop's streams and the engine thread's steps. It is a single thread, so requests reach the queue in the
order in which they arrived. The `tokenizers` library releases the GIL while it works.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from engine.engine import Engine
from engine.events.vocabulary import Event
from engine.scheduling.admission import RequestError
from engine.text.chat_template import ChatTemplateError
from engine.text.tokenizer import TokenizerError
from server.core.admission import Admission, tokens_of
from server.core.engine_thread import EngineThread, Report
from server.core.event_log import Outbox, Window
from server.core.garbage import IdleGarbageCollector
from server.core.pacing import StreamPacer
from server.core.request_stream import GenerationRequest, Prompt, RequestContext, RequestStream
from server.core.settings import ServerSettings
from server.core.watchdog import Watchdog
from server.http.errors import ApiError, bad_request, unavailable

logger = logging.getLogger(__name__)


class Bridge:
    """The routes' view of one engine. Lives on the event loop.

    `engine` must have been created with `outbox` as its log. After `start`, only its own thread touches
    it, except for what never changes (tokenizer, configuration, clock).

    window          the log's window and the folded state
    paused          whether the engine is paused
    draining        the server is about to stop and accepts no more requests
    failure         the error that ended the engine thread, or ""
    stopped         set when the engine thread is asked to stop; viewers wait for it too
    """

    def __init__(
        self,
        engine: Engine,
        outbox: Outbox,
        settings: ServerSettings,
        record: Callable[[list[Event]], None] | None = None,
    ) -> None:
        self.tokenizer = engine.tokenizer
        self.config = engine.config
        self.max_context = engine.runner.max_context
        self.settings = settings
        self.window = Window(settings.log_window)
        self._admission = Admission(settings, self.window.state)
        self._reports: deque[Report] = deque()  # delivered, but not processed yet
        self._pacer = StreamPacer(on_rested=self._process_reports)
        self.paused = engine.paused
        self.draining = False
        self.failure = ""
        self._engine = engine
        self._record = record or (lambda _events: None)
        self._thread = EngineThread(
            engine,
            outbox,
            deliver=self._deliver,
            record=self._record,
            failed=lambda error: self._on_loop(self._fail, error),
        )
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")
        self._live: set[RequestStream] = set()
        # Admitted, but not in the engine's queue yet. The values are token counts, 0 until known.
        self._pending: dict[RequestStream, int] = {}
        self._replies: set[asyncio.Future[Any]] = set()  # the engine thread settles them
        self._garbage_collector = IdleGarbageCollector()
        self._watchdog = Watchdog(
            self._thread.busy_seconds,
            settings.stuck_seconds,
            has_waiters=lambda: bool(self._live or self._replies),
            on_stuck=self._on_stuck,
        )
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
        try:
            async with asyncio.timeout(self.settings.drain_seconds):
                await self._garbage_collector.wait_idle()
        except TimeoutError:
            message = "the server stopped before this request finished"
            self._end_all(unavailable(message, "shutdown"))

    async def stop(self) -> bool:
        """End the engine thread after its step, and every feed; return False if it did not end."""
        self.stopped.set()
        self._watchdog.close()
        self._garbage_collector.on_busy()
        ended = await asyncio.to_thread(self._thread.stop, timeout=2.0)
        self._tokenizing.shutdown(wait=False, cancel_futures=True)
        return ended

    @property
    def pending_submit(self) -> int:
        """The number of requests that are admitted but not in the engine's queue yet."""
        return len(self._pending)

    @property
    def stuck(self) -> str:
        """A message if the engine is stuck; empty if it is not."""
        return self._watchdog.stuck

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
        self._admission.check_requests(self.pending_submit)
        stream = RequestStream(
            self._engine.clock.now(),
            self.settings.buffer_bytes,
            release=lambda: self._thread.post(lambda: self._thread.release(stream)),
            label=request.label,
        )
        self._live.add(stream)
        self._garbage_collector.on_busy()
        self._watchdog.watch()
        try:
            await self._submit(stream, request)
            yield stream
        finally:
            stream.close()
            if context is not None:
                context.on_end(stream)
            self._live.discard(stream)
            if not self._live:
                self._garbage_collector.on_idle()

    def _check_alive(self) -> None:
        """Raise ApiError while the engine cannot work."""
        if self.failure:
            raise unavailable(f"the engine has failed: {self.failure}", "engine_failed")
        if stuck := self.stuck:
            raise unavailable(f"{stuck}: no requests are accepted until it ends", "engine_stuck")

    async def _submit(self, stream: RequestStream, request: GenerationRequest) -> None:
        self._pending[stream] = 0
        reply = None
        try:
            prompts = await self._loop.run_in_executor(self._tokenizing, self._encode, request)
            self._check_alive()
            self._admission.check_tokens(prompts, sum(self._pending.values()))
            self._pending[stream] = tokens_of(prompts)
            reply = self._new_reply()
            self._thread.post(
                lambda: self._thread.submit(
                    stream, prompts, label=request.label, priority=request.priority, reply=reply
                )
            )
            await reply
            if stream.failure and not stream.request_ids:  # ended on its way to the queue
                raise stream.failure
        except RequestError as error:
            field = request.fields.get(error.field, error.field)
            raise bad_request(field, field + str(error).removeprefix(error.field)) from error
        except (TokenizerError, ChatTemplateError) as error:
            raise bad_request(request.fields.get("prompt", "prompt"), str(error)) from error
        finally:
            self._pending.pop(stream, None)
            self._replies -= {reply}

    def _encode(self, request: GenerationRequest) -> list[Prompt]:
        """Tokenize and validate the prompts; called on the tokenizer thread."""
        prompts = request.encode(self)
        for prompt in prompts:
            self._engine.validate(prompt.tokens, prompt.params, request.priority)
        return prompts

    # The teacher's controls

    async def pause(self) -> int:
        """Pause the engine after its step; return the number of that step."""
        return await self._command(self._thread.pause)

    async def resume(self) -> int:
        """Resume the engine; return the number of the last step."""
        return await self._command(self._thread.resume)

    async def step(self, steps: int) -> int:
        """Run up to `steps` steps of a paused engine; return the number of the last one."""
        return await self._command(lambda reply: self._thread.step(steps, reply))

    async def _command(self, command: Callable[[asyncio.Future[Any]], None]) -> int:
        self._check_alive()
        reply = self._new_reply()
        self._watchdog.watch()
        try:
            # A command that was already answered with "stuck" must not run later.
            self._thread.post(lambda: None if reply.done() else command(reply))
            return int(await reply)
        finally:
            self._replies.discard(reply)

    def _new_reply(self) -> asyncio.Future[Any]:
        """Return a future that the engine thread settles; it fails if that thread does."""
        reply = self._loop.create_future()
        self._replies.add(reply)
        return reply

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
                self._process(self._reports.popleft())
        except Exception as error:  # a bug in the server: fail everything that waits
            self._fail(error)

    def _process(self, report: Report) -> None:
        self._admission.observe(report.events)
        self.window.extend(report.events)
        self.paused = report.paused
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

    def _fail(self, error: Exception) -> None:
        """End all requests and commands because the engine thread has failed."""
        logger.error("the engine has failed", exc_info=error)
        self.failure = f"{type(error).__name__}: {error}"
        self._end_all(unavailable(f"the engine has failed: {self.failure}", "engine_failed"))

    def _on_stuck(self, message: str) -> None:
        self._end_all(unavailable(f"{message}: this request was ended", "engine_stuck"))

    def _end_all(self, error: ApiError) -> None:
        for reply in self._replies:
            if not reply.done():
                reply.set_exception(error)
        for stream in self._live:
            stream.fail(error)
        self.window.wake()
