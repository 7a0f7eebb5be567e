"""One LMTP connection, whose frames pass unchanged in both directions between a client and one replica.

The gateway notes the calls that are open, and the tokens that their client has. When the replica dies,
it connects to another one and sends these calls again, each with its tokens so far, as `proxy.py` does
with an HTTP stream: the client sees a pause. A drain waits for the open streams, and the log has the
number that each of them has at its replica. The connection itself is one request of the cluster.

A client that uses buffers (`keep`, `from`) depends on its replica, which holds them. Such a connection
ends with its replica: each open stream gets an error item, whose `retry` is true.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlencode

import aiohttp
import msgspec
from starlette.applications import Starlette
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from server.api.lmtp.frames import (
    STREAM_WORDS,
    FrameError,
    StreamId,
    frame,
    items_of,
    split,
    stream_of,
)
from server.api.lmtp.session import add_routes, error_item, label_of
from server.gateway.attempts import Attempts
from server.gateway.gateway import Gateway
from server.gateway.upstream import LostError, RefusedError, lost
from server.http.continued import CONTINUED
from server.http.errors import ApiError, unavailable

_ANSWERED = (*STREAM_WORDS, "MODEL_INFO", "CANCEL")  # calls that another replica can answer, too
# Errors of the engine, not of the request; see `is_transient` for those of HTTP.
_ENGINE_CODES = (
    "engine_died",
    "engine_failed",
    "engine_restarted",
    "engine_stuck",
    "forward_pass_failed",
    "shutdown",
)
_TRY_AGAIN = 1012  # WebSocket's "service restart", after which the client may connect again
# A replica that is to be left may be silent.
_TIMEOUT = aiohttp.ClientWSTimeout(ws_close=0.5)


class _Called(msgspec.Struct):
    """What the gateway reads of a call; the replica checks it."""

    stream_id: StreamId | None = None
    keep: object = None
    from_: object = msgspec.field(default=None, name="from")


class _Item(msgspec.Struct):
    """What the gateway reads of a replica's item."""

    stream_id: StreamId | None = None
    token: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    code: str | None = None
    status: str | None = None
    request: int = 0
    model_info: object = None


_called = msgspec.json.Decoder(_Called)
_items = msgspec.json.Decoder(list[_Item])


@dataclass(slots=True)
class _Open:
    """A call that has not been answered to its end.

    cancels  the CANCEL of an earlier call with its id, until that has been answered
    output   the tokens that the client has
    again    whether another replica has it now than the first one
    running  lets the drain wait for it
    """

    word: str
    content: str
    cancels: str = ""
    output: list[int] = field(default_factory=list)
    again: bool = False
    running: ExitStack = field(default_factory=ExitStack)

    def frames(self) -> list[str]:
        """Return the call for another replica."""
        content, before = self.content, [f"CANCEL {self.cancels}"] if self.cancels else []
        if self.output:
            content = f'{content.rstrip()[:-1]}, "output": {self.output}}}'
        return [*before, f"{self.word} {content}"]


def install(app: Starlette, gateway: Gateway) -> None:
    """Serve LMTP as one server does."""

    async def lmtp(websocket: WebSocket) -> None:
        try:
            await PinnedSession(gateway, websocket).serve()
        except ApiError as error:  # before the connection was accepted
            await websocket.send_denial_response(error.response())

    add_routes(app, lmtp)


class PinnedSession:
    """A client's connection and the gateway's own to the replica."""

    def __init__(self, gateway: Gateway, client: WebSocket) -> None:
        self._gateway = gateway
        self._client = client
        self._number = gateway.next_request()
        self._attempts = Attempts(gateway, self._number)
        self._open: dict[StreamId, _Open] = {}
        self._early: list[str] = []  # other frames, which came while there was no replica
        self._has_buffers = False

    async def serve(self) -> None:
        """Pass frames on until one side leaves. Raises ApiError if there is no replica."""
        gateway = self._gateway
        try:
            async with gateway.accepted.block():
                await self._serve(label_of(self._client))
        except ApiError as error:
            await self._end(error)
        except TimeoutError:
            await self._end(unavailable("the server stopped before this stream ended", "shutdown"))
        finally:
            for stream_id in list(self._open):
                self._close(stream_id)
            gateway.dispatcher.ended(self._number, gateway.now())

    async def _serve(self, label: str) -> None:
        gateway, attempts, output = self._gateway, self._attempts, 0
        while True:
            without = attempts.failed_here()
            follower = gateway.pin(self._number, label, without, output=output)
            began, run = gateway.now(), follower.run
            url = f"{follower.member.url}/lmtp?{urlencode({'client': label})}"
            headers = {CONTINUED: "lmtp"} if output else {}
            try:
                async with lost(follower), self._connected(url, headers) as replica:
                    await self._begin(follower.member.id, replica)
                    await self._pass(replica)
                    return
            except LostError as error:
                error.is_final |= self._has_buffers
                output = sum(len(one.output) for one in self._open.values())
                computed = bool(self._open)
                has_token = output > 0 or not (computed or self._is_new)
                attempts.failed(
                    follower, run, error, began, has_token=has_token, is_computed=computed
                )
                if not attempts.may_go_elsewhere:
                    if self._is_new:  # its patience with a handshake is short
                        await self._client.accept()
                    leaving = asyncio.create_task(self._from_client())
                    await _first_of(leaving, asyncio.create_task(attempts.wait(follower, error)))
                    if not leaving.cancelled():
                        return

    @property
    def _is_new(self) -> bool:
        """Whether the client is not connected yet."""
        return self._client.client_state is WebSocketState.CONNECTING

    @asynccontextmanager
    async def _connected(
        self, url: str, headers: dict[str, str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        session = self._gateway.session
        try:
            connecting = session.ws_connect(url, headers=headers, max_msg_size=0, timeout=_TIMEOUT)
            async with connecting as replica:
                yield replica
        except aiohttp.WSServerHandshakeError as error:
            message = f"{url} answered {error.status}"
            answer = ApiError(error.status, message)
            if error.status in (429, 503):
                answer = unavailable(message, "replica_lost")
            raise RefusedError(answer) from error

    async def _begin(self, replica_id: str, replica: aiohttp.ClientWebSocketResponse) -> None:
        """Tell the client that it is connected, or send what another replica has not answered."""
        if self._is_new:
            self._attempts.accepted = True
            await self._client.accept(headers=[(b"x-underglass-replica", replica_id.encode())])
        calls = [text for call in self._open.values() for text in call.frames()]
        for call in self._open.values():
            call.again = True
        early, self._early = self._early, []
        for text in (*calls, *early):
            await replica.send_str(text)

    async def _pass(self, replica: aiohttp.ClientWebSocketResponse) -> None:
        """Pass frames on in both directions. Raises OSError when the replica's side ends."""
        await _first_of(
            asyncio.create_task(self._from_client(replica)),
            asyncio.create_task(self._to_client(replica)),
        )

    async def _from_client(self, replica: aiohttp.ClientWebSocketResponse | None = None) -> None:
        """Pass calls on, or keep them if there is no replica; return when the client leaves."""
        while True:
            message = await self._client.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                await self._client.close(1003)
                return
            is_noted = self._note_call(text)
            if replica is not None:
                await replica.send_str(text)
            elif not is_noted:
                self._early.append(text)

    async def _to_client(self, replica: aiohttp.ClientWebSocketResponse) -> None:
        async for message in replica:
            if message.type == aiohttp.WSMsgType.TEXT:
                await self._pass_items(*split(message.data), message.data)
        raise ConnectionResetError("it closed the connection")

    async def _pass_items(self, word: str, content: str, text: str) -> None:
        """Pass a frame on, without what the client has or need not know. Raises LostError."""
        items = _items.decode(content)
        at = next((index for index, one in enumerate(items) if self._is_lost(one)), len(items))
        failed, passed = items[at:], items[:at]
        if failed or any(map(self._is_repeated, items)):
            pairs = zip(passed, items_of(content), strict=False)
            kept = [content for item, content in pairs if not self._is_repeated(item)]
            text = frame(word, kept) if kept else ""
        if text:
            # uvicorn waits before it writes, so a frame whose sending is cancelled was not sent.
            with suppress(WebSocketDisconnect):  # `_from_client` ends, too
                await self._client.send_text(text)
        for item in passed:
            self._note_item(word, item)
        if failed:
            raise LostError(failed[0].error or "", "error", code=failed[0].code)

    def _is_lost(self, item: _Item) -> bool:
        """Whether a stream has ended because of its engine. With buffers, its client has to know."""
        return item.code in _ENGINE_CODES and not self._has_buffers

    def _is_repeated(self, item: _Item) -> bool:
        """Whether the client has had such a message from an earlier replica."""
        call = self._open.get(item.stream_id) if item.stream_id is not None else None
        return call is not None and call.again and item.status in ("queued", "loading")

    def _note_call(self, text: str) -> bool:
        """Note a call that another replica can answer, too; return whether it is one."""
        try:
            word, content = split(text)
        except FrameError:
            return False  # the replica says so
        try:
            called = _called.decode(content)
        except (msgspec.DecodeError, RecursionError):
            called = _Called(stream_of(content))
        self._has_buffers |= any((called.keep, called.from_, word == "RELEASE"))
        stream_id, cancels = called.stream_id, ""
        if stream_id is None or word not in _ANSWERED:
            return False
        if word == "CANCEL":
            self._close(stream_id)
        elif (before := self._open.get(stream_id)) is not None:
            if before.word != "CANCEL":
                return False  # the replica says that its id is in use
            cancels = before.content
        call = self._open[stream_id] = _Open(word, content, cancels)
        if word in STREAM_WORDS:
            call.running.enter_context(self._gateway.running())
        return True

    def _note_item(self, word: str, item: _Item) -> None:
        gateway, stream_id = self._gateway, item.stream_id
        if stream_id is None or (call := self._open.get(stream_id)) is None:
            return
        if item.status == "queued":
            gateway.dispatcher.placed(self._number, item.request, gateway.now())
        if item.status == "cancelled":
            call.cancels = ""
            if call.word == "CANCEL":
                self._close(stream_id)
        elif call.cancels:
            return  # an item of the earlier call
        if word == "TOKEN" and call.word in STREAM_WORDS:
            if item.token is not None:
                call.output.append(item.token)
                self._attempts.token()
            if item.finish_reason is not None or item.error is not None:
                self._close(stream_id)
        elif call.word == "MODEL_INFO" and (item.model_info or item.error):
            self._close(stream_id)

    def _close(self, stream_id: StreamId) -> None:
        if call := self._open.pop(stream_id, None):
            call.running.close()

    async def _end(self, error: ApiError) -> None:
        """End every open stream with an error item, and close the connection."""
        if self._is_new:
            raise error
        streams = [id_ for id_, call in self._open.items() if call.word in STREAM_WORDS]
        with suppress(WebSocketDisconnect):
            if streams:
                items = [error_item(stream_id, error) for stream_id in streams]
                await self._client.send_text(frame("TOKEN", items))
            await self._client.close(_TRY_AGAIN)


async def _first_of(*tasks: asyncio.Task[None]) -> None:
    """Wait until one of the tasks ends, and cancel the others. Raises what it raises."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()
