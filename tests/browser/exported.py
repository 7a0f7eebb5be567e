"""Logs as exported pages, each of them written once, and how a test opens them."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.core.log import EventLog
from tests.browser.board import BoardOnPage
from tests.visualizer.storytellers import storytellers
from visualizer import to_html

OpenBoard = Callable[..., BoardOnPage]
_OF_PAGES = ("width", "height", "color_scheme", "reduced_motion", "permissions")


@cache
def the_log() -> EventLog:
    """Twelve requests on forty blocks, 53 steps, a preemption at step 30."""
    return storytellers()


class Exports:
    """Exported pages, by log and options. A page is written when a test first asks for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pages: dict[str, tuple[Any, Path]] = {}

    def page(self, log: Any = None, **options: Any) -> Path:
        """Return the path of a log's page; without a log, that of the class of storytellers."""
        log = the_log() if log is None else log
        key = repr((log if isinstance(log, str) else id(log), sorted(options.items())))
        if key not in self._pages:  # the log is kept, so that no other one gets its id
            path = self._folder / f"{len(self._pages)}.html"
            to_html(log, path, **options)
            self._pages[key] = log, path
        return self._pages[key][1]


@pytest.fixture(scope="session")
def exports(tmp_path_factory):
    return Exports(tmp_path_factory.mktemp("exports"))


@pytest.fixture
def open_board(new_page, exports):
    """Open an exported log at what a fragment asks for; see `Exports.page` and `new_page` for options.

    `on` is an open page that shall show it.
    """

    def opened(
        log: Any = None, fragment: str = "", *, on: Any = None, **options: Any
    ) -> BoardOnPage:
        of_page = {name: options.pop(name) for name in _OF_PAGES if name in options}
        page = on or new_page(**of_page)
        page.goto("about:blank")  # a page that differs in its fragment alone would not be loaded
        page.goto(exports.page(log, **options).as_uri() + fragment)
        return BoardOnPage(page).wait()

    return opened
