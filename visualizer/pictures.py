"""Save a tour as a picture: all scenes on one page, or a GIF with one per frame.

The board draws it in a headless Chromium. That needs `pip install '.[pictures]'` and, unless a Chromium
is installed, `playwright install chromium`. On a board, the key C saves pictures of single steps and of
ranges, and needs neither.
"""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.extras import needs_extra

if TYPE_CHECKING:
    from playwright.sync_api import Page

_MARGIN: Any = dict.fromkeys(("top", "right", "bottom", "left"), "8mm")
_NO_CHROMIUM = "a picture needs a Chromium: install one with `playwright install chromium`"


def chromium_path() -> str | None:
    """Return the path of this machine's Chromium, if it has one."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
    return next(filter(None, map(shutil.which, names)), None)


def tour_to_file(page: Path, path: Path) -> None:
    """Write the tour that an HTML page opens with to `path`: a .gif, or a .pdf of one page.

    Raises RuntimeError if no Chromium is found.
    """
    with ThreadPoolExecutor(1) as thread:
        thread.submit(_save_tour, page.resolve().as_uri(), path).result()


def _save_tour(address: str, path: Path) -> None:
    with _opened(address) as page:
        page.wait_for_selector(".underglass[data-tour]", timeout=0)
        if path.suffix == ".pdf":
            page.pdf(path=path, format="A4", landscape=True, print_background=True, margin=_MARGIN)
            return
        with page.expect_download(timeout=0) as download:
            page.locator(".tour [data-act=gif]").click()
        download.value.save_as(path)


@contextmanager
def _opened(address: str) -> "Iterator[Page]":
    """Open a page in a headless Chromium."""
    with needs_extra("a picture"):
        from playwright.sync_api import Error, sync_playwright
    with sync_playwright() as playwright:
        is_root = getattr(os, "geteuid", lambda: 1)() == 0
        flags = ["--no-sandbox"] if is_root else []  # as root, Chromium does not start without it
        try:
            browser = playwright.chromium.launch(executable_path=chromium_path(), args=flags)
        except Error as error:
            raise RuntimeError(f"{_NO_CHROMIUM}. {error}") from error
        page = browser.new_page()
        page.goto(address)
        yield page
        browser.close()
