"""LMTP over a WebSocket, at `/` as LMQL's client expects it and at `/lmtp`.

Who may connect is decided before this (`server/http/access.py`): not a
page of another site, and with `--api-key` nobody without it.
"""

from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.websockets import WebSocket, WebSocketDisconnect

from server.api.lmtp.session import Session
from server.core.labels import label_in
from server.core.models import Models
from server.http.errors import no_route


def install(app: Starlette, models: Models) -> None:
    """Add both routes to the app; a WebSocket to anywhere else gets a 404."""

    async def lmtp(websocket: WebSocket) -> None:
        await websocket.accept()
        # LMQL's client can send no header; an address it is given may have a query.
        label = websocket.headers.get("x-client") or websocket.query_params.get("client", "")
        context = websocket.state.context
        session = Session(models, websocket.send_text, label_in(label), context)
        try:
            await session.serve(_frames(websocket))
        except _NotTextError:
            await websocket.close(1003)
        except WebSocketDisconnect:  # while a frame was being sent
            pass

    async def nowhere(websocket: WebSocket) -> None:
        await websocket.send_denial_response(no_route(websocket.url.path).response())

    for path in ("/", "/lmtp"):
        app.router.add_websocket_route(path, lmtp)
    app.router.add_websocket_route("/{path:path}", nowhere)


class _NotTextError(Exception):
    """A binary frame, which has no meaning in LMTP."""


async def _frames(websocket: WebSocket) -> AsyncIterator[str]:
    """Text frames until the client leaves. Raises _NotTextError."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("text") is None:
            raise _NotTextError
        yield message["text"]
