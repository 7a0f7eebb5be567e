"""A small client for notebooks, with the teaching stream, the teacher's controls and the trace.

    client = Client(server.url)
    client.pause()                                          # pause the engine
    streams = await client.queue([{"prompt": "Once", "label": "Ada"}, {"prompt": "Hi", "label": "Bo"}])
    client.resume()
    async for event in client.read(streams):                # as the tokens arrive
        print(event.label, event.token)
    log = client.trace()

Requests queued while the engine is paused arrive in the order of the list, so every run produces the
same log.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import underglass.shadowed  # noqa: F401 (first, because it names a file that hides the engine)
from engine.core.extras import needs_extra
from engine.core.log.log import EventLog

with needs_extra("server.client"):
    import httpx
    from httpx_sse import EventSource


class RequestFailedError(RuntimeError):
    """The server rejected a request or ended it with an error. The message comes from the server.

    Also raised when a stream is read twice, for example by rerunning a notebook cell.
    """


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a teaching stream.

    label, request  the request's label and its id in the event log
    at              when the event was received, in seconds; only differences are meaningful
    token           the token's text; empty in the last event and while a character is incomplete
    token_id        the token's id; None in the last event
    ttft_ms         time to first token; only set with the first token
    full_text       the whole text; only set in the last event
    finish_reason   "stop" or "length"; only set in the last event
    """

    label: str
    request: int
    at: float
    token: str = ""
    token_id: int | None = None
    ttft_ms: float | None = None
    full_text: str | None = None
    finish_reason: str | None = None


class Stream:
    """A request in the engine's queue. Iterate over it to receive its events."""

    def __init__(self, label: str, connection: httpx.AsyncClient, response: httpx.Response) -> None:
        self.label = label
        self.request = int(response.headers["x-underglass-request"])
        self._connection = connection
        self._response = response

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        """Yield the events. Leaving the loop early closes the connection and ends the request.

        Raises RequestFailedError if the request fails, or if the stream has already been read.
        """
        if self._response.is_stream_consumed:
            raise RequestFailedError("this stream has already been read: send the request again")
        try:
            async for sent in EventSource(self._response).aiter_sse():
                data = sent.json()
                if "error" in data:
                    raise RequestFailedError(data["error"]["message"])
                yield StreamEvent(
                    self.label,
                    self.request,
                    time.perf_counter(),
                    data.get("token", ""),
                    data.get("token_id"),
                    data.get("ttft_ms"),
                    data.get("full_text"),
                    data.get("finish_reason"),
                )
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connection; the engine ends the request if it has not finished."""
        await self._response.aclose()
        await self._connection.aclose()


class Client:
    """A client of one server. Streams are asynchronous; everything else is synchronous.

    Every request raises ConnectionError if no server answers at `url`.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._options: dict[str, Any] = {
            "base_url": url,
            "headers": headers,
            "trust_env": False,  # no proxies: the server is local or nearby
            "verify": url.startswith("https:"),  # http needs no certificates, which load slowly
        }
        self._http = httpx.Client(**self._options, timeout=60)
        self._url = url

    def pause(self) -> int:
        """Pause the engine; return the number of the last step."""
        return int(self._json("POST", "/engine/pause")["step"])

    def resume(self) -> int:
        """Resume the engine; return the number of the last step."""
        return int(self._json("POST", "/engine/resume")["step"])

    def step(self, steps: int = 1) -> int:
        """Run `steps` steps of a paused engine, then return the number of the last step."""
        return int(self._json("POST", "/engine/step", {"steps": steps})["step"])

    def health(self) -> dict[str, Any]:
        """Return the engine's state after its last step, or why it has failed."""
        response = self._request("GET", "/health")
        if response.status_code != 503:  # the engine has failed
            _check(response)
        health: dict[str, Any] = response.json()
        return health

    def trace(self) -> EventLog:
        """Return the event log so far."""
        response = self._request("GET", "/trace")
        _check(response)
        return EventLog.from_bytes(response.content)

    async def submit(
        self, prompt: str, *, max_tokens: int = 50, label: str = "", **fields: object
    ) -> Stream:
        """Send one request; return once it is in the engine's queue."""
        # Each stream has its own connection, so no stream waits for another. There is no timeout,
        # because a teacher may leave the engine paused for a long time.
        connection = httpx.AsyncClient(**self._options, timeout=None)
        # The label is sent as `user`, because the X-Client header cannot carry every alphabet.
        body = {"prompt": prompt, "max_tokens": max_tokens, "user": label or None} | fields
        request = connection.build_request("POST", "/v1/completions", json=body)
        with self._naming_the_server():
            response = await connection.send(request, stream=True)
        if response.is_error:
            await response.aread()
            await connection.aclose()
        _check(response)
        return Stream(label, connection, response)

    async def queue(self, requests: Sequence[Mapping[str, Any]]) -> list[Stream]:
        """Send requests in order, each as soon as the previous one is in the queue.

        Each request is a mapping of `submit`'s arguments.
        """
        return [await self.submit(**request) for request in requests]

    async def read(self, streams: Sequence[Stream]) -> AsyncIterator[StreamEvent]:
        """Yield the events of all streams as they arrive. Raises RequestFailedError if one fails."""
        received: asyncio.Queue[StreamEvent | Exception | None] = asyncio.Queue()

        async def pump(stream: Stream) -> None:
            try:
                async for event in stream:
                    received.put_nowait(event)
                received.put_nowait(None)
            except Exception as error:  # `read` raises it; otherwise it would wait forever
                received.put_nowait(error)

        tasks = [asyncio.create_task(pump(stream)) for stream in streams]
        try:
            open_streams = len(tasks)
            while open_streams:
                event = await received.get()
                if isinstance(event, Exception):
                    raise event
                if event is None:
                    open_streams -= 1
                else:
                    yield event
        finally:
            for task in tasks:
                task.cancel()

    def _request(self, method: str, path: str, body: object = None) -> httpx.Response:
        with self._naming_the_server():
            return self._http.request(method, path, json=body)

    @contextmanager
    def _naming_the_server(self) -> Iterator[None]:
        """Raise ConnectionError, instead of httpx's long traceback, if no server answers."""
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise ConnectionError(
                f"no server answers at {self._url} ({error}): start one with `underglass serve`, or "
                "correct the URL"
            ) from None

    def _json(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        response = self._request(method, path, body)
        _check(response)
        answer: dict[str, Any] = response.json()
        return answer


def _check(response: httpx.Response) -> None:
    if response.is_error:
        raise RequestFailedError(response.json()["error"]["message"])
