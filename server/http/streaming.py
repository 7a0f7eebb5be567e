"""HTTP responses that are sent while the engine generates.

This is plain ASGI: it is twice as fast as Starlette's StreamingResponse, and it notices immediately
when a client disconnects, even while nothing is being sent.

A serializer turns tokens into bytes. There is one for OpenAI completions, one for chat and one for the
teaching stream. It receives deltas merged per choice, so a client that reads slowly gets fewer, longer
chunks instead of a growing queue.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.core.tokenizer import Tokenizer
from server.core.bridge import Bridge
from server.core.commands import OutputDelta
from server.core.models import Models
from server.core.request_stream import (
    GenerationRequest,
    RequestContext,
    RequestStream,
    merge_deltas,
)
from server.http.access import check_allowed
from server.http.continued import (
    END,
    MARKS,
    NAME,
    is_transient,
    lost_mark,
    tokens_mark,
)
from server.http.errors import ApiError

KEEP_ALIVE = b": keep-alive\n\n"
EVENT_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # otherwise nginx would buffer events
]

# An event of a stream. OpenAPI describes one event; the stream has any number of them.
EVENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "data": {"type": "string"},
        "event": {"type": "string"},
        "id": {"type": "string"},
    },
    "required": ["data"],
}

_encode = msgspec.json.Encoder().encode


def sse(data: object) -> bytes:
    """Return a server-sent event with a JSON body."""
    return b"data: " + _encode(data) + b"\n\n"


class StreamSerializer(Protocol):
    """Writes one response chunk by chunk."""

    done: bytes  # ends every stream, even after an error

    def chunk(self, delta: OutputDelta) -> bytes:
        """Return a chunk with one choice's new output."""
        ...

    def closing(self) -> bytes:
        """Return the bytes that follow the last token."""
        ...


class WholeSerializer(Protocol):
    """Writes one response as one JSON object."""

    def render(self, choices: list[OutputDelta]) -> object:
        """Return the response as plain values; `choices` has one OutputDelta per choice, in order."""
        ...


class Answer(Response):
    """The response to a generation request: it queues the request and sends the request's output.

    The model is leased until the response has ended, however it ends. `serializer` is called when the
    request is in the engine's queue, and returns a StreamSerializer if the answer is `streamed`,
    otherwise a WholeSerializer. A gateway gets a stream with marks; see `continued.py`.
    """

    def __init__(
        self,
        models: Models,
        model: str | None,
        request: GenerationRequest,
        serializer: Callable[[RequestStream, Tokenizer], Any],
        *,
        streamed: bool,
    ) -> None:
        super().__init__()
        self._models = models
        self._model = model
        self._request = request
        self._serializer = serializer
        self._streamed = streamed
        self._keep_alive = models.settings.keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; return when the client has received it or has disconnected.

        A disconnect is noticed from the start, because a client may leave while its prompt is
        tokenized.
        """
        connection = Connection(receive, send, self._models.settings.stall_seconds)
        self._has_marks = any(name == MARKS.encode() for name, _ in scope["headers"])
        if (continued := scope["state"].get("continued")) is not None:
            check_allowed(Request(scope), self._models.settings)
            self._request = replace(self._request, continued=continued)
        await connection.serve(self._serve(connection, scope["state"]["context"]))

    async def _serve(self, connection: "Connection", context: RequestContext) -> None:
        # The lease ends with the last write, because the client may then request another model.
        # A gateway need not wait for an engine that is started again: it has other replicas.
        async with (
            self._models.lease(self._model, waits=not self._has_marks) as bridge,
            bridge.generate(self._request, context) as stream,
        ):
            send = self._send_stream if self._streamed else self._send_whole
            await send(bridge, stream, connection)

    async def _send_stream(
        self, bridge: Bridge, stream: RequestStream, connection: "Connection"
    ) -> None:
        """Send tokens as server-sent events, as the engine samples them."""
        # Send the headers now, to tell the client that its request is in the queue.
        headers = [*EVENT_STREAM_HEADERS, _request_header(stream)]
        if self._has_marks:
            headers.append((NAME.encode(), str(stream.name).encode()))
        await connection.start(200, headers)
        serializer: StreamSerializer = self._serializer(stream, bridge.tokenizer)
        for delta in stream.earlier:  # the client has it, but the serializer must know it
            serializer.chunk(delta)
        data, end = b"", END if self._has_marks else b""
        try:
            while not stream.finished:
                await connection.body(data)
                deltas = await stream.deltas(self._keep_alive)
                data = b"".join(map(serializer.chunk, deltas)) if deltas else KEEP_ALIVE
                if self._has_marks:
                    data += tokens_mark(deltas)
            # Both parts are sent in one write, because many streams may end in the same step.
            last = data + serializer.closing()
        except ApiError as error:
            if self._has_marks and is_transient(error):
                await connection.body(lost_mark(error), more=False)
                return
            last = sse({"error": error.error})
        await connection.body(last + serializer.done + end, more=False)

    async def _send_whole(
        self, bridge: Bridge, stream: RequestStream, connection: "Connection"
    ) -> None:
        """Send one JSON object when all choices have ended. Raises ApiError, and has sent nothing."""
        serializer: WholeSerializer = self._serializer(stream, bridge.tokenizer)
        choices: list[OutputDelta] = []
        while not stream.finished:
            choices = merge_deltas([*choices, *await stream.deltas(self._keep_alive)])
        choices.sort(key=lambda delta: delta.choice)
        body = _encode(serializer.render(choices))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            _request_header(stream),
        ]
        await connection.start(200, headers)
        await connection.body(body, more=False)


def _request_header(stream: RequestStream) -> tuple[bytes, bytes]:
    """Return the header with the request's id in the event log."""
    return b"x-underglass-request", str(stream.request_ids[0]).encode()


class Connection:
    """Sends to one client, and notices when the client disconnects or stops reading.

    uvicorn's `send` waits while the connection's write buffer is above its high-water mark. If the
    client is a laptop that was closed, `send` would wait forever.
    """

    def __init__(self, receive: Receive, send: Send, stall_seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._stall_seconds = stall_seconds
        self._sending_since: float | None = None

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send the status and the headers."""
        await self._message({"type": "http.response.start", "status": status, "headers": headers})

    async def body(self, data: bytes, *, more: bool = True) -> None:
        """Send a piece of the body."""
        if data or not more:
            await self._message({"type": "http.response.body", "body": data, "more_body": more})

    async def serve(self, answer: Coroutine[Any, Any, None]) -> None:
        """Run `answer` until it ends, or cancel it when the client is lost. Raises its exception."""
        leaving = asyncio.create_task(self.lost())
        answering = asyncio.create_task(answer)
        try:
            await asyncio.wait({leaving, answering}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            answering.cancel()
            await asyncio.wait({leaving, answering})
        if not answering.cancelled():
            answering.result()  # the app turns an error into a response

    async def lost(self) -> None:
        """Return when the client disconnects. A stall of `stall_seconds` cancels the calling task.

        One timer serves the whole stream; a timeout per piece would cost more than sending the piece.
        """
        loop, watching = asyncio.get_running_loop(), asyncio.current_task()
        assert watching is not None
        timer: asyncio.TimerHandle

        def check() -> None:
            nonlocal timer
            left = self._stall_seconds
            if self._sending_since is not None:
                left += self._sending_since - time.monotonic()
            if left > 0:
                timer = loop.call_later(left, check)
            else:
                watching.cancel()

        timer = loop.call_later(self._stall_seconds, check)
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        finally:
            timer.cancel()

    async def _message(self, message: dict[str, Any]) -> None:
        self._sending_since = time.monotonic()
        await self._send(message)
        self._sending_since = None
