"""GET /events from Python: server-sent events in batches, to pass on a few times a second."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import msgspec

SILENCE = 40.0  # seconds; a server with nothing to say sends a comment every 15
TOGETHER = 0.04  # seconds: what comes within them is one batch


class Sent(msgspec.Struct):
    """One server-sent event."""

    id: str = ""
    name: str = ""
    data: str = ""


class RefusedError(Exception):
    """The server asks for a key, or for another one."""


async def batches(url: str, key: str | None, last_seen: str | None) -> AsyncGenerator[list[Sent]]:
    """What a server sends, in batches; ends or raises httpx.HTTPError when the connection does."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if last_seen is not None:
        headers["Last-Event-ID"] = last_seen
    options: dict[str, Any] = {"trust_env": False, "verify": url.startswith("https:")}
    timeout = httpx.Timeout(10.0, read=SILENCE)
    async with (
        httpx.AsyncClient(**options, timeout=timeout) as client,
        client.stream("GET", f"{url}/events", headers=headers) as response,
    ):
        if response.status_code == 401:
            raise RefusedError
        response.raise_for_status()
        queue: asyncio.Queue[Sent | None] = asyncio.Queue(10_000)
        reading = asyncio.create_task(_read(response, queue))
        try:
            sent: Sent | None = Sent()
            while sent is not None:
                sent = await queue.get()
                await asyncio.sleep(TOGETHER)
                batch: list[Sent] = []
                while sent is not None:
                    batch.append(sent)
                    if queue.empty():
                        break
                    sent = queue.get_nowait()
                if batch:
                    yield batch
            await reading
        finally:
            reading.cancel()


async def _read(response: httpx.Response, queue: "asyncio.Queue[Sent | None]") -> None:
    try:
        sent = Sent()
        async for line in response.aiter_lines():
            field, _, value = line.partition(": ")
            if field == "id":
                sent.id = value
            elif field == "event":
                sent.name = value
            elif field == "data":
                sent.data = value
            elif not line and sent.data:
                await queue.put(sent)
                sent = Sent()
    finally:
        await queue.put(None)
