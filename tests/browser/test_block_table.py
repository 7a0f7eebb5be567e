"""The block table shows what it and the step's sentence claim, at every width."""

import re

import pytest
from playwright.sync_api import Locator

from tests.browser.conftest import REPOSITORY

STORYTELLERS = REPOSITORY / "visualizer" / "frontend" / "test" / "storytellers.jsonl"


def in_sight(cells: Locator) -> list[bool]:
    seen: list[bool] = cells.evaluate_all(
        """(cells) => cells.map((cell) => {
          const { left, right, top, bottom } = cell.getBoundingClientRect();
          const isOnTop = (x) => cell.contains(document.elementFromPoint(x, (top + bottom) / 2));
          return isOnTop(left + 2) && isOnTop(right - 2);
        })"""
    )
    return seen


@pytest.mark.parametrize("log", ["preemption", "thrash", str(STORYTELLERS)])  # the README's is last
def test_the_block_table_shows_as_many_blocks_as_it_says_and_those_that_changed_hands(
    open_board, log
):
    board = open_board(log, width=390, height=2600)
    for width in (390, 720, 848, 1100, 1440):
        board.page.set_viewport_size({"width": width, "height": 2600})
        board.settle()
        words = board.text(".block-table > .muted")
        blocks, *part = map(int, re.findall(r"\d+", words.replace("until this step", "")))
        fates = board.root.locator(".block-table .fate td")
        assert fates.count() == blocks
        seen = in_sight(fates)
        assert seen.count(True) == (part or [blocks])[0], (width, words)
        assert seen == in_sight(board.root.locator(".block-table .physical td"))
        texts = fates.all_inner_texts()
        assert all(shown for shown, fate in zip(seen, texts, strict=True) if fate.startswith("→"))
        cut = board.root.locator(".changed li:visible > span").evaluate_all(
            "(spans) => spans.filter((span) => span.scrollWidth > span.clientWidth).length"
        )
        assert cut == 0, width
