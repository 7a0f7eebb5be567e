"""Serve a command's page on this machine, and open it in the browser."""

import _thread
import os
import re
import sys
import threading
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from underglass.commands.options import fail, tell
from underglass.commands.read_log import ended_by_sigterm

if TYPE_CHECKING:
    from visualizer.live.live_log import LiveSource
    from visualizer.live.local_server import Route

HOST = "127.0.0.1"
SECRET = "UNDERGLASS_PAGE_KEY"  # the secret part of a page's address; not on the command line
_PATIENCE = 2.0  # seconds that a source has to end after Ctrl-C


def serve_live(
    source: "LiveSource",
    title: str,
    *,
    theme: str | None,
    text: bool,
    port: int,
    browser: bool | None,
    host: str = HOST,
    until_end: bool = False,
) -> None:
    """Serve the page of a live source until Ctrl-C, or until its end, and close the source."""
    from visualizer.live.live_log import LiveLog
    from visualizer.live.pages import live_routes
    from visualizer.sources.collector import collect_rarely

    collect_rarely()
    log = LiveLog(title)
    thread = log.follow(source, text=text, tell=tell)
    if until_end:
        threading.Thread(target=_interrupt_after, args=[thread], daemon=True).start()
    try:
        serve(live_routes(log, theme), port, browser, host)
    finally:
        source.close()
        thread.join(_PATIENCE)  # the thread may be writing to the file of --save


def _interrupt_after(thread: threading.Thread) -> None:
    """End the main thread as Ctrl-C does, once another one has ended."""
    thread.join()
    _thread.interrupt_main()


def serve(routes: "Mapping[str, Route]", port: int, browser: bool | None, host: str = HOST) -> None:
    """Serve a page until Ctrl-C."""
    from visualizer.live.local_server import LOOPBACK, LocalServer

    secret = os.environ.get(SECRET, "")
    if secret and not re.fullmatch(r"[\w-]{16,}", secret):
        fail(f"{SECRET} must be at least 16 letters, digits, _ or -")
    try:
        server = LocalServer(routes, port, host, secret)
    except OSError as error:
        fail(
            f"cannot listen at {host}:{port}: {error.strerror}; choose another --port or --host, "
            "or port 0 for any free one"
        )
    with server, ended_by_sigterm():  # the page may be making the index of a long log
        typer.echo(server.address)
        which = "This machine alone" if host in LOOPBACK else "Any machine that knows this address"
        typer.echo(f"{which} can open the page. Ctrl-C ends it.", err=True)
        if _can_browse() if browser is None else browser:
            webbrowser.open(server.address)
        with suppress(KeyboardInterrupt):
            server.run()


def _can_browse() -> bool:
    """Return whether a browser with windows can be opened: not over SSH, for example."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
