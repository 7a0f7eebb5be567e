"""/tour: what happened in a running engine, or in a cluster, as scenes for the live page.

A tour takes about 0.03 ms per event, so it is told by another process, and only one at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from server.api.apart import run_apart
from server.core.event_log import json_lines
from server.core.models import Models, ViewedModel

TOUR: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`scenes`: each has a picture, sentences, and the requests that are lit.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


def routes(models: Models) -> APIRouter:
    """Return the route /tour of the loaded models."""
    router, tell = APIRouter(tags=["Event log"]), teller()

    @router.get("/tour", response_class=Response, responses=TOUR)
    async def tour(model: ViewedModel = None) -> Response:
        """Tell what happened in the most recent part of the event log, in five to nine scenes."""
        return await tell(models.viewed(model).window.trace)

    return router


def teller() -> Callable[[Callable[[], Iterable[Any]]], Awaitable[Response]]:
    """Return a coroutine that tells the events that a function returns, one tour at a time."""
    one_at_a_time = asyncio.Lock()

    async def tell(events: Callable[[], Iterable[Any]]) -> Response:
        async with one_at_a_time:
            with TemporaryDirectory(prefix="underglass-") as folder:
                path = Path(folder) / "log.jsonl"
                path.write_bytes(await asyncio.to_thread(json_lines, list(events())))
                told = await run_apart("the tour", "tour", "visualizer.reading.tour", path)
        return Response(told, media_type="application/json")

    return tell
