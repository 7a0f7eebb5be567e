"""Read GET /events from Python: server-sent events in batches, at most 25 per second."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx
from httpx_sse import EventSource, ServerSentEvent

READ_TIMEOUT = 40.0  # seconds; an idle server sends a comment every 15 seconds
PROBE_TIMEOUT = 5.0  # seconds
BATCH_SECONDS = 0.04  # events that arrive within this time form one batch
MAX_QUEUED = 10_000


class UnauthorizedError(Exception):
    """The server requires an API key, or a different one."""


def is_gateway(url: str, key: str | None) -> bool:
    """Return whether a gateway answers at this URL. If nothing answers, return False."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    health = f"{url.rstrip('/')}/health"
    try:
        answer = httpx.get(health, headers=headers, trust_env=False, timeout=PROBE_TIMEOUT)
        return "replicas" in answer.json()
    except (httpx.HTTPError, ValueError):
        return False


async def batches(
    url: str, key: str | None, last_seen: str | None
) -> AsyncGenerator[list[ServerSentEvent]]:
    """Yield a server's events in batches until the connection ends. Raises httpx.HTTPError.

    `last_seen` is the id of the last event received; the stream continues after that event.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if last_seen is not None:
        headers["Last-Event-ID"] = last_seen
    options: dict[str, Any] = {"trust_env": False, "verify": url.startswith("https:")}
    timeout = httpx.Timeout(10.0, read=READ_TIMEOUT)
    async with (
        httpx.AsyncClient(**options, timeout=timeout) as client,
        client.stream("GET", f"{url}/events", headers=headers) as response,
    ):
        if response.status_code == 401:
            raise UnauthorizedError
        response.raise_for_status()
        queue: asyncio.Queue[ServerSentEvent | None] = asyncio.Queue(MAX_QUEUED)
        reading = asyncio.create_task(_read(response, queue))
        try:
            ended = False
            while not ended:
                batch = [await queue.get()]
                await asyncio.sleep(BATCH_SECONDS)
                while not queue.empty():
                    batch.append(queue.get_nowait())
                ended = batch[-1] is None
                if events := [event for event in batch if event is not None]:
                    yield events
            await reading
        finally:
            reading.cancel()


async def _read(response: httpx.Response, queue: "asyncio.Queue[ServerSentEvent | None]") -> None:
    """Put the events into the queue, then None."""
    try:
        async for event in EventSource(response).aiter_sse():
            if event.data:  # a comment has no data
                await queue.put(event)
    finally:
        await queue.put(None)
