"""The asyncio side of the engine thread: admission, live requests, controls, drain.

    handler --encode--> tokenizer thread --post--> engine thread --one report per step--> here

A separate thread tokenizes all prompts. A long prompt takes milliseconds, which would hold up the event
loop's streams and the engine thread's steps. It is a single thread, so requests reach the queue in the
order in which they arrived. The `tokenizers` library releases the GIL while it works. Only a request
with a grammar may be overtaken, because a process of its own tries the grammar first
(`grammar_worker.py`).

If a forward pass hangs, Python cannot interrupt its thread, so the step itself keeps running. The
bridge fails the requests and commands that wait for it and accepts no new ones until the step returns.
It then drops the late results, frees their memory and resumes service. vLLM leaves this to the program
that monitors `/health`. SGLang's `watchdog_thread` (`sglang/srt/managers/scheduler.py`) kills the
process and relies on an orchestrator to restart it, which a classroom does not have.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from engine.core.sampling_params import StructuredOutput
from engine.core.scheduling.admission import RequestError
from engine.extensions.grammars.grammar_error import GrammarError
from server.core.admission import Admission, as_api_errors
from server.core.classroom import Classroom
from server.core.commands import (
    AddAdapter,
    Answer,
    AnyCommand,
    Prompt,
    Release,
    RemoveAdapter,
    Report,
    Resume,
    Submit,
    numbers,
)
from server.core.engine_client import EngineClient
from server.core.event_log import PreviousRun, Window
from server.core.grammar_worker import Client, GrammarWorker, GrammarWorkerError
from server.core.request_stream import (
    MAX_DELTAS,
    GenerationRequest,
    RequestContext,
    RequestStream,
    StreamPacer,
)
from server.core.run_until import Refusal
from server.core.settings import ServerSettings
from server.http.continued import CONTINUED, Continued
from server.http.errors import ApiError, bad_request, unavailable

logger = logging.getLogger(__name__)

# The garbage collector runs this long after the last request has ended.
COLLECT_AFTER_SECONDS = 0.1
# Reports to process before the handlers get a turn: as many as a handler takes at once. If an event
# loop that got no CPU for a while processed all of them, it would cut off readers that could not read.
MAX_REPORTS = MAX_DELTAS


class Bridge:
    """The routes' view of one engine. Lives on the event loop.

    client          the engine, in this process or in another
    window          the log's window and the folded state
    paused          whether the engine is paused
    until           what the paused engine runs until, or ""
    trace_error     why the trace file is no longer written, or ""
    commands        where commands go: the client, or the classroom while it holds requests back
    classroom       the teacher's controls
    adapters        the LoRA adapters that requests can name
    live            the streams of requests that have not ended, by number
    draining        the server is about to stop and accepts no more requests
    retired         the engine is being replaced by a restarted one
    successor       the bridge of the restarted engine
    previous        the run before the restart that made this engine, or None
    failure         the error that ended the engine thread or its process, or ""
    died            whether the engine's process has ended by itself
    on_died         called when it has
    grammars        tries the requests' grammars
    stopped         whether the engine thread was asked to stop for good; viewers leave then
    """

    def __init__(
        self,
        client: EngineClient,
        settings: ServerSettings,
        *,
        previous: PreviousRun | None = None,
    ) -> None:
        self.client = client
        self.tokenizer = client.tokenizer
        self.config = client.config
        self.max_context = client.max_context
        self.settings = settings
        self.window = Window(settings.log_window)
        self._admission = Admission(settings, self.window.state, self.window.measures)
        self._reports: deque[Report] = deque()  # delivered, but not processed yet
        self._processing = False  # whether the loop is about to process them
        self._pacer = StreamPacer(on_rested=self._process_reports)
        self.paused = client.paused
        self.until = ""
        self.trace_error = ""
        self.commands: EngineClient | Classroom = client
        self.classroom = Classroom(self)
        self.draining = False
        self.retired = False
        self.successor: Bridge | None = None
        self.previous = previous
        self.failure = ""
        self.died = False
        self.on_died: Callable[[], None] = lambda: None
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")
        self.grammars = GrammarWorker(self.tokenizer)
        self.adapters = {one.name: one for one in client.adapters}
        self.live: dict[int, RequestStream] = {}
        # Admitted, but not in the engine's queue yet. The values are token counts, 0 until known.
        self._pending: dict[RequestStream, int] = {}
        self._prompts: dict[int, list[Prompt]] = {}  # of pending streams, by number
        self._replies: dict[int, asyncio.Future[Any]] = {}  # by number, not answered yet
        self._idle = asyncio.Event()  # set while no request is live
        self._idle.set()
        self._collection: asyncio.TimerHandle | None = None
        self._stuck_timer: asyncio.TimerHandle | None = None
        self.stopped = False
        self.window.extend(client.started)

    # Start and stop

    def start(self) -> None:
        """Start the engine thread; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self.client.start(
            self._deliver, lambda reason, died: self._on_loop(self._fail, reason, died)
        )

    async def drain(self) -> None:
        """Accept no more requests and let live ones finish within the limit.

        A paused engine is resumed, so that accepted requests are served.
        """
        self.draining = True
        self.window.wake()
        if not self.failure:
            self.client.post(Resume(0), *self.classroom.take())
        try:
            async with asyncio.timeout(self.settings.drain_seconds):
                await self._idle.wait()
        except TimeoutError:
            message = "the server stopped before this request finished"
            self._end_all(unavailable(message, "shutdown"))

    async def stop(self) -> bool:
        """End the engine thread after its step, and every feed; return False if it did not end."""
        self.stopped = True
        self.window.wake()
        return await self._stop_thread(2.0) or self.client.kill()

    async def retire(self) -> bool:
        """End all requests and the engine thread, so that its model can serve another run.

        Feeds go on: they wait for `successor`. Returns False if a step did not end in time.
        """
        self.retired = True
        error = unavailable("the engine was restarted: send the request again", "engine_restarted")
        self._end_all(error)
        if not self.failure and not self.stuck:
            with suppress(ApiError):  # it gets stuck now
                await self._answer(Answer(0))  # after the aborts: the log has them
        ended = await self._stop_thread(self.settings.stuck_seconds)
        self._end_all(error)
        if not ended:
            self.failure = "its step did not end, so it cannot be restarted yet"
            return False
        while self._reports:
            self._process_reports()
        return True

    async def _stop_thread(self, timeout: float) -> bool:
        for timer in (self._stuck_timer, self._collection):
            if timer is not None:
                timer.cancel()
        ended = await self.client.stop(timeout)
        self._tokenizing.shutdown(wait=False, cancel_futures=True)
        self.grammars.close()
        return ended

    async def settle(self) -> None:
        """Wait until the engine has run every command, such as the release of ended requests."""
        if not self.failure:
            await self._answer(Answer(0))

    @property
    def unfinished(self) -> int:
        """The number of requests that clients or the engine are not done with."""
        return max(len(self.live), len(self.window.state.requests))

    @property
    def pending_submit(self) -> int:
        """The number of requests that are admitted but not in the engine's queue yet."""
        return len(self._pending)

    @property
    def stuck(self) -> str:
        """A message if the engine is stuck; empty if it is not."""
        seconds = self.client.busy_seconds()
        if seconds <= self.settings.stuck_seconds:
            return ""
        return f"the engine has been in one step for {seconds:.0f} s"

    @property
    def not_ready(self) -> str:
        """The reason why the server accepts no requests now; empty if it is ready."""
        if self.failure:
            return self.failed().error["message"] or ""
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
        self._check_accepting()
        self._admission.check_requests(len(self._pending))
        stream = RequestStream(
            self.client.now(),
            self.settings.buffer_bytes,
            release=lambda: self.client.post(Release(0, stream.number, stream.kept)),
            label=request.label,
            on_kept=request.on_kept,
            fields=request.fields,
            continued=request.continued,
        )
        self.live[stream.number] = stream
        self._idle.clear()
        if self._collection is not None:
            self._collection.cancel()
        adapter = request.model if request.model in self.adapters else ""
        try:
            await self._submit(stream, request, context, adapter)
            yield stream
        finally:
            stream.close()
            if context is not None:
                context.on_end(stream)
            del self.live[stream.number]
            if not self.live:
                self._idle.set()
                self._collection = self._loop.call_later(COLLECT_AFTER_SECONDS, self.client.collect)

    def _check_accepting(self) -> None:
        """Raise ApiError while no requests are accepted."""
        self.check_commandable()
        if self.draining:
            raise unavailable("the server is shutting down", "shutdown")

    def check_commandable(self) -> None:
        """Raise ApiError while the engine takes no commands."""
        self.check_alive()
        if self.retired:
            raise unavailable("the engine is being restarted", "restarting")

    def check_alive(self) -> None:
        """Raise ApiError while the engine cannot work."""
        if self.failure:
            raise self.failed()
        if stuck := self.stuck:
            raise unavailable(f"{stuck}: no requests are accepted until it ends", "engine_stuck")

    async def encode(
        self, request: GenerationRequest, context: RequestContext | None = None
    ) -> list[Prompt]:
        """Return a request's prompts as token ids, after all checks; nothing is submitted.

        Raises ApiError for a request that cannot be accepted.
        """
        self._check_accepting()
        client = (context.address if context is not None else "", request.label)
        with as_api_errors(request.fields):
            try:
                prompts = await self._loop.run_in_executor(self._tokenizing, self._encode, request)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # The tokenizer's queue was cleared, because the engine is gone.
                raise unavailable("the engine was restarted", "engine_restarted") from None
            for structured in dict.fromkeys(prompt.params.structured for prompt in prompts):
                if structured is not None:
                    await self._try_grammar(structured, client)
        return prompts

    async def _try_grammar(self, structured: StructuredOutput, client: Client) -> None:
        try:
            await self.grammars.check(structured, client)
        except GrammarError as error:
            raise RequestError("structured", str(error)) from error
        except GrammarWorkerError as error:
            message = f"{error}: send the request again"
            raise unavailable(message, "grammar_worker_failed") from error

    def _encode(self, request: GenerationRequest) -> list[Prompt]:
        """Tokenize and validate the prompts; called on the tokenizer thread."""
        prompts = request.encode(self)
        for prompt in prompts:
            self.client.validate(prompt.tokens, prompt.params, request.priority)
        return prompts

    async def _submit(
        self,
        stream: RequestStream,
        request: GenerationRequest,
        context: RequestContext | None,
        adapter: str,
    ) -> None:
        self._pending[stream] = 0
        try:
            prompts = await self.encode(request, context)
            if request.continued is not None:
                self._add_outputs(prompts, request.continued)
            if stream.failure:  # the server stopped meanwhile
                raise stream.failure
            pending = sum(self._pending.values())
            self._pending[stream] = self._admission.check_tokens(prompts, pending)
            self._prompts[stream.number] = prompts
            submit = Submit(
                0,
                stream.number,
                prompts,
                request.label,
                request.priority,
                stream.submitted_at,
                adapter,
                request.cache_salt,
            )
            await self.ask(submit)
        finally:
            self._pending.pop(stream, None)
            self._prompts.pop(stream.number, None)

    def _add_outputs(self, prompts: list[Prompt], continued: Continued) -> None:
        """Add the tokens that another server generated. Raises ApiError if they cannot be its own."""
        first, outputs = 0, continued.outputs
        for prompt in prompts:
            params = prompt.params
            numbers_of = range(first, first + params.samples)
            prompt.outputs = [outputs.pop(choice, []) for choice in numbers_of]
            first += params.samples
            ids = {token for output in prompt.outputs for token in output}
            is_known = not ids or (min(ids) >= 0 and max(ids) < self.tokenizer.vocab_size)
            if not is_known or max(map(len, prompt.outputs)) > params.max_tokens:
                raise bad_request(
                    CONTINUED, f"{CONTINUED}: the tokens are not those of this request"
                )
        if outputs:
            raise bad_request(CONTINUED, f"{CONTINUED}: there is no choice {min(outputs)}")

    # Commands

    async def ask(self, command: AnyCommand, *before: AnyCommand) -> Any:
        """Run a command on the engine thread and return its reply; fail if that thread does.

        before  commands that run before it, without a step between them
        """
        self.check_commandable()
        return await self._answer(command, *before)

    async def _answer(self, command: AnyCommand, *before: AnyCommand) -> Any:
        self._watch_step()
        number, reply = next(numbers), self._loop.create_future()
        self._replies[number] = reply
        try:
            self.commands.post(*before, msgspec.structs.replace(command, reply=number))
            return await reply
        finally:
            # A command that was already answered with "stuck", or whose client has left, must not run.
            if self._replies.pop(number, None) is not None:
                self.commands.cancel(number)

    async def load_adapter(self, name: str, path: str) -> None:
        """Load a LoRA adapter, in place of one with this name. Raises ApiError if it cannot be used."""
        self.adapters[name] = await self.ask(AddAdapter(0, name, path))

    async def unload_adapter(self, name: str) -> None:
        """Unload an adapter. Requests that use it keep it until they end."""
        await self.ask(RemoveAdapter(0, name))
        del self.adapters[name]

    # Reports of the engine thread

    def _deliver(self, report: Report) -> None:
        """Queue a report; called on the engine thread.

        Wakes the event loop unless the loop will process reports soon anyway.
        """
        self._reports.append(report)
        if (report.urgent or not self._pacer.resting) and not self._processing:
            self._processing = True
            self._on_loop(self._process_reports)

    def _on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():  # closed: the process is ending
                raise

    def _process_reports(self) -> None:
        self._processing = False  # reset first: a report that comes from now on is processed, too
        try:
            for _ in range(min(len(self._reports), MAX_REPORTS)):
                self._process(self._reports.popleft())
        except Exception as error:  # a bug in the server: fail everything that waits
            logger.error("the bridge has failed", exc_info=error)
            self._fail(f"{type(error).__name__}: {error}")
        if self._reports and not self._processing:
            self._processing = True
            self._loop.call_soon(self._process_reports)

    def _process(self, report: Report) -> None:
        """Pass a report on; streams and replies that nothing waits for any more are left out."""
        live = self.live
        self.paused, self.until = report.paused, report.until
        self.trace_error = report.trace_error
        self.window.extend(report.events)  # wakes the viewers
        for number, ids, earlier in report.queued:
            stream, prompts = live.get(number), self._prompts.pop(number, None)
            if stream is not None and prompts is not None:
                stream.queued(prompts, ids, earlier)
                self._pending.pop(stream, None)  # from now on it counts as waiting
        for number, result in report.replies:
            reply = self._replies.pop(number, None)
            if reply is None or reply.done():
                continue
            if isinstance(result, Refusal):
                status, message = result.status, result.message
                reply.set_exception(ApiError(status, message, param=result.param, code=result.code))
            else:
                reply.set_result(result)
        for number, prompt, tokens in report.cached:
            if (stream := live.get(number)) is not None:
                # Another server may have generated more of what is cached.
                stream.cached_tokens[prompt] = min(tokens, len(stream.prompts[prompt].tokens))
        for number, kept in report.kept:
            if (stream := live.get(number)) is not None:
                stream.keep(kept)
        woken = []
        for number, delta in report.deltas:
            if (stream := live.get(number)) is not None:
                stream.put(delta)
                woken.append(stream)
        self._pacer.add(woken)

    def _fail(self, reason: str, died: bool = False) -> None:
        """End all requests and commands because the engine thread or its process has ended."""
        self.failure, self.died = reason, died
        self._end_all(self.failed())
        if self.died:
            self.on_died()

    def failed(self) -> ApiError:
        """Return the error of requests and commands to an engine that has failed."""
        if self.died:
            return unavailable(
                f"{self.failure}, and is started again: try again soon", "engine_died"
            )
        return unavailable(f"the engine has failed: {self.failure}", "engine_failed")

    def _watch_step(self) -> None:
        """Check for a stuck engine when the current step would exceed the limit."""
        if self._stuck_timer is None:
            left = max(self.settings.stuck_seconds - self.client.busy_seconds(), 0.01)
            self._stuck_timer = self._loop.call_later(left, self._check_stuck)

    def _check_stuck(self) -> None:
        self._stuck_timer = None
        if stuck := self.stuck:
            self._end_all(unavailable(f"{stuck}: this request was ended", "engine_stuck"))
        elif self.live or self._replies:
            self._watch_step()

    def _end_all(self, error: ApiError) -> None:
        replies, self._replies = self._replies, {}
        for number, reply in replies.items():
            self.commands.cancel(number)
            if not reply.done():
                reply.set_exception(error)
        for stream in list(self.live.values()):
            stream.fail(error)
        self.window.wake()
