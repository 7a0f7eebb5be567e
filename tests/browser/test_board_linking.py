"""One request, block, token or decision, seen everywhere."""

import pytest
from playwright.sync_api import expect

from tests.browser.board import BoardOnPage, numbers_in, table_at
from tests.browser.exported import the_log
from tests.facts import assert_names
from tests.visualizer.storytellers import crowd
from visualizer.logs import StepIndex, state_at


@pytest.fixture
def board(open_board):
    return open_board()


def expect_everywhere(board: BoardOnPage, request: int) -> None:
    """Chips, block table and tokens are all this request's."""
    board.expect_selected(request)
    pressed = set(board.root.locator(".chip[aria-pressed=true]").all_inner_texts())
    assert pressed == {f"r{request}"}
    table = board.root.locator(".block-table .physical td").all_inner_texts()
    step = int(board.data("step"))
    assert [int(block) for block in table] == table_at(the_log(), step, request)
    expect(board.root.locator(".tokens h2 .chip")).to_have_text(f"r{request}")


def test_chips_keys_and_lanes_select_a_request_everywhere(board):
    board.root.locator(".sentence .chip", has_text="r6").first.click()
    expect_everywhere(board, 6)
    assert "Soft grey drum" in board.text(".tokens .text").replace("\u00a0", " ")
    board.root.locator(".decisions .chip", has_text="r7").first.click()
    board.expect_selected(7)
    board.press("ArrowUp")
    board.expect_selected(6)
    board.press("Escape")
    board.expect_selected("")
    lanes = board.canvas(".lanes canvas")
    board.page.mouse.click(lanes["x"] + 300, lanes["y"] + 3 + 22 * 3 + 11)
    board.expect_data(selected=4, step=30)


def test_a_block_names_its_holders_and_its_tokens(board):
    blocks = board.canvas(".map > canvas")
    for owner in (1, 5, 6, 7, 1):  # block 0 is shared: each click selects the next owner
        board.page.mouse.click(blocks["x"] + 31, blocks["y"] + 31)
        expect_everywhere(board, owner)
    expect(board.root).to_have_attribute("data-block", "0")
    told = board.root.locator(".map .told")
    expect(told).to_be_visible()
    assert_names(told.inner_text(), 0, "r1", "r5", "r6", "r7", 8)
    held = board.root.locator(".tokens .in-block").all_inner_texts()
    assert "".join("".join(held).split()) == "Youareakindstoryteller.Useshort"
    board.press("Escape")
    expect(board.root).to_have_attribute("data-block", "")
    expect(told).to_be_hidden()


def test_pointer_and_keys_go_through_the_tree(board):
    tree = board.canvas(".tree > canvas")
    for owner in (1, 5):  # the first node is shared: each click selects the next
        board.page.mouse.click(tree["x"] + 16, tree["y"] + 22)
        expect_everywhere(board, owner)
        expect(board.root).to_have_attribute("data-block", "0")
    board.press("Escape", "Escape")
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


def test_a_token_leads_to_the_step_that_brought_it_and_to_its_block(board):
    third = board.root.locator(".tokens .token[data-step]").nth(2)
    step = int(third.get_attribute("data-step") or 0)
    assert 0 < step < 30
    third.click()
    board.expect_data(step=step, selected=8)
    first = board.root.locator(".tokens .token[data-block]").first
    first.click()
    expect(board.root).to_have_attribute("data-block", first.get_attribute("data-block") or "")
    board.expect_step(step)


def test_a_decision_selects_its_request_and_names_the_function_that_made_it(board):
    source = board.root.locator(".decisions .source code")
    expect(source).to_have_text("engine/core/scheduling/scheduler.py::_schedule_running")
    board.root.locator(".decisions tr[data-kind=waits]").first.hover()
    expect(source).to_have_text("engine/core/scheduling/scheduler.py::_admit_waiting")
    board.root.locator(".decisions tr[data-kind=decode]", has_text="r6").click()
    expect_everywhere(board, 6)
    # Offline it is a path to copy; in JupyterLab a link, see test_jupyterlab.py.
    assert board.root.locator(".source a").count() == 0


def test_hovering_tells(board):
    blocks = board.canvas(".map > canvas")
    board.page.mouse.move(blocks["x"] + 31, blocks["y"] + 31)
    expect(board.root.locator(".tip")).to_contain_text("You are a kind storyteller. Use short")
    assert_names(board.text(".tip"), 0, "r1", "r5", "r6", "r7")
    lanes = board.canvas(".lanes canvas")
    board.page.mouse.move(lanes["x"] + 300, lanes["y"] + 3 + 22 * 3 + 11)
    expect(board.root.locator(".tip")).to_contain_text("r4")
    [step] = numbers_in(board.text(".tip p:nth-child(2)"))[:1]
    assert 4 in state_at(the_log(), StepIndex(the_log()), step)["running"]
    band = board.canvas(".waiting > canvas")
    board.page.mouse.move(band["x"] + 400, band["y"] + 30)
    expect(board.root.locator(".tip")).to_contain_text("waiting")
    step, *_, waiting = numbers_in(board.text(".tip"))[:8]
    assert waiting == len(state_at(the_log(), StepIndex(the_log()), step)["waiting"])


def test_text_from_prompts_is_text(open_board):
    hostile = "</script><img src=x onerror=window.hacked=1><b>bold</b>"
    prompts = [hostile + " tell me", "hello"]
    small = {"block_size": 4, "max_kv_tokens": 256}
    log = crowd(labels=[hostile, "Ada"], prompts=prompts, **small)
    board = open_board(log, step=1, select=1, title=hostile)
    said = "".join(board.root.locator(".tokens .token").all_inner_texts())
    assert "".join(said.split()).startswith("".join(hostile.split()))
    assert hostile[:10] in board.text(".decisions")
    assert board.root.locator("b:not(.token b)").count() == 0
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
    board.press(".", ".", "ArrowDown")
    assert board.page.evaluate("window.hacked") is None
    assert board.root.locator("img:not(.postcard img)").count() == 0
