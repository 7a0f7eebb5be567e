"""LMTP over a WebSocket, at `/lmtp` and at `/`, where LMQL's client expects it.

Middleware (`server/http/access.py`) has already checked the client. It rejects pages from other sites
and, with `--api-key`, clients without the key.
"""

from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.websockets import WebSocket, WebSocketDisconnect

from server.api.lmtp.session import Session
from server.core.models import Models
from server.http.errors import no_route
from server.http.request_log import label_in


def install(app: Starlette, models: Models) -> None:
    """Add both routes to the app; a WebSocket to any other path gets a 404."""

    async def lmtp(websocket: WebSocket) -> None:
        await websocket.accept()
        # LMQL's client cannot send a header, but its URL may have a query.
        label = websocket.headers.get("x-client") or websocket.query_params.get("client", "")
        context = websocket.state.context
        session = Session(models, websocket.send_text, label_in(label), context)
        try:
            await session.serve(_frames(websocket))
        except _NotTextError:
            await websocket.close(1003)
        except WebSocketDisconnect:  # the client left while a frame was being sent
            pass

    async def not_found(websocket: WebSocket) -> None:
        await websocket.send_denial_response(no_route(websocket.url.path).response())

    for path in ("/", "/lmtp"):
        app.router.add_websocket_route(path, lmtp)
    app.router.add_websocket_route("/{path:path}", not_found)


class _NotTextError(Exception):
    """A binary frame, which LMTP does not use."""


async def _frames(websocket: WebSocket) -> AsyncIterator[str]:
    """Yield text frames until the client disconnects. Raises _NotTextError."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("text") is None:
            raise _NotTextError
        yield message["text"]
