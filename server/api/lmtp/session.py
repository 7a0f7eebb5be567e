"""One LMTP client: its streams, and the handling of its frames.

The transport is a WebSocket (`install`) or a pair of queues within the process (`inprocess.py`). When
the client disconnects, its streams are aborted and its buffers released. An error in one stream is sent
on that stream and does not affect the others.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial

from starlette.applications import Starlette
from starlette.websockets import WebSocket, WebSocketDisconnect

from server.api.lmtp.buffers import Buffer, Buffers
from server.api.lmtp.frames import (
    STREAM_WORDS,
    Call,
    CancelCall,
    FrameError,
    GenerateCall,
    ModelInfoCall,
    PromptCall,
    ReleaseCall,
    StreamId,
    item,
    parse_call,
    split,
    stream_of,
)
from server.api.lmtp.streams import Stream
from server.core.bridge import Bridge
from server.core.models import Models
from server.core.request_stream import RequestContext
from server.http.access import check_allowed
from server.http.bodies import read_apart
from server.http.continued import CONTINUED
from server.http.errors import ApiError, bad_request, internal_error, no_route
from server.http.request_log import label_in

MAX_STREAMS = 1024
LIMIT_BYTES = 64 << 10
FRAME_BYTES = 256 << 10  # aiohttp, which LMQL uses, accepts 4 MiB

logger = logging.getLogger(__name__)


def install(app: Starlette, models: Models) -> None:
    """Serve LMTP.

    Middleware (`server/http/access.py`) has already checked the client. It rejects pages from other
    sites and, with `--api-key`, clients without the key.
    """

    async def lmtp(websocket: WebSocket) -> None:
        continues = CONTINUED in websocket.headers
        if continues:
            try:
                check_allowed(websocket, models.settings)
            except ApiError as error:
                await websocket.send_denial_response(error.response())
                return
        await websocket.accept()
        context, send = websocket.state.context, websocket.send_text
        session = Session(models, send, label_of(websocket), context, continues=continues)
        try:
            await session.serve(_frames(websocket))
        except _NotTextError:
            await websocket.close(1003)
        except WebSocketDisconnect:  # the client left while a frame was being sent
            pass

    add_routes(app, lmtp)


def add_routes(app: Starlette, lmtp: Callable[[WebSocket], Awaitable[None]]) -> None:
    """Serve LMTP at `/lmtp` and at `/`, where LMQL's client expects it; other paths get a 404."""

    async def not_found(websocket: WebSocket) -> None:
        await websocket.send_denial_response(no_route(websocket.url.path).response())

    for path in ("/", "/lmtp"):
        app.router.add_websocket_route(path, lmtp)
    app.router.add_websocket_route("/{path:path}", not_found)


def label_of(websocket: WebSocket) -> str:
    """Return a client's label. LMQL's client cannot send a header, but its URL may have a query."""
    return label_in(websocket.headers.get("x-client") or websocket.query_params.get("client", ""))


def error_item(stream_id: StreamId | None, error: ApiError) -> dict[str, object]:
    """Return an error as an item of a frame. LMQL's client shows the `error` text.

    `retry` is true if the same request may succeed later, because the server failed or was full.
    """
    content: dict[str, object] = {
        "stream_id": stream_id,
        "error": error.error["message"],
        "code": error.error["code"] or "invalid_request",
        "param": error.error["param"],
        "retry": error.status == 429 or error.status >= 500,
    }
    if "Retry-After" in error.headers:
        content["retry_after"] = float(error.headers["Retry-After"])
    return content


class _NotTextError(Exception):
    """A binary frame, which LMTP does not use."""


async def _frames(websocket: WebSocket) -> AsyncIterator[str]:
    """Yield text frames until the client disconnects. Raises _NotTextError."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("text") is None:
            raise _NotTextError
        yield message["text"]


class Session:
    """The server's side of one connection.

    send     takes a frame, and returns when the connection has accepted it
    label    the requests' label in the log, unless a call has its own
    context  tells the request log about each stream
    continues  whether a call may continue the stream of another server
    """

    def __init__(
        self,
        models: Models,
        send: Callable[[str], Awaitable[None]],
        label: str = "",
        context: RequestContext | None = None,
        *,
        continues: bool = False,
    ) -> None:
        self._models = models
        self._continues = continues
        self._label = label
        self._queue = SendQueue(send, models.settings.stall_seconds)
        self._context = context
        self._buffers = Buffers()
        self._streams: dict[StreamId, asyncio.Task[None]] = {}

    async def serve(self, frames: AsyncIterator[str]) -> None:
        """Answer frames until `frames` ends, or until the client stops reading the answers.

        Raises the exceptions of `frames` and `send`.
        """
        reading = asyncio.create_task(self._read(frames))
        writing = asyncio.create_task(self._queue.run())
        try:
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._buffers.close()
            tasks = {reading, writing, *self._streams.values()}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if not reading.cancelled():
            reading.result()
        if not writing.cancelled():
            with suppress(TimeoutError):  # the client stopped reading
                writing.result()

    async def _read(self, frames: AsyncIterator[str]) -> None:
        async for text in frames:
            word, stream_id = "", None
            try:
                try:
                    word, content = split(text)
                except FrameError as error:
                    raise bad_request(None, str(error), "not_a_frame") from error
                stream_id = await read_apart(len(content), partial(stream_of, content))
                call = await read_apart(len(content), partial(parse_call, word, content))
                await self._handle(call)
            except ApiError as error:
                # A TOKEN error ends the stream for the client, so a running stream must not get one.
                opens_stream = word in STREAM_WORDS and stream_id is not None
                reply = "TOKEN" if opens_stream and stream_id not in self._streams else "MSG"
                await self._fail(reply, stream_id, error)

    async def _handle(self, call: Call) -> None:
        if isinstance(call, PromptCall | ModelInfoCall):
            self._open(call)
        elif isinstance(call, CancelCall):
            await self._cancel(call)
        elif isinstance(call, ReleaseCall):
            self._buffers.release(call.buffer)
            await self._answer(call, status="released", buffer=call.buffer)

    def _open(self, call: PromptCall | ModelInfoCall) -> None:
        """Start a task for a call that takes time; the next frame can be read in the meantime."""
        if call.stream_id in self._streams:
            raise bad_request(
                "stream_id", f"stream_id {call.stream_id!r} is still open: use another id"
            )
        if len(self._streams) >= MAX_STREAMS:
            raise ApiError(
                429,
                f"this connection has {MAX_STREAMS} open streams, the maximum: try again later",
                code="too_many_streams",
            )
        if isinstance(call, GenerateCall) and call.output is not None and not self._continues:
            raise bad_request("output", "output: only a gateway may continue a stream")
        before = None
        if isinstance(call, PromptCall) and call.from_ is not None:
            before = self._buffers.find(call.from_)  # before the next frame can release it
        task = asyncio.create_task(self._run(call, before))
        self._streams[call.stream_id] = task

    async def _run(self, call: PromptCall | ModelInfoCall, before: Buffer | None) -> None:
        word = "TOKEN" if isinstance(call, PromptCall) else "MSG"
        try:
            if not self._models.is_loaded(call.model):
                await self._answer(call, status="loading", model=call.model)
            async with self._models.lease(call.model) as bridge:
                if isinstance(call, ModelInfoCall):
                    await self._answer(call, model_info=_model_info(bridge))
                else:
                    stream = Stream(call, bridge, self._queue.put, self._buffers, before)
                    await stream.run(self._label, self._context)
        except ApiError as error:
            await self._fail(word, call.stream_id, error)
        except Exception as error:  # a server bug: the client must not wait forever
            logger.exception("stream %r failed", call.stream_id)
            await self._fail(word, call.stream_id, internal_error(error))
        finally:
            self._streams.pop(call.stream_id, None)

    async def _fail(self, word: str, stream_id: StreamId | None, error: ApiError) -> None:
        await self._queue.put(word, [item(error_item(stream_id, error))])

    async def _cancel(self, call: CancelCall) -> None:
        """Cancel a stream, if it has not ended. The answer is the stream's last message."""
        task = self._streams.pop(call.stream_id, None)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        await self._answer(call, status="cancelled")

    async def _answer(self, call: Call, **content: object) -> None:
        await self._queue.put("MSG", [item({"stream_id": call.stream_id} | content)])


class SendQueue:
    """A bounded queue of items for one client, which sends them in order, several per frame.

        streams --put--> waiting items --run--> one frame per word, as fast as the client reads

    A client that reads slowly gets fewer but longer frames. When more than `LIMIT_BYTES` are queued,
    the streams wait, and each stream fills its own bounded buffer (`server/core/request_stream.py`). A
    client that accepts nothing for `stall_seconds` is disconnected.

    `send` takes a frame and returns when the connection has accepted it.
    """

    def __init__(self, send: Callable[[str], Awaitable[None]], stall_seconds: float) -> None:
        self._send = send
        self._stall_seconds = stall_seconds
        self._items: list[tuple[str, bytes]] = []
        self._bytes = 0
        self._filled = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def put(self, word: str, items: list[bytes]) -> None:
        """Add items of a TOKEN or MSG frame; wait while the queue is full."""
        await self._has_room.wait()
        self._items += [(word, data) for data in items]
        self._bytes += sum(map(len, items))
        self._filled.set()
        if self._bytes > LIMIT_BYTES:
            self._has_room.clear()

    async def run(self) -> None:
        """Send queued items until cancelled. Raises TimeoutError if the client accepts nothing."""
        while True:
            await self._filled.wait()
            items, self._items, self._bytes = self._items, [], 0
            self._filled.clear()
            for text in _joined(items):
                async with asyncio.timeout(self._stall_seconds):
                    await self._send(text)
            if self._bytes <= LIMIT_BYTES:
                self._has_room.set()


def _joined(items: list[tuple[str, bytes]]) -> Iterator[str]:
    """Join consecutive items of the same word into frames of up to about `FRAME_BYTES`."""
    word, joined, size = "", list[bytes](), 0
    for next_word, data in items:
        if joined and (next_word != word or size > FRAME_BYTES):
            yield f"{word} [{b','.join(joined).decode()}]"
            joined, size = [], 0
        word = next_word
        joined.append(data)
        size += len(data)
    if joined:
        yield f"{word} [{b','.join(joined).decode()}]"


def _model_info(bridge: Bridge) -> dict[str, object]:
    tokenizer = bridge.tokenizer
    return {
        "model": bridge.settings.model_name,
        "max_context": bridge.max_context,
        "max_kv_tokens": bridge.config.num_blocks * bridge.config.block_size,
        "vocab_size": tokenizer.vocab_size,
        "bos_id": tokenizer.bos_id,
        "eos_ids": sorted(tokenizer.eos_ids),
    }
