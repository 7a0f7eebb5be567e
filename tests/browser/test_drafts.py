"""Speculative decoding on the board: what became of each draft of a step."""

from pathlib import Path

from playwright.sync_api import expect

from engine.simulation.scenarios import scenario
from tests.browser.board import numbers_in
from tests.browser.conftest import NewPage
from tests.browser.exported import opened
from visualizer import to_html


def test_the_tokens_panel_says_what_became_of_each_draft_of_the_step(
    new_page: NewPage, tmp_path: Path
) -> None:
    path = tmp_path / "recital.html"
    to_html(scenario("speculation").run(), path)
    board = opened(new_page(), path, "#step=4&selected=1")
    assert numbers_in(board.text(".drafts strong")) == [1, 3, 2, 4]
    drafts = board.root.locator(".drafts .draft")
    expect(drafts).to_contain_text(["apple", "trees", ",", "and", "a"])
    expect(drafts).to_have_class(
        ["draft kept", "draft kept", "draft refused", "draft own", "draft unused"]
    )
    expect(drafts.locator("del")).to_have_text([","])
    expect(drafts.locator("ins")).to_contain_text(["and"])
    board.press(".")
    expect(drafts).to_have_count(0)
    expect(board.root.locator(".drafts")).to_be_visible()
    board.press(".", ".")
    expect(drafts.locator("ins")).to_contain_text(["Behind"])
    assert numbers_in(board.text(".drafts strong")) == [1, 5, 4, 4]


def test_a_request_without_drafts_has_no_line_about_them(new_page: NewPage, tmp_path: Path) -> None:
    path = tmp_path / "recital.html"
    to_html(scenario("speculation").run(), path)
    board = opened(new_page(), path, "#step=4&selected=2")
    expect(board.root.locator(".tokens .text")).to_be_visible()
    expect(board.root.locator(".drafts")).to_have_count(0)
