"""One LMTP client: its streams, and the handling of its frames.

The transport is a WebSocket (`routes.py`) or a pair of queues within the process (`inprocess.py`). When
the client disconnects, its streams are aborted and its buffers released. An error in one stream is sent
on that stream and does not affect the others.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial

from server.api.lmtp.buffers import Buffer, Buffers
from server.api.lmtp.calls import (
    STREAM_WORDS,
    Call,
    CancelCall,
    ModelInfoCall,
    PromptCall,
    ReleaseCall,
    StreamId,
    parse_call,
    stream_of,
)
from server.api.lmtp.frames import FrameError, SendQueue, item, split
from server.api.lmtp.streams import Stream, error_item
from server.core.bridge import Bridge
from server.core.models import Models
from server.core.request_stream import RequestContext
from server.http.bodies import read_apart
from server.http.errors import ApiError, bad_request, internal_error

MAX_STREAMS = 1024

logger = logging.getLogger(__name__)


class Session:
    """The server's side of one connection.

    send     takes a frame, and returns when the connection has accepted it
    label    the requests' label in the log, unless a call has its own
    context  tells the request log about each stream
    """

    def __init__(
        self,
        models: Models,
        send: Callable[[str], Awaitable[None]],
        label: str = "",
        context: RequestContext | None = None,
    ) -> None:
        self._models = models
        self._label = label
        self._queue = SendQueue(send, models.settings.stall_seconds)
        self._context = context
        self._buffers = Buffers()
        self._streams: dict[StreamId, asyncio.Task[None]] = {}

    async def serve(self, frames: AsyncIterator[str]) -> None:
        """Answer frames until there are no more, or until the client stops reading the answers.

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
                word, content = _split(text)
                stream_id = await read_apart(len(content), partial(stream_of, content))
                call = await read_apart(len(content), partial(parse_call, word, content))
                await self._handle(call)
            except ApiError as error:
                # A TOKEN error ends the stream for the client, so a running one must not get one.
                opens_stream = word in STREAM_WORDS and stream_id is not None
                reply = "TOKEN" if opens_stream and stream_id not in self._streams else "MSG"
                await self._queue.put(reply, [error_item(stream_id, error)])

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
        before = None
        if isinstance(call, PromptCall) and call.from_ is not None:
            before = self._buffers.find(call.from_)  # before the next frame can release it
        task = asyncio.create_task(self._run(call, before))
        self._streams[call.stream_id] = task

    async def _run(self, call: PromptCall | ModelInfoCall, before: Buffer | None) -> None:
        try:
            if not self._models.is_loaded(call.model):
                await self._answer(call, status="loading", model=call.model)
            async with self._models.lease(call.model) as bridge:
                if isinstance(call, ModelInfoCall):
                    await self._answer(call, model_info=_model_info(bridge))
                else:
                    stream = Stream(call, bridge, self._queue, self._buffers, before)
                    await stream.run(self._label, self._context)
        except ApiError as error:
            await self._fail(call, error)
        except Exception as error:  # a server bug: the client must not wait forever
            logger.exception("stream %r failed", call.stream_id)
            await self._fail(call, internal_error(error))
        finally:
            self._streams.pop(call.stream_id, None)

    async def _fail(self, call: PromptCall | ModelInfoCall, error: ApiError) -> None:
        word = "TOKEN" if isinstance(call, PromptCall) else "MSG"
        await self._queue.put(word, [error_item(call.stream_id, error)])

    async def _cancel(self, call: CancelCall) -> None:
        """Cancel a stream; this answer is its last message. Harmless if it has already ended."""
        task = self._streams.pop(call.stream_id, None)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        await self._answer(call, status="cancelled")

    async def _answer(self, call: Call, **content: object) -> None:
        await self._queue.put("MSG", [item({"stream_id": call.stream_id} | content)])


def _split(text: str) -> tuple[str, str]:
    try:
        return split(text)
    except FrameError as error:
        raise bad_request(None, str(error), "not_a_frame") from error


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
