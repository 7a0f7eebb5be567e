"""Why did it miss, and what is stuck: the board of a real vLLM's log says what Python says."""

from functools import cache
from pathlib import Path

from playwright.sync_api import expect

from engine.core.log.log import EventLog
from tests.browser.axe import expect_no_violation
from tests.facts import assert_names
from visualizer import read
from visualizer.sources import read_source

VLLM = Path(__file__).parents[1] / "fixtures" / "vllm" / "vllm_tight.jsonl.gz"
IVO = 9


@cache
def vllm_log() -> EventLog:
    found = read_source(VLLM)
    assert isinstance(found, EventLog)
    return found


def test_why_a_request_missed_and_what_is_stuck(open_board):
    log = vllm_log()
    board = open_board(log, f"#step=88&selected={IVO}")
    board.press("y")
    missed = board.root.locator(".missed")
    expect(missed).to_have_attribute("data-kind", read(log).why_missed(IVO).kind)
    assert str(read(log).why_missed(IVO)) in board.text(".missed").replace(" :", ":")
    expect_no_violation(board.page)
    board.press("y", "q")
    head, *others = read(log).stuck(88).requests
    assert head.age is not None
    expect(board.root.locator(".queue .stuck")).to_be_visible()
    words = board.text(".queue .stuck")
    assert_names(words, head.name, round(head.age / 1000), head.words, len(others))
    expect_no_violation(board.page)
    board.root.locator(".queue .chip").first.click()
    board.expect_selected(head.request)
