"""Speculative decoding on the board: what became of each draft of a step."""

from playwright.sync_api import expect

from engine.simulation.scenarios import scenario
from tests.browser.board import numbers_in
from visualizer import read


def test_the_tokens_panel_says_what_became_of_each_draft_of_the_step(open_board):
    log = scenario("speculation").run()
    board = open_board(log, "#step=4&selected=1")
    assert numbers_in(board.text(".drafts strong")) == [1, 3, 2, 4]
    said = board.root.locator(".decisions [data-request='1'] .what", has_text="✓")  # above the fold
    expect(said).to_contain_text(": ✓ apple ✓ trees ✗ , – a")
    drafts = board.root.locator(".drafts .draft")
    expect(drafts).to_have_class(["draft kept", "draft kept", "draft refused", "draft unused"])
    # A column each: the drafter's token, and below it the model's.
    expect(drafts.locator("span")).to_have_text(
        ["apple", "✓ apple", "trees", "✓ trees", ",", "and", "a", "–"]
    )
    expect(drafts.locator("del")).to_have_text([","])
    expect(drafts.locator("ins")).to_have_text(["and"])
    expect(board.root.locator(".drafts .names span")).to_have_text(["PromptLookup", "model"])
    for width in (390, 1440):
        board.page.set_viewport_size({"width": width, "height": 860})
        board.settle()
        box, panel = board.root.locator(".drafts").bounding_box(), board.root.bounding_box()
        assert box and panel and box["x"] + box["width"] <= panel["x"] + panel["width"]
    drafted, accepted = read(log).steps.drafted_tokens.sum(), read(log).steps.accepted_tokens.sum()
    cell = board.root.locator(".summary .cell").filter(has_text="drafts accepted")
    expect(cell).to_contain_text(f"{100 * accepted / drafted:.0f} %")
    board.press(".")
    expect(drafts).to_have_count(0)
    expect(board.root.locator(".drafts")).to_be_visible()
    board.press(".", ".")
    expect(drafts).to_have_class([*["draft kept"] * 4, "draft own"])
    expect(drafts.last.locator("span")).to_have_text(["–", "Behind"])
    assert numbers_in(board.text(".drafts strong")) == [1, 5, 4, 4]
    # A request without drafts has no line about them.
    board.press("ArrowDown", ",", ",", ",")
    board.expect_data(selected=2, step=4)
    expect(board.root.locator(".tokens .text")).to_be_visible()
    expect(board.root.locator(".drafts")).to_have_count(0)
