"""A real Chromium, and pages that fail a test on a script error or on a request off the machine."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from authoring.lab import CHROMIUM_FLAGS, REPOSITORY, chromium_path, jupyterlab
from tests.browser.exported import exports, open_board
from tests.browser.site import built_site, served

__all__ = ["REPOSITORY", "NewPage", "exports", "open_board"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = chromium_path()
    if path is None:
        missing = "no Chromium on this machine: install the package `chromium`"
        if os.environ.get("UNDERGLASS_REQUIRE_BROWSER"):
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
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
        page.on("pageerror", lambda error: faults.extend(_fault(str(error))))
        page.on("request", lambda request: faults.extend(_outside(request.url)))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults, "\n".join(faults)


def _fault(error: str) -> list[str]:
    """Return an error of the page, unless it only says that the machine is busy.

    anywidget reports a widget that is not ready within two seconds, and shows it when it is ready. A
    widget that never is fails its test.
    """
    late = "[anywidget] Failed to initialize model."
    return [] if late in error else [f"page error: {error}"]


def _outside(url: str) -> list[str]:
    parts = urlsplit(url)
    local = parts.scheme in ("file", "blob", "data", "about") or parts.hostname in (
        "127.0.0.1",
        "localhost",
    )
    return [] if local else [f"request off the machine: {url}"]


@pytest.fixture(scope="session")
def site_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built static site. Read it only: all tests share it."""
    base = tmp_path_factory.getbasetemp()
    return built_site(base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base)


@pytest.fixture(scope="session")
def site(site_folder: Path) -> Iterator[str]:
    """The address of the static site, with a slash at the end."""
    with served(site_folder) as address:
        yield address


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A JupyterLab with a home of its own: its address, and the folder it serves.

    All tests that need it are in test_jupyterlab.py and test_lessons.py, which one worker runs.
    """
    home = tmp_path_factory.mktemp("jupyter")
    work = home / "work"
    work.mkdir()
    with jupyterlab(home, work) as address:
        yield address, work
