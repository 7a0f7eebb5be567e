"""An engine as the bridge sees it, wherever it runs, and an engine that runs in this process.

    InProcessClient   the engine thread shares this process, and its GIL, with the event loop
    ProcessClient     the same class runs in a process of its own (`engine_process.py`)

Both have the same engine thread, take the same commands and deliver the same reports.

Source: vLLM's `EngineCoreClient`, `InprocClient` and `AsyncMPClient` (`vllm/v1/engine/core_client.py`).
"""

import asyncio
import gc
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.log.vocabulary import AnyEvent
from engine.core.sampling_params import SamplingParams
from engine.core.scheduling.admission import RequestError
from engine.core.tokenizer import Tokenizer
from engine.simulation.workload import Abort, Arrival
from server.core.adapters import loaded_adapters, read_adapter
from server.core.commands import AddAdapter, AnyCommand, LoadedAdapter, Report, Submit
from server.core.engine_thread import EngineThread, Prepared, busy_seconds
from server.core.event_log import KVSource, Outbox, Recording
from server.core.replay import Replay
from server.core.run_until import Refusal

logger = logging.getLogger("underglass")

COLLECTED_GENERATION = 1  # the oldest generation to scan; older objects have been scanned before
# Number of new objects after which the garbage collector runs even under load. A busy server reaches it
# once, while its log window fills; after that, only cycles can reach it.
MAX_NEW_OBJECTS = 500_000
Inputs = Sequence[Arrival | Abort]


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


class EngineDiedError(Exception):
    """The engine's process has ended by itself. The message says how."""


class StartError(Exception):
    """The server cannot start. The message gives the reason and names the option."""


class EngineClient(ABC):
    """The engine of a model. Lives on the event loop.

    tokenizer    the engine's, or one like it
    max_context  the model's context, or None
    config       the settings of the run
    paused       whether the engine is paused when the run starts
    started      the run's first events
    adapters     the LoRA adapters when the run starts
    kv_source    where its KV events are published, or None
    """

    tokenizer: Tokenizer
    config: EngineConfig
    max_context: int | None
    paused: bool
    started: list[AnyEvent]
    adapters: list[LoadedAdapter]
    kv_source: KVSource | None

    @abstractmethod
    def now(self) -> int:
        """Return the engine clock's time: microseconds since the run started."""

    @abstractmethod
    def validate(self, tokens: Sequence[int], params: SamplingParams, priority: int) -> None:
        """Raise RequestError for a request that can never be served; any thread may call this.

        What `structured` asks for is not compiled; see `GrammarWorker`.
        """

    @abstractmethod
    def start(self, deliver: Callable[[Report], None], failed: Callable[[str, bool], None]) -> None:
        """Start the engine thread of a run. Both functions may be called on another thread.

        deliver  called with a Report after each step, and once for the commands that ran before it
        failed   called with the reason if an error ends the engine thread, and with True if its
                 process has ended
        """

    @abstractmethod
    def post(self, *commands: AnyCommand) -> None:
        """Run commands after the current step, without a step between them."""

    @abstractmethod
    def cancel(self, reply: int) -> None:
        """Drop a command that has not run yet."""

    @abstractmethod
    def busy_seconds(self) -> float:
        """Return how long the current round, its commands and its step, has taken so far."""

    @abstractmethod
    async def stop(self, timeout: float) -> bool:
        """End the engine thread after its step; return False if that takes longer than `timeout`."""

    @abstractmethod
    async def open_next_log(self) -> str:
        """Open the next run's trace file; return the reason if that fails, or ""."""

    @abstractmethod
    async def restart(self, config: EngineConfig, *, paused: bool, inputs: Inputs) -> None:
        """Begin a new run of the same model, which `start` starts; the old one was stopped.

        inputs  requests that the new engine submits by itself; see `Replay`

        Raises ConfigError or MemoryError if the KV memory cannot be allocated.
        """

    def collect(self) -> None:
        """Collect young garbage while the engine is idle."""
        gc.collect(COLLECTED_GENERATION)

    @abstractmethod
    def kill(self) -> bool:
        """End an engine whose step does not end; return False if that is impossible."""

    async def unload(self) -> None:
        """Do what `close` does, without holding up the event loop for long."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Free the model of a stopped engine, and close its logs."""


class InProcessClient(EngineClient):
    """An engine on a thread of this process.

    `engine` must have been created with `outbox` as its log. After `start`, only its own thread touches
    it, except for what never changes (tokenizer, configuration, clock). `busy` is the cell that
    `busy_seconds` reads.
    """

    def __init__(self, engine: Engine, outbox: Outbox, recording: Recording | None = None) -> None:
        self.tokenizer = engine.tokenizer
        self.max_context = engine.runner.max_context
        self.recording = recording or Recording()
        publisher = self.recording.kv_publisher
        self.kv_source = publisher.source if publisher is not None else None
        self.busy = memoryview(bytearray(8)).cast("d")
        self._lock = threading.Lock()  # of `_unprepared`
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="adapters")
        self._begin(engine, outbox, ())

    def _begin(self, engine: Engine, outbox: Outbox, inputs: Inputs) -> None:
        engine.prepare()
        self.engine, self.config, self.paused = engine, engine.config, engine.paused
        self.started, self.adapters = outbox.take(), loaded_adapters(engine)
        self.recording.record(self.started, {})
        self._outbox = outbox
        self._inputs = inputs
        self._preparing = ThreadPoolExecutor(1, thread_name_prefix="prepare")
        self._unprepared: set[int] = set()  # replies of the submissions that wait for that thread

    def now(self) -> int:
        """See `EngineClient`."""
        return self.engine.clock.now()

    def validate(self, tokens: Sequence[int], params: SamplingParams, priority: int) -> None:
        """See `EngineClient`."""
        self.engine.validator.validate(tokens, params, priority, max_context=self.max_context)

    def start(self, deliver: Callable[[Report], None], failed: Callable[[str, bool], None]) -> None:
        """See `EngineClient`. Both functions are called on the engine thread."""
        self._thread = EngineThread(
            self.engine,
            self._outbox,
            replay=Replay(self._inputs),
            deliver=deliver,
            record=self.recording.record,
            failed=lambda error: failed(_logged(error), False),
            busy=self.busy,
        )
        self._thread.start()

    def post(self, *commands: AnyCommand) -> None:
        """See `EngineClient`.

        Submissions with a grammar are prepared first, on a thread of their own; other commands that are
        posted meanwhile do not wait for them. Nor do any commands wait while an adapter is read.
        """
        match commands:
            case (AddAdapter() as add,):
                self._reading.submit(self._post_adapter, add, self._thread)
                return
        replies = {one.reply for one in commands if isinstance(one, Submit) and _is_slow(one)}
        if not replies:
            self._thread.post(*commands)
            return
        with self._lock:
            self._unprepared |= replies
        with suppress(RuntimeError):  # the thread was stopped, so nothing will run
            self._preparing.submit(self._post_prepared, commands, replies)

    def _post_prepared(self, commands: Sequence[AnyCommand], replies: set[int]) -> None:
        prepared = {
            one.reply: self._prepare(one)
            for one in commands
            if isinstance(one, Submit) and one.reply in self._unprepared
        }
        with self._lock:
            cancelled = replies - self._unprepared
            self._unprepared -= replies
            kept = [one for one in commands if one.reply not in cancelled]
            self._thread.post(*(prepared.get(one.reply, one) for one in kept))

    def _post_adapter(self, add: AddAdapter, thread: EngineThread) -> None:
        thread.post(read_adapter(self.engine, add))

    def _prepare(self, submit: Submit) -> Prepared:
        """Compile a submission's grammars, so that the engine thread need not."""
        try:
            return Prepared(
                submit,
                [
                    self.engine.validate(prompt.tokens, prompt.params, submit.priority)
                    for prompt in submit.prompts
                ],
            )
        except RequestError as error:
            return Prepared(submit, [], Refusal(400, str(error), param=error.field))
        except Exception as error:
            logger.error("a submission cannot be prepared", exc_info=error)
            return Prepared(submit, [], Refusal(500, f"{type(error).__name__}: {error}"))

    def cancel(self, reply: int) -> None:
        """See `EngineClient`."""
        with self._lock:
            self._unprepared.discard(reply)
        self._thread.cancel(reply)

    def busy_seconds(self) -> float:
        """See `EngineClient`."""
        return busy_seconds(self.busy)

    async def stop(self, timeout: float) -> bool:
        """See `EngineClient`."""
        self._preparing.shutdown(wait=False, cancel_futures=True)
        ended = await asyncio.to_thread(self._thread.stop, timeout)
        return ended and not self.engine.is_in_flight

    async def open_next_log(self) -> str:
        """See `EngineClient`."""
        return self.recording.open_next()

    async def restart(self, config: EngineConfig, *, paused: bool, inputs: Inputs) -> None:
        """See `EngineClient`. The weights stay in memory; the old KV memory is freed first."""
        await asyncio.to_thread(self._restart, config, paused, inputs)

    def _restart(self, config: EngineConfig, paused: bool, inputs: Inputs) -> None:
        old, outbox = self.engine, Outbox(texts=self._outbox.texts)
        engine = Engine(
            old.runner, config, tokenizer=old.tokenizer, drafter=old.drafter, log=outbox
        )
        if paused:
            engine.pause()
        if loaded_adapters(old):
            engine.adapters.take_over(old.adapters)
        self.recording.switch()
        self._begin(engine, outbox, inputs)

    def kill(self) -> bool:
        """See `EngineClient`. A thread cannot be killed."""
        return False

    def close(self) -> None:
        """See `EngineClient`.

        The engine and the bridge are small; they are part of reference cycles, so the garbage collector
        frees them later.
        """
        self.engine.unload()
        self.recording.close()


def _is_slow(submit: Submit) -> bool:
    """Return whether it would take the engine thread long to prepare a submission."""
    return any(one.params.structured is not None or one.params.bad_words for one in submit.prompts)


def _logged(error: Exception) -> str:
    """Log why an engine thread has ended, and return the reason."""
    logger.error("the engine has failed", exc_info=error)
    return f"{type(error).__name__}: {error}"
