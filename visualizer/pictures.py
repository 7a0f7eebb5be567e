"""Save pictures of a run: a postcard of one step, a GIF of a range of steps, and a tour.

    to_postcard(log, "step.svg", step=30)       # or .png; 1200 x 630 pixels
    to_gif(log, "run.gif", steps=(20, 40))      # one postcard per step, two per second
    tour_to_file(page, Path("tour.pdf"))        # all scenes on one page; or a GIF with one per frame

The board draws them in a headless Chromium. They need `pip install '.[pictures]'` and, unless
a Chromium is installed, `playwright install chromium`. On a board, the key C saves the same pictures
and needs neither.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.extras import needs_extra
from visualizer.html import to_html
from visualizer.logs import LogLike, Select, StepIndex, read_log

if TYPE_CHECKING:
    from playwright.sync_api import Page

MAX_STEPS = 120  # steps of a GIF, as in frontend/src/board/postcard_box.ts
_MARGIN: Any = dict.fromkeys(("top", "right", "bottom", "left"), "8mm")
_NO_CHROMIUM = "a picture needs a Chromium: install one with `playwright install chromium`"


def chromium_path() -> str | None:
    """Return the path of this machine's Chromium, if it has one."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
    return next(filter(None, map(shutil.which, names)), None)


def to_postcard(
    log: LogLike,
    path: str | Path,
    step: int | None = None,
    *,
    select: Select = "auto",
    theme: str = "light",
    text: bool = True,
) -> Path:
    """Write a postcard of `step` to `path`, an `.svg` or `.png` file, and return the path.

    `step`, `select`, `theme` and `text` work as in `to_html`. Raises ValueError for another kind of
    file, and RuntimeError if no Chromium is found.
    """
    path = Path(path)
    if path.suffix not in (".svg", ".png"):
        raise ValueError(f"path must end in .svg or .png, got {path.name!r}")
    _draw(log, path, step=step, select=select, theme=theme, text=text)
    return path


def to_gif(
    log: LogLike,
    path: str | Path,
    steps: tuple[int, int] | None = None,
    *,
    select: Select = "auto",
    theme: str = "light",
    text: bool = True,
    progress: bool = True,
) -> Path:
    """Write the postcards of a range of steps as a GIF, and return the path.

    `steps` has the first and the last step; by default, the range surrounds the opening step. `select`,
    `theme` and `text` work as in `to_html`; `progress` shows a bar. Raises ValueError for steps that
    the log does not have or for more than 120 steps, and RuntimeError if no Chromium is found.
    """
    path, events = Path(path), read_log(log)
    if path.suffix != ".gif":
        raise ValueError(f"path must end in .gif, got {path.name!r}")
    fragment, step = "", None
    if steps is not None:
        step, last = steps
        known = StepIndex(events).ends
        if step not in known or last not in known or not 0 <= last - step < MAX_STEPS:
            raise ValueError(
                f"steps must be a range of at most {MAX_STEPS} steps between "
                f"{min(known, default=0)} and {max(known, default=0)}, got {steps}"
            )
        fragment = f"#step={step}&range={step}-{last}"
    follow = _show_progress if progress else None
    _draw(log, path, fragment, follow, step=step, select=select, theme=theme, text=text)
    return path


def _draw(
    log: LogLike,
    path: Path,
    fragment: str = "",
    follow: "Callable[[Page], None] | None" = None,
    **shown: Any,
) -> None:
    """Save a picture with the postcard box of the page `to_html(log, **shown)` at a URL fragment."""
    if not StepIndex(read_log(log)).ends:
        raise ValueError("the log has no steps: there is nothing to draw")
    with tempfile.TemporaryDirectory() as folder:
        board = Path(folder) / "board.html"
        to_html(log, board, **shown)
        # Playwright's sync API rejects a thread that runs an event loop, as a notebook's thread does.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(_save, board.as_uri() + fragment, path, follow).result()


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


def _save(address: str, path: Path, follow: "Callable[[Page], None] | None") -> None:
    with _opened(address) as page:
        page.wait_for_selector(".underglass[data-ready=true][data-loaded='1']", timeout=0)
        page.locator(".underglass").press("-")  # slow down to two steps per second
        page.locator(".underglass").press("c")
        with page.expect_download(timeout=0) as download:
            page.locator(f".postcard [data-format={path.suffix[1:]}]").click()
            if follow:
                follow(page)
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


def _show_progress(page: "Page") -> None:
    """Show the progress of the page's bar until it disappears."""
    from tqdm import tqdm

    bar = page.locator(".postcard progress")
    with tqdm(total=100, unit="%", desc="GIF") as shown:
        while bar.is_visible():
            shown.update(round(100 * float(bar.evaluate("(bar) => bar.value"))) - shown.n)
            page.wait_for_timeout(100)
        shown.update(100 - shown.n)
