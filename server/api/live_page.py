"""The live page at `/` and its files. All files come from this server, so the page works offline.

    server/pages/            the page: layout, style, prompt box and the teacher's buttons
    visualizer/static/       the board: the module that also draws in notebooks

The files contain no user data and need no key. If the server has a key, the page asks the user for it
and sends it with its other requests.
"""

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

PAGES = Path(__file__).parents[1] / "pages"
BOARD = Path(__file__).parents[2] / "visualizer" / "static"

# Whatever a prompt contains, the page loads nothing from other sites, and other sites cannot frame it.
# Blob scripts and inline styles are allowed because the board's module unpacks itself into a Blob and
# brings its own style.
_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'self' blob:; "
    "style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Browsers revalidate the files on every load, so they never show an old page for a new server.
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
