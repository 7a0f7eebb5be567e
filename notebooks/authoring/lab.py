"""Run a lesson in a real JupyterLab in a real Chromium.

`make notebooks` uses it to take the pictures of the committed lessons, and the browser tests to check
what is drawn.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page

REPOSITORY = Path(__file__).parents[2]
NOTEBOOKS = REPOSITORY / "notebooks"
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDGET = "application/vnd.jupyter.widget-view+json"
PATIENCE_MS = 240_000  # for a whole lesson on a busy machine

# jsonschema compiles this package's grammar for a check that we do not use, which takes two seconds.
_START = """import sys; sys.modules["rfc3987_syntax"] = None
from jupyterlab.labapp import main; main()"""
# Lessons do not need these parts of JupyterLab. Without them, a page takes a fifth less CPU time.
_UNUSED = (
    "celltags csvviewer debugger extensionmanager help htmlviewer imageviewer inspector logconsole "
    "markdownviewer mermaid pluginmanager running settingeditor terminal tooltip"
).split()
_IDLE = """async ([address, name]) => {
  const sessions = await (await fetch(`${address}/api/sessions`)).json();
  return sessions.some(({ path, kernel }) => path === name && kernel?.execution_state === "idle");
}"""
# Awaiting the command's promise would never end.
_RUN_ALL = """async () => {
  window.lessonHasRun = false;
  await window.jupyterapp.shell.currentWidget.sessionContext.ready;
  window.jupyterapp.commands.execute("notebook:run-all-cells").finally(() => {
    window.lessonHasRun = true;
  });
}"""
# All cells, also those that are scrolled out of sight and therefore not on the page.
_CELLS = "() => window.jupyterapp.shell.currentWidget.model.sharedModel.toJSON().cells"
_SCROLL = """async (index) => {
  const { content } = window.jupyterapp.shell.currentWidget;
  content.activeCellIndex = index;
  await content.scrollToItem(index, "start");
}"""


class LabError(RuntimeError):
    """JupyterLab did not start; the message is its output."""


@contextmanager
def jupyterlab(home: Path, work: Path) -> Iterator[str]:
    """Run JupyterLab on the folder `work`, with a home of its own; yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kinds = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    environment = {**os.environ, **{kind: str(home / kind.lower()) for kind in kinds}}
    # The lessons in workbook/ import what lies in notebooks/, as with `make lab`.
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (REPOSITORY, NOTEBOOKS)))
    command = [sys.executable, "-P", "-c", _START, "--no-browser", "--allow-root"]
    command += [f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1", f"--notebook-dir={work}"]
    command += ["--IdentityProvider.token=", "--LabApp.expose_app_in_browser=True"]
    command += [f"--LabApp.app_settings_dir={NOTEBOOKS / 'lab-settings'}"]  # no news
    config = home / "jupyter_config_dir" / "labconfig" / "page_config.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    off = {f"@jupyterlab/{name}-extension": True for name in _UNUSED}
    config.write_text(json.dumps({"disabledExtensions": off}), "utf-8")
    address = f"http://127.0.0.1:{port}"
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=work)
        try:
            _wait_until_up(f"{address}/api/status", server, home / "server.log")
            yield address
        finally:
            server.terminate()
            server.wait(20)


def _wait_until_up(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            server.poll()
            time.sleep(0.1)  # between two attempts to connect; nothing else can be waited for
    raise LabError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


def copy_of_lessons(work: Path) -> Path:
    """Copy the lessons and their imports into `work`, so that runs change nothing here."""
    lessons = work / "notebooks"
    ignored = shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__")
    shutil.copytree(NOTEBOOKS, lessons, ignore=ignored, dirs_exist_ok=True)
    return lessons


def open_notebook(page: Page, address: str, name: str) -> None:
    """Open a notebook and wait until its kernel is idle."""
    page.goto(f"{address}/lab/tree/{name}?reset")
    page.wait_for_selector(".jp-NotebookPanel .jp-Notebook .jp-Cell", timeout=60_000)
    # The indicator is idle too early, so ask the kernel first.
    page.wait_for_function(_IDLE, arg=[address, name], timeout=60_000)
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]", timeout=60_000)


def run_all(page: Page) -> None:
    """Run all cells of the open notebook, to the end or to the first error."""
    page.evaluate(_RUN_ALL)
    page.wait_for_function("() => window.lessonHasRun", timeout=PATIENCE_MS)


def set_theme(page: Page, name: str) -> None:
    """Set JupyterLab's theme, by its name."""
    change = "name => window.jupyterapp.commands.execute('apputils:change-theme', { theme: name })"
    page.evaluate(change, name)


def cells(page: Page) -> list[dict[str, Any]]:
    """Return the open notebook's cells with outputs, as they would be saved."""
    found: list[dict[str, Any]] = page.evaluate(_CELLS)
    return found


def cell(page: Page, index: int) -> Locator:
    """Scroll to a cell of the open notebook, counted from 0, and return it."""
    page.evaluate(_SCROLL, index)
    return page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"]')


def close_notebook(page: Page, address: str) -> None:
    """Close the page and end its notebook's kernel, which holds a few hundred MB.

    In this order: what a page still has under way fails when its kernel goes.
    """
    requests, cookies = page.context.request, page.context.cookies(address)
    session = page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session?.id"
    )
    page.close()
    token = next(one["value"] for one in cookies if one["name"] == "_xsrf")
    if session:
        requests.delete(f"{address}/api/sessions/{session}", headers={"X-XSRFToken": token})
