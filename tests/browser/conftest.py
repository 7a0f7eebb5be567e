"""A real Chromium, and pages that fail a test on a script error or on a request off the machine."""

import fcntl
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from authoring.lab import CHROMIUM_FLAGS, REPOSITORY, close_notebook, jupyterlab, open_notebook
from tests.browser.exported import exports, open_board
from tests.browser.live import hang_up
from tests.browser.notebooks import run_cell, write_notebook
from tests.browser.site import built_site, served
from visualizer.pictures import chromium_path

__all__ = ["REPOSITORY", "NewPage", "exports", "open_board"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def chromium():
    # The shell has no windows, and needs half the CPU time for a page.
    path = shutil.which("chromium-headless-shell") or chromium_path()
    if path is None:
        missing = "no Chromium on this machine: install `chromium-headless-shell` or `chromium`"
        if os.environ.get("UNDERGLASS_REQUIRE_BROWSER"):
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


NewPage = Callable[..., Page]


@pytest.fixture
def new_page(chromium):
    """Opens pages of a size; at the end of the test none may have erred or looked outside."""
    faults: list[str] = []
    contexts = []

    def open_page(width: int = 1280, height: int = 860, **options: object) -> Page:
        viewport = {"width": width, "height": height}
        context = chromium.new_context(viewport=viewport, **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.extend(_fault(str(error))))
        page.on("request", lambda request: faults.extend(_outside(request.url)))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults, "\n".join(faults)


# Messages of notebook software that mean no fault of a page. anywidget reports a widget that is not
# ready within two seconds, and shows it when it is ready; a widget that never is fails its test.
# JupyterLab throws when a widget sends its state after the test has ended the kernel.
HARMLESS = ("[anywidget] Failed to initialize model.", "Cannot send")


def _fault(error: str) -> list[str]:
    """Return an error of the page, unless it is harmless."""
    return [] if any(words in error for words in HARMLESS) else [f"page error: {error}"]


def _outside(url: str) -> list[str]:
    parts = urlsplit(url)
    local = parts.scheme in ("file", "blob", "data", "about") or parts.hostname in (
        "127.0.0.1",
        "localhost",
    )
    return [] if local else [f"request off the machine: {url}"]


@pytest.fixture(scope="session")
def of_the_run(tmp_path_factory):
    """A folder that all processes of this test run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@pytest.fixture(scope="session")
def site_folder(of_the_run, soak):
    """The built static site. Read it only: all tests share it.

    `make site` and `make soak` run the cells of all lessons; here those that a test looks at run.
    """
    return built_site(of_the_run, "" if soak else "00 01:2 04 18:2")


@pytest.fixture(scope="session")
def site(site_folder):
    """The address of the static site, with a slash at the end."""
    with served(site_folder) as address:
        yield address


@pytest.fixture(scope="session")
def jupyter(of_the_run, pytestconfig):
    """The test run's JupyterLab: its address, and the folder it serves.

    The first process that needs it starts it, and ends it after the others have released `users`. It
    waits after its last test, because a test's time limit includes the end of its fixtures. A process
    that needs JupyterLab later than that starts another one.
    """
    home = of_the_run / "jupyter"
    work, address = home / "work", home / "address.txt"
    work.mkdir(parents=True, exist_ok=True)
    lab = ExitStack()
    pytestconfig.add_cleanup(lab.close)
    start, users = (lab.enter_context((home / name).open("w")) for name in ("start", "users"))
    fcntl.flock(start, fcntl.LOCK_EX)
    fcntl.flock(users, fcntl.LOCK_SH)
    if not address.exists():
        address.write_text(lab.enter_context(jupyterlab(home, work)))
        lab.callback(address.unlink)
        lab.callback(fcntl.flock, users, fcntl.LOCK_EX)
        lab.callback(fcntl.flock, start, fcntl.LOCK_EX)
    fcntl.flock(start, fcntl.LOCK_UN)
    return address.read_text(), work


@pytest.fixture(autouse=True)
def hung_up():
    yield
    hang_up()


@pytest.fixture
def patience():
    """A kernel answers when it gets to it: on a busy machine later than a page does."""
    expect.set_options(timeout=30_000)
    yield
    expect.set_options(timeout=5_000)


@pytest.fixture
def open_cells(new_page, jupyter):
    """Write cells into a notebook, open it, run the first `run` cells; end its kernel afterwards."""
    address, work = jupyter
    pages = []

    def open_cells(name: str, cells: list[str], run: int = 1, **size: int) -> Page:
        write_notebook(work / name, cells)
        page = new_page(**{"width": 1400, "height": 1000} | size)
        pages.append(page)
        open_notebook(page, address, name)
        for number in range(run):
            run_cell(page, number)
        return page

    yield open_cells
    for page in pages:
        close_notebook(page, address)
