"""The asyncio side of the engine thread: admission, live requests, controls, drain.

    handler --encode--> tokenizer thread --post--> engine thread --one report per step--> here

Prompts are tokenized on a thread of their own, one for all requests: the event loop stays free for
the streams that run (a long prompt takes milliseconds), the engine thread stays free for steps, and
because it is one thread, requests reach the queue in the order in which they were asked. The
`tokenizers` library lets go of the GIL while it works.
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
from server.core.engine_thread import EngineThread
from server.core.garbage import IdleGarbageCollector
from server.core.pacing import Pace
from server.core.report import Report
from server.core.request_stream import (
    GenerationRequest,
    Prompt,
    RequestContext,
    RequestStream,
)
from server.core.settings import ServerSettings
from server.core.watchdog import Watchdog
from server.core.window import Outbox, Window
from server.http.errors import ApiError, bad_request, unavailable

logger = logging.getLogger(__name__)


class Bridge:
    """Everything the routes know of the engine. Lives on the event loop.

    `engine` must have been made with `outbox` as its log; from `start` on only its own thread
    touches it, except for what never changes (tokenizer, configuration, clock).

    window          the log's window and the folded state
    paused          whether somebody holds the engine
    draining        the server is about to stop and takes no more requests
    failure         what ended the engine thread, or ""
    stopped         set when the end has come, also for viewers
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
        self._reports: deque[Report] = deque()  # handed over, and not taken in yet
        self._pace = Pace(self._take_in)
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
        # Let in, but not in the engine's queue yet, with their tokens once these are counted.
        self._pending: dict[RequestStream, int] = {}
        self._asked: set[asyncio.Future[Any]] = set()
        self._peace = IdleGarbageCollector()
        self._watchdog = Watchdog(
            self._thread.busy_seconds,
            settings.stuck_seconds,
            awaited=lambda: bool(self._live or self._asked),
            bark=self._give_up,
        )
        self.stopped = asyncio.Event()
        started = outbox.take()
        self._record(started)
        self.window.extend(started)

    # Life

    def start(self) -> None:
        """Start the engine thread; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def drain(self) -> None:
        """Take no more requests and let those that are in finish, within the limit.

        A held engine is let go: what was accepted is served.
        """
        self.draining = True
        self.window.wake()
        if not self.failure:
            self._thread.post(self._engine.resume)
        try:
            async with asyncio.timeout(self.settings.drain_seconds):
                await self._peace.wait()
        except TimeoutError:
            message = "the server stopped before this request finished"
            self._end_all(unavailable(message, "shutdown"))

    async def stop(self) -> bool:
        """End the engine thread after its step, and every feed; False if the step did not end."""
        self.stopped.set()
        self._watchdog.close()
        self._peace.ends()
        ended = await asyncio.to_thread(self._thread.stop, patience=2.0)
        self._tokenizing.shutdown(wait=False, cancel_futures=True)
        return ended

    @property
    def pending_submit(self) -> int:
        """Requests that were let in and are not in the engine's queue yet."""
        return len(self._pending)

    @property
    def stuck(self) -> str:
        """In words, that the engine hangs; empty if it does not."""
        return self._watchdog.stuck

    @property
    def not_ready(self) -> str:
        """Why no request should be sent here now; empty if the server is ready."""
        if self.failure:
            return f"the engine has failed: {self.failure}"
        if self.draining:
            return "the server is shutting down"
        return self.stuck

    # Requests

    @asynccontextmanager
    async def generate(
        self, order: GenerationRequest, context: RequestContext | None = None
    ) -> AsyncIterator[RequestStream]:
        """Queue a request; what leaves the block, in whatever way, is aborted and gives all back.

        Entering the block means that the engine has the request in its queue. Raises ApiError for
        one that cannot be taken.
        """
        self._check_alive()
        if self.draining:
            raise unavailable("the server is shutting down", "shutdown")
        self._admission.check_requests(self.pending_submit)
        generation = RequestStream(
            self._engine.clock.now(), self.settings.buffer_bytes, self._release, order.label
        )
        self._live.add(generation)
        self._peace.ends()
        self._watchdog.watch()
        try:
            await self._submit(generation, order)
            yield generation
        finally:
            generation.close()
            if context is not None:
                context.on_end(generation)
            self._live.discard(generation)
            if not self._live:
                self._peace.begins()

    def _check_alive(self) -> None:
        """Raise ApiError while the engine can do nothing."""
        if self.failure:
            raise unavailable(f"the engine has failed: {self.failure}", "engine_failed")
        if stuck := self.stuck:
            raise unavailable(f"{stuck}: it takes nothing until that ends", "engine_stuck")

    def _release(self, generation: RequestStream) -> None:
        self._thread.post(lambda: self._thread.release(generation))

    async def _submit(self, generation: RequestStream, order: GenerationRequest) -> None:
        self._pending[generation] = 0
        reply = None
        try:
            prompts = await self._loop.run_in_executor(self._tokenizing, self._prepare, order)
            self._check_alive()
            self._admission.check_tokens(prompts, sum(self._pending.values()))
            self._pending[generation] = tokens_of(prompts)
            reply = self._ask()
            self._thread.post(
                lambda: self._thread.submit(
                    generation, prompts, label=order.label, priority=order.priority, reply=reply
                )
            )
            await reply
            if generation.failure and not generation.request_ids:  # ended on its way to the queue
                raise generation.failure
        except RequestError as error:
            field = order.fields.get(error.field, error.field)
            raise bad_request(field, field + str(error).removeprefix(error.field)) from error
        except (TokenizerError, ChatTemplateError) as error:
            raise bad_request(order.fields.get("prompt", "prompt"), str(error)) from error
        finally:
            self._pending.pop(generation, None)
            self._asked -= {reply}

    def _prepare(self, order: GenerationRequest) -> list[Prompt]:
        prompts = order.encode(self)
        for prompt in prompts:
            self._engine.validate(prompt.tokens, prompt.params, order.priority)
        return prompts

    # The teacher's controls

    async def pause(self) -> int:
        """Hold the engine after its step; returns the number of that step."""
        return await self._command(self._thread.pause)

    async def resume(self) -> int:
        """Let the engine go on; returns the number of the last step."""
        return await self._command(self._thread.resume)

    async def step(self, steps: int) -> int:
        """Let a held engine do up to `steps` steps; returns the last one's number once it ran."""
        return await self._command(lambda reply: self._thread.step(steps, reply))

    async def _command(self, command: Callable[[asyncio.Future[Any]], None]) -> int:
        self._check_alive()
        reply = self._ask()
        self._watchdog.watch()
        try:
            # What was told meanwhile that the engine hangs is not done later, behind everybody's back.
            self._thread.post(lambda: None if reply.done() else command(reply))
            return int(await reply)
        finally:
            self._asked.discard(reply)

    def _ask(self) -> asyncio.Future[Any]:
        """A future for an answer of the engine thread; it fails if that thread does."""
        reply = self._loop.create_future()
        self._asked.add(reply)
        return reply

    def between_steps(self, change: Callable[[Engine], None]) -> None:
        """Have the engine thread call `change` after the step that is running; asks for no answer."""
        self._thread.post(lambda: change(self._engine))

    # What the engine thread says

    def _deliver(self, report: Report) -> None:
        """Called on the engine thread. The loop is woken only if it will not look soon by itself."""
        self._reports.append(report)
        if report.urgent or not self._pace.resting:
            self._on_loop(self._take_in)

    def _on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():  # closed: the process is on its way out, nobody listens
                raise

    def _take_in(self) -> None:
        try:
            while self._reports:
                self._spread(self._reports.popleft())
        except Exception as error:  # a mistake of ours: whoever waits must hear of it
            self._fail(error)

    def _spread(self, report: Report) -> None:
        self._admission.note(report.events)
        self.window.extend(report.events)
        self.paused = report.paused
        for generation, prompts, ids in report.queued:
            generation.queued(prompts, ids)
            self._pending.pop(generation, None)  # now it is counted among the waiting
        for reply, answer in report.replies:
            if reply.done():
                continue
            if isinstance(answer, Exception):
                reply.set_exception(answer)
            else:
                reply.set_result(answer)
        for generation, prompt, tokens in report.cached:
            generation.cached_tokens[prompt] = tokens
        for generation, gain in report.gains:
            generation.put(gain)
        self._pace.note(generation for generation, _ in report.gains)

    def _fail(self, error: Exception) -> None:
        """The loop itself is broken: say so to everybody who waits, and to whoever asks later."""
        logger.error("the engine has failed", exc_info=error)
        self.failure = f"{type(error).__name__}: {error}"
        self._end_all(unavailable(f"the engine has failed: {self.failure}", "engine_failed"))

    def _give_up(self, stuck: str) -> None:
        self._end_all(unavailable(f"{stuck}: nobody waits for it any longer", "engine_stuck"))

    def _end_all(self, error: ApiError) -> None:
        for reply in self._asked:
            if not reply.done():
                reply.set_exception(error)
        for generation in self._live:
            generation.fail(error)
        self.window.wake()
