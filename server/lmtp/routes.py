"""LMTP over a WebSocket, at `/` as LMQL's client expects it and at `/lmtp`.

Who may connect is decided before this (`server/hosts.py`, `server/middleware.py`): not a page of
another site, and with `--api-key` nobody without it.
"""

from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.websockets import WebSocket

from server.errors import no_route
from server.labels import label_in
from server.lmtp.session import Session
from server.models import Models


def install(app: Starlette, models: Models) -> None:
    """Add both routes to the app; a WebSocket to anywhere else gets a 404."""

    async def lmtp(websocket: WebSocket) -> None:
        await websocket.accept()
        # LMQL's client can send no header; an address it is given may have a query.
        label = websocket.headers.get("x-client") or websocket.query_params.get("client", "")
        session = Session(models, websocket.send_text, label_in(label))
        await session.serve(_frames(websocket))

    async def nowhere(websocket: WebSocket) -> None:
        await websocket.send_denial_response(no_route(websocket.url.path).response())

    for path in ("/", "/lmtp"):
        app.router.add_websocket_route(path, lmtp)
    app.router.add_websocket_route("/{path:path}", nowhere)


async def _frames(websocket: WebSocket) -> AsyncIterator[str]:
    """Text frames until the client leaves; binary ones have no meaning in LMTP."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("text") is not None:
            yield message["text"]
        else:
            await websocket.close(1003)
            return
