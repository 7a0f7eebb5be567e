"""One LMTP connection, pinned to one replica: its buffers and streams live there.

Frames pass unchanged in both directions. The gateway notes which streams are open, for two reasons:
when the replica dies, each of them ends with an error item, and a drain waits for them. It also logs
the number that each stream has at the replica. The connection itself is one request of the cluster.
"""

import asyncio
from contextlib import ExitStack, suppress
from urllib.parse import urlencode

import aiohttp
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
from server.gateway.gateway import Gateway
from server.gateway.upstream import LostError, lost
from server.http.errors import ApiError, unavailable

_NOTED = ('"status":"queued"', '"finish_reason":"', '"error":')
_TRY_AGAIN = 1012  # WebSocket's "service restart", after which the client may connect again


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
        self._open: dict[StreamId, ExitStack] = {}  # the drain waits for each of them

    async def serve(self) -> None:
        """Pass frames on until one side leaves. Raises ApiError if there is no replica."""
        gateway, client = self._gateway, self._client
        label = label_of(client)
        follower, began = gateway.pin(self._number, label), gateway.now()
        url = f"{follower.member.url}/lmtp?{urlencode({'client': label})}"
        try:
            async with (
                gateway.accepted.block(),
                lost(follower),
                gateway.session.ws_connect(url, max_msg_size=0) as replica,
            ):
                await client.accept(
                    headers=[(b"x-underglass-replica", follower.member.id.encode())]
                )
                await self._pass(replica)
        except LostError as error:
            name = follower.member.id
            gateway.hop_failed(self._number, name, "stream", error, remedy="ended", began=began)
            gateway.dispatcher.lost(self._number, gateway.now(), again=False)
            message = f"replica {name} was lost: {error}"
            await self._end(unavailable(message, "replica_lost"))
        except TimeoutError:
            await self._end(unavailable("the server stopped before this stream ended", "shutdown"))
        finally:
            for stream_id in list(self._open):
                self._close(stream_id)
            gateway.dispatcher.ended(self._number, gateway.now())

    async def _pass(self, replica: aiohttp.ClientWebSocketResponse) -> None:
        """Pass frames on in both directions. Raises OSError when the replica's side ends."""
        tasks = {
            asyncio.create_task(self._to_replica(replica)),
            asyncio.create_task(self._to_client(replica)),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in done:
            task.result()

    async def _to_replica(self, replica: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            message = await self._client.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                await self._client.close(1003)
                return
            self._note_call(text)
            await replica.send_str(text)

    async def _to_client(self, replica: aiohttp.ClientWebSocketResponse) -> None:
        async for message in replica:
            if message.type == aiohttp.WSMsgType.TEXT:
                self._note_items(message.data)
                with suppress(WebSocketDisconnect):  # `_to_replica` ends, too
                    await self._client.send_text(message.data)
        raise ConnectionResetError("it closed the connection")

    def _note_call(self, text: str) -> None:
        try:
            word, content = split(text)
        except FrameError:
            return  # the replica says so
        stream_id = stream_of(content)
        if stream_id is None:
            return
        if word in STREAM_WORDS and stream_id not in self._open:
            self._open[stream_id] = ExitStack()
            self._open[stream_id].enter_context(self._gateway.running())
        elif word == "CANCEL":
            self._close(stream_id)

    def _note_items(self, text: str) -> None:
        if not any(one in text for one in _NOTED):
            return  # nearly every frame; a search is cheaper than parsing
        word, content = split(text)
        gateway = self._gateway
        for item in items_of(content):
            if word == "MSG" and item.get("status") == "queued":
                gateway.dispatcher.placed(self._number, item["request"], gateway.now())
            elif word == "TOKEN" and (item.get("finish_reason") is not None or "error" in item):
                self._close(item["stream_id"])

    def _close(self, stream_id: StreamId) -> None:
        if stack := self._open.pop(stream_id, None):
            stack.close()

    async def _end(self, error: ApiError) -> None:
        """End every open stream with an error item, and close the connection."""
        if self._client.client_state is WebSocketState.CONNECTING:
            raise error
        items = [error_item(stream_id, error) for stream_id in self._open]
        with suppress(WebSocketDisconnect):
            if items:
                await self._client.send_text(frame("TOKEN", items))
            await self._client.close(_TRY_AGAIN)
