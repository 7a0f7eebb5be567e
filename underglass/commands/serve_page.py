"""Serve a command's page on this machine, and open it in the browser."""

import os
import sys
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from underglass.commands.options import fail, tell

if TYPE_CHECKING:
    from visualizer.live.live_log import LiveSource
    from visualizer.live.local_server import Route

_PATIENCE = 2.0  # seconds that a source has to end after Ctrl-C


def serve_live(
    source: "LiveSource",
    title: str,
    *,
    theme: str | None,
    text: bool,
    port: int,
    browser: bool | None,
) -> None:
    """Serve the page of a live source until Ctrl-C, and close the source."""
    from visualizer.live.live_log import LiveLog
    from visualizer.live.pages import live_routes
    from visualizer.sources.collector import collect_rarely

    collect_rarely()
    log = LiveLog(title)
    thread = log.follow(source, text=text, tell=tell)
    try:
        serve(live_routes(log, theme), port, browser)
    finally:
        source.close()
        thread.join(_PATIENCE)  # the thread may be writing to the file of --save


def serve(routes: "Mapping[str, Route]", port: int, browser: bool | None) -> None:
    """Serve a page until Ctrl-C."""
    from visualizer.live.local_server import LocalServer

    try:
        server = LocalServer(routes, port)
    except OSError as error:
        fail(
            f"--port cannot be {port}: {error.strerror}; choose another port, or 0 for any free one"
        )
    with server:
        typer.echo(server.address)
        typer.echo("Only this machine can open the page. Ctrl-C ends it.", err=True)
        if _can_browse() if browser is None else browser:
            webbrowser.open(server.address)
        with suppress(KeyboardInterrupt):
            server.run()


def _can_browse() -> bool:
    """Return whether a browser with windows can be opened: not over SSH, for example."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
