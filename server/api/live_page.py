"""The live page at `/` and the files it is made of. All come from this server: it works offline.

    server/pages/            the page: its frame, its style, the prompt box and the teacher's buttons
    visualizer/static/       the board, the same module that draws in notebooks

The files hold nothing of what anybody asked, so they need no key; the page asks for one where the
server has one, and sends it with everything else.
"""

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

PAGES = Path(__file__).parents[1] / "pages"
BOARD = Path(__file__).parents[2] / "visualizer" / "static"

# A browser loads nothing from elsewhere for this page, whatever a prompt may hold, and shows it in
# no other site's frame. The board unpacks itself into a Blob and brings its style with it.
_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'self' blob:; "
    "style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Asked for each time, so that nobody looks at a new server with an old page.
_HEADERS = {"Cache-Control": "no-cache"}


class _Files(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response


def install(app: FastAPI) -> None:
    """Serve the page at `/` and its files below `/page/` and `/board/`."""
    if not (BOARD / "board.js").exists():
        raise FileNotFoundError(f"{BOARD / 'board.js'} is missing: build it with `make bundle`")
    app.mount("/page", _Files(directory=PAGES))
    app.mount("/board", _Files(directory=BOARD))

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        headers = {**_HEADERS, "Content-Security-Policy": _POLICY}
        return FileResponse(PAGES / "live.html", headers=headers)
