"""Read GET /events from Python: server-sent events in batches, at most 25 per second."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import msgspec

READ_TIMEOUT = 40.0  # seconds; an idle server sends a comment every 15 seconds
BATCH_SECONDS = 0.04  # events that arrive within this time form one batch
MAX_QUEUED = 10_000


class ServerEvent(msgspec.Struct):
    """One server-sent event."""

    id: str = ""
    name: str = ""
    data: str = ""


class UnauthorizedError(Exception):
    """The server requires an API key, or a different one."""


async def batches(
    url: str, key: str | None, last_seen: str | None
) -> AsyncGenerator[list[ServerEvent]]:
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
        queue: asyncio.Queue[ServerEvent | None] = asyncio.Queue(MAX_QUEUED)
        reading = asyncio.create_task(_read(response, queue))
        try:
            event: ServerEvent | None = ServerEvent()
            while event is not None:
                event = await queue.get()
                await asyncio.sleep(BATCH_SECONDS)
                batch: list[ServerEvent] = []
                while event is not None:
                    batch.append(event)
                    if queue.empty():
                        break
                    event = queue.get_nowait()
                if batch:
                    yield batch
            await reading
        finally:
            reading.cancel()


async def _read(response: httpx.Response, queue: "asyncio.Queue[ServerEvent | None]") -> None:
    try:
        event = ServerEvent()
        async for line in response.aiter_lines():
            field, _, value = line.partition(": ")
            if field == "id":
                event.id = value
            elif field == "event":
                event.name = value
            elif field == "data":
                event.data = value
            elif not line and event.data:
                await queue.put(event)
                event = ServerEvent()
    finally:
        await queue.put(None)
