"""A real Chromium, and pages that fail a test on a script error or on a request off the machine."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

REPOSITORY = Path(__file__).parents[2]
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
    if path is None:
        missing = "no Chromium on this machine: install the package `chromium`"
        if os.environ.get("UNDERGLASS_REQUIRE_BROWSER"):
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        yield browser
        browser.close()


NewPage = Callable[..., Page]


@pytest.fixture
def new_page(chromium: Browser) -> Iterator[NewPage]:
    """Opens pages of a size; at the end of the test none may have erred or looked outside."""
    faults: list[str] = []
    contexts = []

    def open_page(width: int = 1280, height: int = 860, **options: object) -> Page:
        viewport = {"width": width, "height": height}
        context = chromium.new_context(viewport=viewport, **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(f"page error: {error}"))
        page.on("request", lambda request: faults.extend(_outside(request.url)))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults, "\n".join(faults)


def _outside(url: str) -> list[str]:
    parts = urlsplit(url)
    local = parts.scheme in ("file", "blob", "data", "about") or parts.hostname in (
        "127.0.0.1",
        "localhost",
    )
    return [] if local else [f"request off the machine: {url}"]


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A JupyterLab with a home of its own: its address, and the folder it serves."""
    home = tmp_path_factory.mktemp("jupyter")
    work = home / "work"
    work.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kinds = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    environment = {**os.environ, **{kind: str(home / kind.lower()) for kind in kinds}}
    environment["PYTHONPATH"] = str(REPOSITORY)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1", f"--notebook-dir={work}"]
    command += ["--IdentityProvider.token=", "--LabApp.news_url=None"]
    command += ["--LabApp.expose_app_in_browser=True", "--LabApp.check_for_updates_class="]
    command[-1] += "jupyterlab.NeverCheckForUpdate"
    address = f"http://127.0.0.1:{port}"
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=work)
        try:
            _wait_until_up(f"{address}/api/status", server, home / "server.log")
            yield address, work
        finally:
            server.terminate()
            server.wait(20)


def _wait_until_up(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            server.poll()
            time.sleep(0.1)  # between two attempts to connect; nothing else can be waited for
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")
