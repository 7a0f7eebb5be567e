"""One request, block, token or decision, seen everywhere."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from engine.events import EventLog
from tests.browser.board import BoardOnPage, table_at
from tests.browser.conftest import NewPage
from tests.browser.exported import open_board, opened, the_log
from tests.facts import assert_names
from tests.visualizer.storytellers import crowd
from visualizer import to_html

SMALL = {"block_size": 4, "max_kv_tokens": 256}


@pytest.fixture
def board(new_page: NewPage, tmp_path: Path) -> BoardOnPage:
    return open_board(new_page(), tmp_path)


@pytest.fixture
def log() -> EventLog:
    return the_log()


def expect_everywhere(board: BoardOnPage, request: int, log: EventLog) -> None:
    """Chips, block table and tokens are all this request's."""
    board.expect_selected(request)
    pressed = set(board.root.locator(".chip[aria-pressed=true]").all_inner_texts())
    assert pressed == {f"r{request}"}
    table = board.root.locator(".block-table .physical td").all_inner_texts()
    assert [int(block) for block in table] == table_at(log, int(board.data("step")), request)
    expect(board.root.locator(".tokens h2 .chip")).to_have_text(f"r{request}")


def test_a_block_names_its_holders_and_its_tokens(board: BoardOnPage, log: EventLog) -> None:
    blocks = board.canvas(".map > canvas")
    board.page.mouse.click(blocks["x"] + 31, blocks["y"] + 31)
    expect(board.root).to_have_attribute("data-block", "0")
    expect_everywhere(board, 1, log)
    told = board.root.locator(".map .told")
    expect(told).to_be_visible()
    assert_names(told.inner_text(), 0, "r1", "r5", "r6", "r7", 8)
    held = board.root.locator(".tokens .in-block").all_inner_texts()
    assert "".join("".join(held).split()) == "Youareakindstoryteller.Useshort"
    board.press("Escape")
    expect(board.root).to_have_attribute("data-block", "")
    expect(told).to_be_hidden()


def test_keys_move_over_the_blocks_and_enter_selects_a_holder(
    board: BoardOnPage, log: EventLog
) -> None:
    board.root.locator(".map > canvas").focus()
    for key, block in [("ArrowRight", 0), ("ArrowRight", 1), ("ArrowDown", 9), ("ArrowLeft", 8)]:
        board.page.keyboard.press(key)
        expect(board.root).to_have_attribute("data-block", str(block))
    board.expect_step(30)
    assert_names(board.text(".map .told"), 8, "r6")
    board.page.keyboard.press("Enter")
    expect_everywhere(board, 6, log)


def test_a_tree_node_selects_its_requests_and_looks_at_its_blocks(
    board: BoardOnPage, log: EventLog
) -> None:
    tree = board.canvas(".tree > canvas")
    for owner in (1, 5, 6, 7):  # the first node is shared: each click selects the next
        board.page.mouse.click(tree["x"] + 16, tree["y"] + 22)
        expect_everywhere(board, owner, log)
        expect(board.root).to_have_attribute("data-block", "0")


def test_keys_go_through_the_tree(board: BoardOnPage) -> None:
    board.root.locator(".tree > canvas").focus()
    board.page.keyboard.press("ArrowDown")
    told = board.root.locator(".tree .told")
    expect(told).to_be_visible()
    assert_names(told.inner_text(), 2, 0, 1, 4, "r1", "r5", "r6", "r7")
    board.page.keyboard.press("ArrowDown")
    expect(told).not_to_contain_text("r5")
    assert_names(told.inner_text(), "r1")
    board.page.keyboard.press("Enter")
    board.expect_selected(1)


def test_a_token_leads_to_the_step_that_brought_it_and_to_its_block(board: BoardOnPage) -> None:
    third = board.root.locator(".tokens .token[data-step]").nth(2)
    step = third.get_attribute("data-step")
    assert step is not None
    assert int(step) < 30
    third.click()
    board.expect_step(int(step))
    board.expect_selected(8)
    first = board.root.locator(".tokens .token[data-block]").first
    first.click()
    expect(board.root).to_have_attribute("data-block", first.get_attribute("data-block") or "")
    board.expect_step(int(step))


def test_a_decision_selects_its_request_and_names_the_function_that_made_it(
    board: BoardOnPage, log: EventLog
) -> None:
    source = board.root.locator(".decisions .source code")
    expect(source).to_have_text("engine/scheduling/scheduler.py::_schedule_running")
    row = board.root.locator(".decisions tr[data-kind=waits]").first
    row.hover()
    expect(source).to_have_text("engine/scheduling/scheduler.py::_admit_waiting")
    board.root.locator(".decisions tr[data-kind=decode]", has_text="r6").click()
    expect_everywhere(board, 6, log)
    # Offline it is a path to copy; in JupyterLab a link, see test_jupyterlab.py.
    assert board.root.locator(".source a").count() == 0


def test_search_results_tips_and_tables_hold_text_from_prompts_as_text(
    new_page: NewPage, tmp_path: Path
) -> None:
    hostile = "</script><img src=x onerror=window.hacked=1><b>bold</b>"
    log = crowd(labels=[hostile, "Ada"], prompts=[hostile + " tell me", "hello"], **SMALL)
    to_html(log, tmp_path / "hostile.html", step=1, select=1)
    board = opened(new_page(), tmp_path / "hostile.html")
    board.press("t", "/")
    board.page.keyboard.type("<img")
    expect(board.root.get_by_role("option").first).to_contain_text("<img src")
    board.page.keyboard.press("Enter")
    blocks = board.canvas(".map > canvas")
    board.page.mouse.click(blocks["x"] + 31, blocks["y"] + 31)
    board.page.mouse.move(blocks["x"] + 33, blocks["y"] + 33)
    expect(board.root.locator(".tip")).to_contain_text("script")
    expect(board.root.locator(".map .told")).to_contain_text("script")
    expect(board.root.locator(".tree .alternative")).to_contain_text("img src")
    assert board.page.evaluate("window.hacked") is None
    assert board.root.locator("img:not(.postcard img)").count() == 0
