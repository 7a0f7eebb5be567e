"""The block table shows what it and the step's sentence claim, at every width."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator

from tests.browser.board import BoardOnPage
from tests.browser.conftest import REPOSITORY, NewPage
from visualizer import to_html

STORYTELLERS = REPOSITORY / "visualizer" / "frontend" / "test" / "storytellers.jsonl"
WIDTHS = (390, 720, 848, 1100, 1440)


@pytest.fixture(scope="module", params=["preemption", "thrash", "storytellers"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with a log that opens at a preemption; the last one is the README's."""
    path = tmp_path_factory.mktemp("tables") / "board.html"
    to_html(STORYTELLERS if request.param == "storytellers" else request.param, path)
    return path


def in_sight(cells: Locator) -> list[bool]:
    """Which cells of the table are in sight."""
    seen: list[bool] = cells.evaluate_all(
        """(cells) => cells.map((cell) => {
          const { left, right, top, bottom } = cell.getBoundingClientRect();
          const isOnTop = (x) => cell.contains(document.elementFromPoint(x, (top + bottom) / 2));
          return isOnTop(left + 2) && isOnTop(right - 2);
        })"""
    )
    return seen


@pytest.mark.parametrize("width", WIDTHS)
def test_the_block_table_shows_as_many_blocks_as_it_says_and_those_that_changed_hands(
    new_page: NewPage, exported: Path, width: int
) -> None:
    page = new_page(width=width, height=2600)
    page.goto(exported.as_uri())
    board = BoardOnPage(page).wait()
    words = board.text(".block-table > .muted")
    blocks, *part = map(int, re.findall(r"\d+", words.replace("until this step", "")))
    fates = board.root.locator(".block-table .fate td")
    assert fates.count() == blocks
    seen = in_sight(fates)
    assert seen.count(True) == (part or [blocks])[0], words
    assert seen == in_sight(board.root.locator(".block-table .physical td"))
    texts = fates.all_inner_texts()
    assert all(shown for shown, fate in zip(seen, texts, strict=True) if fate.startswith("→"))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_words_on_a_changed_block_are_not_cut(
    new_page: NewPage, exported: Path, width: int
) -> None:
    page = new_page(width=width, height=2600)
    page.goto(exported.as_uri())
    board = BoardOnPage(page).wait()
    cut = board.root.locator(".changed li:visible > span").evaluate_all(
        "(spans) => spans.filter((span) => span.scrollWidth > span.clientWidth).length"
    )
    assert cut == 0
