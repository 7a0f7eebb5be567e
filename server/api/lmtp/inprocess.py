"""LMTP without a socket: the same client, session and messages, for an engine in this process.

    async with in_process(engine) as client:
        async for token in client.generate("Once upon a time", max_tokens=20):
            print(token["text"], end="")

Inside the block, the engine runs on its own thread, as in a server, and appends to its own log. LMQL's
in-process transport (`lmtp_async.py`) runs the model on the event loop instead, which blocks the loop
during each forward pass.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from engine.core.engine import Engine
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import Event
from server.api.lmtp.client import Client, over
from server.api.lmtp.session import Session
from server.core.bridge import Bridge
from server.core.engine_client import InProcessClient
from server.core.event_log import Outbox
from server.core.models import Models
from server.core.settings import ServerSettings

QUEUED_FRAMES = 64  # per direction; a writer waits while the queue is full


@asynccontextmanager
async def in_process(engine: Engine, *, label: str = "") -> AsyncIterator[Client]:
    """Yield a client for this engine. Other code must not use the engine until the block ends."""
    log, outbox = engine.log, _LoggingOutbox(engine.log)
    bridge = Bridge(InProcessClient(engine, outbox), ServerSettings(model_name="in-process"))
    engine.log = outbox
    bridge.start()
    try:
        async with client_of(Models(bridge), label=label) as client:
            yield client
    finally:
        await bridge.settle()
        await bridge.stop()
        engine.log = log


@asynccontextmanager
async def client_of(models: Models, *, label: str = "") -> AsyncIterator[Client]:
    """Yield a client for the models that this process serves."""
    to_server = asyncio.Queue[str | None](QUEUED_FRAMES)
    to_client = asyncio.Queue[str | None](QUEUED_FRAMES)
    session = Session(models, to_client.put, label)

    async def serve() -> None:
        try:
            await session.serve(_frames(to_server))
        except Exception:
            await to_client.put(None)  # the client must not wait forever
            raise

    serving = asyncio.create_task(serve())
    try:
        async with over(to_server.put, to_client.get) as client:
            yield client
    finally:
        serving.cancel()
        await asyncio.wait({serving})
        if not serving.cancelled():
            serving.result()


class _LoggingOutbox(Outbox):
    """Delivers new events to the bridge and also appends them to the engine's own log."""

    def __init__(self, log: EventLog) -> None:
        super().__init__()
        self._log = log
        for event in log:
            super().append(event)

    def append(self, event: Event) -> None:
        """Append an event to the log and to the outbox."""
        self._log.append(event)
        super().append(event)

    @property
    def next_seq(self) -> int:
        """The next event's number."""
        return self._log.next_seq


async def _frames(queue: asyncio.Queue[str | None]) -> AsyncIterator[str]:
    while (text := await queue.get()) is not None:
        yield text
