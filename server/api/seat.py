"""/seat: decide a step of the run otherwise, on a copy of its log.

The engine and its clients notice nothing: another process runs the copied log again on a simulated
machine, one at a time, with a low priority and a time limit.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import StreamingResponse

from server.api.apart import SECONDS, process_apart
from server.core.event_log import json_lines
from server.core.models import Models, ViewedModel
from server.http.access import check_allowed
from server.http.errors import ApiError, unavailable
from server.http.fields import Strict

MOST_EVENTS = 150_000
LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A line of JSON for each answer; the last one has `done`. Logs are base64.",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}


class SeatQuestion(Strict):
    """A body for /seat."""

    seat: Literal["decisions", "take", "helped"] = Field(
        description=(
            "`decisions` of `step` and their candidates; `take` a `choice` in `step`; or what would "
            "have `helped`."
        )
    )
    step: int | None = Field(None, ge=1, description="A step of the log.")
    choice: dict[str, Any] | None = Field(
        None, description='A candidate\'s choice, such as {"type": "victim", "request": 1}.'
    )
    replica: str | None = Field(
        None, description="A replica's id, as in a gateway's /health: its log is run again alone."
    )


def routes(models: Models) -> APIRouter:
    """Return the route /seat."""
    router = APIRouter(tags=["Event log"])
    one_at_a_time = asyncio.Lock()

    @router.post("/seat", response_class=StreamingResponse, responses=LINES)
    async def seat(
        request: Request, body: SeatQuestion, model: ViewedModel = None
    ) -> StreamingResponse:
        """Run a copy of the log again and decide a step otherwise, for the live page."""
        check_allowed(request, models.settings)
        if one_at_a_time.locked():
            raise unavailable("another choice is being run: wait until it ends", "seat_taken")
        events = models.viewed(model).window.trace()
        if len(events) > MOST_EVENTS:
            raise ApiError(
                409,
                f"the log has {len(events):,} events, and at most {MOST_EVENTS:,} are run again",
                code="log_too_long",
            )
        question = json.dumps(body.model_dump(exclude_none=True))
        log = await asyncio.to_thread(json_lines, events)
        return StreamingResponse(
            _answers(log, question, one_at_a_time), media_type="application/x-ndjson"
        )

    return router


async def _answers(log: bytes, question: str, turn: asyncio.Lock) -> AsyncIterator[bytes]:
    """Yield the lines of `visualizer/seat/__main__.py`, and an error if it is too slow or fails."""
    async with turn:
        with TemporaryDirectory(prefix="underglass-") as folder:
            path = Path(folder) / "log.jsonl"
            await asyncio.to_thread(path.write_bytes, log)
            async with process_apart("visualizer.seat", path, question) as process:
                assert process.stdout is not None
                try:
                    async with asyncio.timeout(SECONDS):
                        async for line in process.stdout:
                            yield line
                        failed = await process.wait()
                    said = "the log could not be run again" if failed else ""
                except TimeoutError:
                    said = (
                        f"running the log again took longer than {SECONDS:.0f} s: use a shorter run"
                    )
        if said:
            yield json.dumps({"error": said, "done": True}).encode() + b"\n"
