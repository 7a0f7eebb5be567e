"""Why did it miss, and what is stuck: the board of a real vLLM's log says what Python says."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from engine.events.log import EventLog
from tests.browser.axe import expect_no_violation
from tests.browser.board import BoardOnPage
from tests.browser.conftest import NewPage
from tests.browser.exported import opened
from tests.facts import assert_names
from visualizer import to_html
from visualizer.sources import read_source

VLLM = Path(__file__).parents[1] / "fixtures" / "vllm" / "vllm_tight.jsonl.gz"
IVO = 9


@pytest.fixture(scope="module")
def log() -> EventLog:
    found = read_source(VLLM)
    assert isinstance(found, EventLog)
    return found


@pytest.fixture
def board(new_page: NewPage, tmp_path: Path, log: EventLog) -> BoardOnPage:
    path = tmp_path / "vllm.html"
    to_html(log, path)
    return opened(new_page(), path, f"#step=88&selected={IVO}")


def test_why_a_request_missed_stands_below_where_its_time_went(
    board: BoardOnPage, log: EventLog
) -> None:
    board.press("y")
    missed = board.root.locator(".missed")
    expect(missed).to_have_attribute("data-kind", log.why_missed(IVO).kind)
    assert str(log.why_missed(IVO)) in board.text(".missed").replace(" :", ":")
    expect_no_violation(board.page)


def test_the_queue_says_what_is_stuck_and_how_old_it_is(board: BoardOnPage, log: EventLog) -> None:
    board.press("q")
    head, *others = log.stuck(88).requests
    assert head.age is not None
    expect(board.root.locator(".queue .stuck")).to_be_visible()
    words = board.text(".queue .stuck")
    assert_names(words, head.name, round(head.age / 1000), head.words, len(others))
    board.root.locator(".queue .chip").first.click()
    board.expect_selected(head.request)
    expect_no_violation(board.page)
