"""An LMTP client: many concurrent streams over one connection.

    async with connect("ws://localhost:8000") as client:
        async for token in client.generate("Once upon a time", max_tokens=20):
            print(token["text"], end="")

Leaving the loop early cancels the stream on the server. `in_process` (`inprocess.py`) yields the same
client for an engine in this process.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode

from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import ConnectionClosed

from server.api.lmtp.frames import frame, items_of, split

Prompt = str | Sequence[int]

_SCHEMES = {"": "ws", "http": "ws", "https": "wss"}


class StreamError(RuntimeError):
    """A stream or the connection failed. The message comes from the server, if it sent one.

    code         a name for the error, for programs
    retry        whether the same request may succeed later
    retry_after  seconds to wait before a retry, if the server sent them
    """

    def __init__(self, item: dict[str, Any]) -> None:
        super().__init__(str(item["error"]))
        self.code = str(item.get("code", ""))
        self.retry = bool(item.get("retry", False))
        self.retry_after: float | None = item.get("retry_after")


class Client:
    """An LMTP client; `connect` and `in_process` create one.

    send     sends a frame
    receive  returns the next frame, or None when the connection is closed

    `on_message` is called with each MSG item that is not an error. Such items report that a model is
    loading, that a stream is queued or that a buffer was kept.
    """

    def __init__(
        self, send: Callable[[str], Awaitable[None]], receive: Callable[[], Awaitable[str | None]]
    ) -> None:
        self.on_message: Callable[[dict[str, Any]], None] = lambda _message: None
        self._send = send
        self._receive = receive
        self._last_id = 0
        self._open: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        self._lost = ""

    async def generate(self, prompt: Prompt, **fields: object) -> AsyncIterator[dict[str, Any]]:
        """Yield the tokens that follow a prompt as TOKEN items: `token`, `logprob`, `top_logprobs`, ...

        `prompt` is text or token ids; if it is text, each item also has a `text`. `fields` are the
        other fields of GENERATE. Raises StreamError if the stream or the connection fails.
        """
        async for token in self._stream("GENERATE", prompt=_as_json(prompt), **fields):
            yield token

    async def score(self, prompt: Prompt, scored: Prompt, **fields: object) -> list[dict[str, Any]]:
        """Return the log-probability of each token of `scored` after `prompt`, as TOKEN items.

        Raises StreamError if the stream or the connection fails.
        """
        stream = self._stream("SCORE", prompt=_as_json(prompt), scored=_as_json(scored), **fields)
        return [token async for token in stream]

    async def model_info(self, model: str | None = None) -> dict[str, Any]:
        """Return the server's description of a model. With `--model auto`, this loads the model."""
        answer = await self._ask("MODEL_INFO", "model_info", model=model)
        info: dict[str, Any] = answer["model_info"]
        return info

    async def release(self, buffer: str) -> None:
        """Delete a buffer. Raises StreamError if no buffer has this name."""
        await self._ask("RELEASE", "buffer", buffer=buffer)

    async def read(self) -> None:
        """Pass received items to their streams until the connection closes. Run this as a task."""
        try:
            while (text := await self._receive()) is not None:
                word, content = split(text)
                for item in items_of(content):
                    if word == "MSG" and "error" not in item:
                        self.on_message(item)
                    if item["stream_id"] in self._open:
                        self._open[item["stream_id"]].put_nowait(item | {"word": word})
        finally:
            self._lost = "the connection to the server was lost"
            for waiting in self._open.values():
                waiting.put_nowait({"error": self._lost, "code": "connection_lost", "retry": True})

    async def _stream(self, word: str, **fields: object) -> AsyncIterator[dict[str, Any]]:
        stream_id, items = await self._begin(word, fields)
        finished = False
        try:
            while not finished:
                item = await items.get()
                finished = "error" in item or item.get("finish_reason") is not None
                if "error" in item:
                    raise StreamError(item)
                if item.pop("word") == "TOKEN":
                    yield item
        finally:
            del self._open[stream_id]
            if not finished:
                await self._send(frame("CANCEL", {"stream_id": stream_id}))

    async def _ask(self, word: str, answered: str, **fields: object) -> dict[str, Any]:
        """Send a command and return the item that has the field `answered`."""
        stream_id, items = await self._begin(word, fields)
        try:
            while True:
                item = await items.get()
                if "error" in item:
                    raise StreamError(item)
                if answered in item:
                    return item
        finally:
            del self._open[stream_id]

    async def _begin(
        self, word: str, fields: dict[str, object]
    ) -> tuple[int, asyncio.Queue[dict[str, Any]]]:
        if self._lost:
            raise StreamError({"error": self._lost, "code": "connection_lost", "retry": True})
        self._last_id += 1
        stream_id, items = self._last_id, asyncio.Queue[dict[str, Any]]()
        self._open[stream_id] = items
        await self._send(frame(word, {"stream_id": stream_id} | fields))
        return stream_id, items


@asynccontextmanager
async def connect(
    url: str, *, api_key: str | None = None, label: str = ""
) -> AsyncIterator[Client]:
    """Yield a client connected to a server.

    `url` may start with ws:// or http:// and may have a path, but no query. Raises OSError if no server
    answers, and `websockets.exceptions.InvalidStatus` if the server rejects the client.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    # The label is part of the URL, because headers cannot carry every alphabet.
    query = f"?{urlencode({'client': label})}" if label else ""
    connection = connect_websocket(
        _websocket_url(url) + query,
        additional_headers=headers,
        max_size=None,
        compression=None,
        proxy=None,  # the server is on this machine or on the local network
    )
    async with connection as websocket:

        async def send(text: str) -> None:
            with suppress(ConnectionClosed):  # `receive` reports that the connection is closed
                await websocket.send(text)

        async def receive() -> str | None:
            try:
                return await websocket.recv(decode=True)
            except ConnectionClosed:
                return None

        async with over(send, receive) as client:
            yield client


def _websocket_url(url: str) -> str:
    scheme, _, rest = url.rpartition("://")
    return f"{_SCHEMES.get(scheme, scheme)}://{rest}"


@asynccontextmanager
async def over(
    send: Callable[[str], Awaitable[None]], receive: Callable[[], Awaitable[str | None]]
) -> AsyncIterator[Client]:
    """Yield a client that reads frames while the block runs."""
    client = Client(send, receive)
    reading = asyncio.create_task(client.read())
    try:
        yield client
    finally:
        reading.cancel()
        await asyncio.wait({reading})
        if not reading.cancelled():
            reading.result()  # raises if a frame could not be read, or `on_message` failed


def _as_json(prompt: Prompt) -> str | list[int]:
    return prompt if isinstance(prompt, str) else list(prompt)
