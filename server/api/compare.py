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

from server.api.live import previous_run
from server.api.operation import check_allowed
from server.core.event_log import json_lines
from server.core.models import Models, ViewedModel
from server.http.errors import ApiError, unavailable
from underglass import child

SECONDS = 60.0
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
                return Response(await _compare(paths), media_type="application/json")

    return router


async def _compare(paths: list[Path]) -> bytes:
    """Return the output of `visualizer/comparing/__main__.py`."""
    process = await asyncio.create_subprocess_exec(
        *child.python("visualizer.comparing", *paths, *_NAMES),
        env=child.environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        message = f"the comparison took longer than {SECONDS:.0f} s: compare shorter runs"
        raise unavailable(message, "compare_too_slow") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise ApiError(
            500, f"the comparison failed: {last}", type="server_error", code="compare_failed"
        )
    return output
