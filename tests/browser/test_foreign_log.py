"""Another engine's log on the board: its source, what is inferred, what is missing."""

import re
from functools import cache

import pytest
from playwright.sync_api import expect

from engine.core.log import EventLog
from engine.core.log.vocabulary import StepReported
from engine.simulation.facts import FACTS
from tests.browser.conftest import REPOSITORY
from tests.facts import assert_names
from tests.visualizer.foreign import ENGINE, RECORDER, foreign, foreign_label
from tests.visualizer.storytellers import storytellers
from visualizer import read
from visualizer.sources import read_source

GAP = 20


@cache
def own() -> EventLog:
    return storytellers(prefix_cache="hash")


def test_the_board_shows_the_source_and_marks_what_is_inferred(open_board):
    log = foreign(own(), gap_after=GAP)
    board = open_board(log)
    first = board.root.locator(".summary .cell").first
    assert_names(first.inner_text(), ENGINE, RECORDER)
    levels = [read(log).knowledge.facts(level) for level in ("recorded", "inferred", "unknown")]
    assert [dot.inner_text() for dot in first.locator(".known").all()] == [
        str(len(facts)) for facts in levels
    ]
    expect(board.root.locator(".knowledge tr")).to_have_count(3)
    expect(board.root.locator(".sentence .level.inferred").first).to_be_visible()
    expect(board.root.locator(".decisions [data-kind=waits] .level.inferred")).to_be_visible()
    expect(board.root.locator(".decisions .plain .level")).to_have_count(0)
    expect(board.root.locator(".tokens")).to_contain_text(RECORDER)
    expect(board.root.locator(".tokens .token")).to_have_count(0)
    label = foreign_label(int(board.root.get_attribute("data-selected") or 0))
    expect(board.root.locator(".time .alternative")).to_contain_text(label)
    # A gap is told in its step.
    board = open_board(log, f"#step={GAP}", on=board.page)
    assert "gaps" in board.told()
    assert_names(board.text(".sentence"), 7, "disk")
    expect(board.root).to_have_attribute("data-moment", "missing")
    # Our own log has no marks.
    board = open_board(own(), on=board.page)
    assert board.root.locator(".level:visible").count() == 0
    expect(board.root.locator(".knowledge")).to_be_hidden()


def test_a_panel_without_its_fact_says_so_and_draws_nothing(open_board):
    board = open_board(foreign(own(), unknown=FACTS, inferred=()))
    for panel in (".map", ".tree", ".decisions"):
        section = board.root.locator(panel)
        expect(section.locator(".lacks")).to_contain_text(RECORDER)
        assert section.locator("canvas:visible, table:visible").count() == 0
    values = board.root.locator(".summary .cell .value strong").all_inner_texts()
    assert set(values[1:]) == {"unknown"}


@pytest.mark.parametrize("name", ["sglang_forward_pass.jsonl.gz", "sglang_kv_events.jsonl.gz"])
def test_a_log_without_requests_has_no_made_up_number(open_board, name):
    log = read_source(REPOSITORY / "tests/fixtures" / name)
    assert isinstance(log, EventLog)
    board = open_board(log, step=11)
    board.root.get_by_role("button", name="open the queue").click()
    queue = board.root.locator(".queue canvas")
    [reported] = log.of(StepReported)[10:11] or [None]
    if reported:
        assert reported.waiting > 1
        expect(board.root).to_have_attribute("data-waiting", str(reported.waiting))
        expect(queue).to_have_attribute("aria-label", re.compile(rf"\b{reported.waiting} requests"))
    else:
        expect(queue).to_have_attribute("aria-label", re.compile("unknown"))
    words = board.root.evaluate("(root) => root.textContent")
    assert not re.search("undefined|NaN|null|Infinity", words)
