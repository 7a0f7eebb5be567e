"""/compare: the run before the last restart and the current one, compared.

The comparison holds the GIL while it reads both logs, so it runs in a separate process. Only one
comparison runs at a time.
"""

import asyncio
import gzip
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from server.api.apart import run_apart
from server.api.live import previous_run
from server.core.event_log import json_lines
from server.core.models import Models, ViewedModel
from server.http.access import check_allowed
from server.http.errors import ApiError

_NAMES = ("the old run", "the new run")
_COMPARED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": (
            "`logs`: both logs, gzipped and encoded in base64; `facts`: the differences that the "
            "page draws and describes."
        ),
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


def routes(models: Models) -> APIRouter:
    """Return the route /compare."""
    router = APIRouter(tags=["Event log"])
    one_at_a_time = asyncio.Lock()

    @router.get("/compare", response_class=Response, responses=_COMPARED)
    async def compare(request: Request, model: ViewedModel = None) -> Response:
        """Compare the run before the last /engine/restart with the current one, for the live page."""
        check_allowed(request, models.settings)
        bridge = models.viewed(model)
        previous = previous_run(bridge)
        if bridge.window.state.step == 0:
            raise ApiError(
                409,
                "there is nothing to compare: the new run has no steps yet",
                code="nothing_to_compare",
            )
        events = bridge.window.trace()
        async with one_at_a_time:
            with TemporaryDirectory(prefix="underglass-") as folder:
                paths = [Path(folder) / name for name in ("old.jsonl", "new.jsonl")]
                paths[0].write_bytes(await asyncio.to_thread(gzip.decompress, previous.log))
                paths[1].write_bytes(await asyncio.to_thread(json_lines, events))
                facts = await run_apart(
                    "the comparison", "compare", "visualizer.comparing", *paths, *_NAMES
                )
                return Response(facts, media_type="application/json")

    return router
