"""Answering over HTTP while the engine writes: raw ASGI, because it is twice as fast as Starlette's
StreamingResponse and because a client that leaves must be noticed at once, also while nothing is
being sent to it.

What the bytes look like is a Form's business: OpenAI completions, chat and the teaching stream are
three of them. A Form sees gains merged per choice, so a client that reads slowly gets fewer, longer
chunks instead of a growing queue.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.core.bridge import Bridge
from server.core.models import Models
from server.core.request_stream import (
    GenerationRequest,
    OutputDelta,
    RequestContext,
    RequestStream,
)
from server.http.errors import ApiError

KEEP_ALIVE = b": keep-alive\n\n"
EVENT_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back
]

_encode = msgspec.json.Encoder().encode


def sse(data: object) -> bytes:
    """One server-sent event with a JSON body."""
    return b"data: " + _encode(data) + b"\n\n"


class ResponseSerializer(Protocol):
    """How a stream is written. One per request; it may keep what it has written."""

    done: bytes  # ends every stream, after an error too

    def begin(self, generation: RequestStream) -> None:
        """Note the request, which is now in the engine's queue. Called once, first."""
        ...

    def chunk(self, gain: OutputDelta) -> bytes:
        """What one choice gained."""
        ...

    def closing(self) -> bytes:
        """After the last token."""
        ...


class WholeForm(Protocol):
    """How a whole response is written."""

    def render(self, generation: RequestStream, choices: list[OutputDelta]) -> object:
        """The response as plain values; one Gain per choice, in order."""
        ...


class Answer(Response, ABC):
    """The response to a request for tokens: queue it, answer, give everything back in any case.

    The model is leased until the answer has ended, in whatever way; `order` is made once it is loaded.
    """

    def __init__(
        self, models: Models, model: str | None, order: Callable[[Bridge], GenerationRequest]
    ) -> None:
        super().__init__()
        self._models = models
        self._model = model
        self._order = order
        self._patience = models.settings.keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; returns when the client has everything or has left.

        Both are awaited from the beginning: a client may leave while its prompt is tokenized.
        """
        connection = Connection(receive, send, self._models.settings.stall_seconds)
        leaving = asyncio.create_task(connection.lost())
        answering = asyncio.create_task(self._serve(connection, scope["state"]["context"]))
        try:
            await asyncio.wait({leaving, answering}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            answering.cancel()
            await asyncio.wait({leaving, answering})
        if not answering.cancelled():
            answering.result()  # an error is answered by the app

    async def _serve(self, connection: "Connection", context: RequestContext) -> None:
        # The lease ends with the last write: a client may request another model as soon as it has that.
        async with (
            self._models.lease(self._model) as bridge,
            bridge.generate(self._order(bridge), context) as generation,
        ):
            await self._answer(bridge, generation, connection)

    @abstractmethod
    async def _answer(
        self, bridge: Bridge, generation: RequestStream, connection: "Connection"
    ) -> None:
        """Send the whole response. May raise ApiError as long as nothing was sent."""


class StreamedAnswer(Answer):
    """Tokens as they come, written by a Form."""

    def __init__(
        self,
        models: Models,
        model: str | None,
        order: Callable[[Bridge], GenerationRequest],
        form: Callable[[Bridge], ResponseSerializer],
    ) -> None:
        super().__init__(models, model, order)
        self._form = form

    async def _answer(
        self, bridge: Bridge, generation: RequestStream, connection: "Connection"
    ) -> None:
        form = self._form(bridge)
        # The headers go out now: a client that sees them knows that it is in the queue.
        await connection.start(200, [*EVENT_STREAM_HEADERS, request_header(generation)])
        form.begin(generation)
        data = b""
        try:
            while not generation.finished:
                await connection.body(data)
                gains = await generation.gains(self._patience)
                data = b"".join(form.chunk(gain) for gain in gains) if gains else KEEP_ALIVE
            last = data + form.closing()  # in one write: many streams may end in the same step
        except ApiError as error:
            last = sse({"error": error.error})
        await connection.body(last + form.done, more=False)


class WholeAnswer(Answer):
    """One JSON object when everything is there."""

    def __init__(
        self,
        models: Models,
        model: str | None,
        order: Callable[[Bridge], GenerationRequest],
        form: Callable[[Bridge], WholeForm],
    ) -> None:
        super().__init__(models, model, order)
        self._form = form

    async def _answer(
        self, bridge: Bridge, generation: RequestStream, connection: "Connection"
    ) -> None:
        choices: dict[int, OutputDelta] = {}
        while not generation.finished:
            for gain in await generation.gains(self._patience):
                first = choices.setdefault(gain.choice, gain)
                if first is not gain:
                    first.extend(gain)
        gains = [gain for _, gain in sorted(choices.items())]
        body = _encode(self._form(bridge).render(generation, gains))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            request_header(generation),
        ]
        await connection.start(200, headers)
        await connection.body(body, more=False)


def request_header(generation: RequestStream) -> tuple[bytes, bytes]:
    """Which request of the event log this response is."""
    return b"x-underglass-request", str(generation.request_ids[0]).encode()


class Connection:
    """The way to one client, and whether there still is one.

    uvicorn's `send` waits while the connection's write buffer is over its high-water mark; a laptop
    that was closed would make it wait for ever.
    """

    def __init__(self, receive: Receive, send: Send, stall_seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._stall_seconds = stall_seconds
        self._sending_since: float | None = None

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Status and headers; they leave at once."""
        head = {"type": "http.response.start", "status": status, "headers": headers}
        await self._message(head)

    async def body(self, data: bytes, *, more: bool = True) -> None:
        """A piece of the body."""
        if data or not more:
            piece = {"type": "http.response.body", "body": data, "more_body": more}
            await self._message(piece)

    async def lost(self) -> None:
        """End when the client has left; be cancelled when it has accepted nothing for `stall_seconds`.

        One clock for the whole stream: a timeout around each piece would cost more than sending it.
        """
        loop, watching = asyncio.get_running_loop(), asyncio.current_task()
        assert watching is not None
        clock: asyncio.TimerHandle

        def look() -> None:
            nonlocal clock
            left = self._stall_seconds
            if self._sending_since is not None:
                left += self._sending_since - time.monotonic()
            if left > 0:
                clock = loop.call_later(left, look)
            else:
                watching.cancel()

        clock = loop.call_later(self._stall_seconds, look)
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        finally:
            clock.cancel()

    async def _message(self, message: dict[str, Any]) -> None:
        self._sending_since = time.monotonic()
        await self._send(message)
        self._sending_since = None
