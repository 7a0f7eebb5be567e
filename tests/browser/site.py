"""The static site for browser tests: built once for all test processes, served from a sub-folder."""

import fcntl
import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from authoring.lab import NOTEBOOKS, REPOSITORY


def built_site(shared: Path, lessons: str) -> Path:
    """Return a folder with the site, from UNDERGLASS_SITE or built into `shared`.

    The cells of `lessons` run while it is built; "" means all lessons.

    `shared` belongs to all processes of one test run. The first one builds, the others wait.
    """
    if ready := os.environ.get("UNDERGLASS_SITE"):
        return Path(ready)
    folder = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "cells.json").exists():
            paths = map(str, (REPOSITORY, NOTEBOOKS, REPOSITORY / "site" / "runtime"))
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
            environment["SITE_LESSONS"] = lessons
            command = [sys.executable, str(REPOSITORY / "site" / "build.py"), str(folder)]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return folder


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a site as a static host does, in a sub-folder; yield its address."""
    handler = functools.partial(_Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{_Handler.BASE}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(http.server.SimpleHTTPRequestHandler):
    BASE = "/a/folder/"
    protocol_version = "HTTP/1.1"

    def translate_path(self, path: str) -> str:
        if not path.startswith(self.BASE):
            return os.devnull + "/"  # 404: a page must not ask for anything outside its folder
        return super().translate_path("/" + path.removeprefix(self.BASE))

    def log_message(self, *_: object) -> None:
        pass
