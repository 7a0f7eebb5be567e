"""/tour: what happened in a running engine, or in a cluster, as scenes for the live page.

A tour takes about 0.03 ms per event, so it is told by another process, and all who ask share it.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakKeyDictionary

from fastapi import APIRouter
from starlette.responses import Response

from server.api.apart import run_apart
from server.api.shared_answer import SharedAnswer
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
    router = APIRouter(tags=["Event log"])
    tours = WeakKeyDictionary[Any, SharedAnswer[bytes]]()  # of each model's engine

    @router.get("/tour", response_class=Response, responses=TOUR)
    async def tour(model: ViewedModel = None) -> Response:
        """Tell what happened in the most recent part of the event log, in five to nine scenes."""
        bridge = models.viewed(model)
        shared = tours.setdefault(bridge, SharedAnswer())
        told = await shared.get(lambda: told_apart(bridge.window.trace()))
        return Response(told, media_type="application/json")

    return router


async def told_apart(events: Sequence[Any]) -> bytes:
    """Return the tour of events as JSON, told by another process."""
    with TemporaryDirectory(prefix="underglass-") as folder:
        path = Path(folder) / "log.jsonl"
        path.write_bytes(await asyncio.to_thread(json_lines, events))
        return await run_apart("the tour", "tour", "visualizer.reading.tour", path)
