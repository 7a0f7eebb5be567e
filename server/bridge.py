"""The asyncio side of the engine thread: admission, live requests, controls, drain.

    handler --prepare--> tokenizer thread --post--> engine thread --one report per step--> here

Prompts are tokenized on a thread of their own, one for all requests: the event loop stays free for
the streams that run (a long prompt takes milliseconds), the engine thread stays free for steps, and
because it is one thread, requests reach the queue in the order in which they were asked. The
`tokenizers` library lets go of the GIL while it works.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from engine.engine import Engine
from engine.events.vocabulary import Event
from engine.scheduling.admission import RequestError
from engine.text.chat_template import ChatTemplateError
from engine.text.tokenizer import TokenizerError
from server.engine_thread import EngineThread, Report
from server.errors import ApiError, bad_request, unavailable
from server.generation import Generation, Order
from server.request_log import account
from server.settings import ServerSettings
from server.window import Outbox, Window


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
        self.paused = engine.paused
        self.draining = False
        self.failure = ""
        self._engine = engine
        self._record = record or (lambda _events: None)
        self._thread = EngineThread(
            engine,
            outbox,
            deliver=lambda report: self._on_loop(self._receive, report),
            record=self._record,
            failed=lambda error: self._on_loop(self._fail, error),
        )
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")
        self._live: set[Generation] = set()
        self._pending: set[Generation] = set()  # let in, but not in the engine's queue yet
        self._asked: set[asyncio.Future[Any]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
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
                await self._idle.wait()
        except TimeoutError:
            stopped = unavailable("the server stopped before this request finished", "shutdown")
            for generation in self._live:
                generation.fail(stopped)

    async def stop(self) -> None:
        """End the engine thread after its step, and every feed. Handlers go on meanwhile."""
        self.stopped.set()
        await asyncio.to_thread(self._thread.stop, patience=2.0)
        self._tokenizing.shutdown(wait=False, cancel_futures=True)

    @property
    def idle(self) -> bool:
        """Whether no request is in, in whatever state."""
        return not self._live

    @property
    def pending_submit(self) -> int:
        """Requests that were let in and are not in the engine's queue yet."""
        return len(self._pending)

    @property
    def not_ready(self) -> str:
        """Why no request should be sent here now; empty if the server is ready."""
        if self.failure:
            return f"the engine has failed: {self.failure}"
        if self.draining:
            return "the server is shutting down"
        seconds = self._thread.seconds_in_step()
        if seconds > self.settings.stuck_seconds:
            return f"the engine has been in one step for {seconds:.0f} s"
        return ""

    # Requests

    @asynccontextmanager
    async def generate(self, order: Order) -> AsyncIterator[Generation]:
        """Queue a request; what leaves the block, in whatever way, is aborted and gives all back.

        Entering the block means that the engine has the request in its queue. Raises ApiError for
        one that cannot be taken.
        """
        self._admit()
        generation = Generation(self._engine.clock.now(), self.settings.buffer_bytes, self._release)
        self._live.add(generation)
        self._idle.clear()
        try:
            await self._submit(generation, order)
            yield generation
        finally:
            generation.close()
            account(generation, order.label)
            self._live.discard(generation)
            if not self._live:
                self._idle.set()

    def _admit(self) -> None:
        """Raise ApiError unless there is room for one more. Before tokenizing, which costs."""
        if self.failure:
            raise unavailable(f"the engine has failed: {self.failure}", "engine_failed")
        if self.draining:
            raise unavailable("the server is shutting down", "shutdown")
        waiting = len(self.window.state.waiting) + self.pending_submit
        if waiting >= self.settings.max_waiting:
            raise ApiError(
                429,
                f"{waiting} requests wait already, the limit is {self.settings.max_waiting}: "
                "try again in a second",
                type="rate_limit_error",
                code="queue_full",
                headers={"Retry-After": "1"},
            )

    def _release(self, generation: Generation) -> None:
        self._thread.post(lambda: self._thread.release(generation))

    async def _submit(self, generation: Generation, order: Order) -> None:
        reply = self._ask()

        def work() -> None:
            prompts = order.prepare()
            for prompt in prompts:
                self._engine.validate(prompt.tokens, prompt.params, order.priority)
            self._thread.post(
                lambda: self._thread.submit(
                    generation, prompts, label=order.label, priority=order.priority, reply=reply
                )
            )

        self._pending.add(generation)
        try:
            await self._loop.run_in_executor(self._tokenizing, work)
            await reply
        except RequestError as error:
            field = order.fields.get(error.field, error.field)
            raise bad_request(field, field + str(error).removeprefix(error.field)) from error
        except (TokenizerError, ChatTemplateError) as error:
            raise bad_request(order.fields.get("prompt", "prompt"), str(error)) from error
        finally:
            self._pending.discard(generation)
            self._asked.discard(reply)

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
        if self.failure:
            raise unavailable(f"the engine has failed: {self.failure}", "engine_failed")
        reply = self._ask()
        try:
            self._thread.post(lambda: command(reply))
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

    def _on_loop(self, function: Callable[[Any], None], argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:
            if not self._loop.is_closed():  # closed: the process is on its way out, nobody listens
                raise

    def _receive(self, report: Report) -> None:
        self.window.extend(report.events)
        self.paused = report.paused
        for generation, prompts, ids in report.queued:
            generation.queued(prompts, ids)
            self._pending.discard(generation)  # now it is counted among the waiting
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

    def _fail(self, error: Exception) -> None:
        """The loop itself is broken: say so to everybody who waits, and to whoever asks later."""
        self.failure = f"{type(error).__name__}: {error}"
        self.window.wake()
        failed = unavailable(f"the engine has failed: {self.failure}", "engine_failed")
        for reply in self._asked:
            if not reply.done():
                reply.set_exception(failed)
        for generation in self._live:
            generation.fail(failed)
