"""The class of storytellers as an exported page, and how a test opens it."""

from functools import cache
from pathlib import Path

from playwright.sync_api import Page

from engine.events import EventLog
from tests.browser.board import BoardOnPage
from tests.visualizer.storytellers import storytellers
from visualizer import to_html


@cache
def the_log() -> EventLog:
    """Twelve requests on forty blocks, 53 steps, a preemption at step 30."""
    return storytellers()


def open_board(page: Page, folder: Path, fragment: str = "") -> BoardOnPage:
    """The class, exported into `folder` and opened from there."""
    path = folder / "class.html"
    if not path.exists():
        to_html(the_log(), path)
    return opened(page, path, fragment)


def opened(page: Page, path: Path, fragment: str = "") -> BoardOnPage:
    """A page that was exported before, opened at what its address asks for."""
    page.goto(path.as_uri() + fragment)
    return BoardOnPage(page).wait()
