"""Where did the time go: bars, orders, reasons, and the way to a decision."""

from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from engine.events.durations import duration
from engine.events.waterfall import RequestTime
from tests.browser.axe import expect_no_violation
from tests.browser.board import BoardOnPage
from tests.browser.conftest import NewPage
from tests.browser.exported import open_board, the_log

TOP = 22  # px above the first row
PITCH = 38


@pytest.fixture
def board(new_page: NewPage, tmp_path: Path) -> BoardOnPage:
    board = open_board(new_page(), tmp_path)
    board.press("y")
    expect(board.root).to_have_attribute("data-only", "waterfall")
    return board


def bars(board: BoardOnPage) -> Locator:
    return board.root.locator(".waterfall .spacer canvas")


def order(board: BoardOnPage) -> list[int]:
    return [int(request) for request in str(bars(board).get_attribute("data-order")).split()]


def times() -> list[RequestTime]:
    return the_log().waterfall.sorted()


def why_rows(board: BoardOnPage) -> list[str]:
    return board.root.locator(".why tbody th").all_inner_texts()


def test_the_rows_are_in_the_chosen_order(board: BoardOnPage) -> None:
    waterfall = the_log().waterfall
    totals = [waterfall[request].total for request in order(board)]
    assert totals == sorted(totals, reverse=True)
    board.root.locator("[data-sort=lost]").click()
    expect(board.root.locator("[data-sort=lost]")).to_have_attribute("aria-pressed", "true")
    lost = [waterfall[request].lost for request in order(board)]
    assert lost == sorted(lost, reverse=True) != [0] * len(lost)
    board.root.locator("[data-sort=arrival]").click()
    arrived = [waterfall[request].arrived or 0 for request in order(board)]
    assert arrived == sorted(arrived)
    assert len(arrived) == len(waterfall)


def test_the_reasons_of_a_request_are_those_of_the_log(board: BoardOnPage) -> None:
    for time in times()[:4]:
        board.root.locator(f".names .chip[data-request='{time.request}']").click()
        board.expect_selected(time.request)
        board.settle()
        expected = [duration(row.time / 1000) for row in time.parts]
        assert why_rows(board) == [*expected, "no value"]
        assert duration(time.total / 1000) in board.text(".why .headline")


def test_a_click_on_a_bar_goes_to_its_step(board: BoardOnPage) -> None:
    preempted = next(
        (row, time, span)
        for row, time in enumerate(times())
        for span in time.spans
        if span.cause == "preempted"
    )
    row, time, span = preempted
    assert time.arrived is not None
    left, right, longest = map(float, str(bars(board).get_attribute("data-plot")).split())
    middle = (span.start + span.end) / 2 - time.arrived
    x = left + (right - left) * middle / longest
    bars(board).click(position={"x": x, "y": TOP + row * PITCH + PITCH / 2})
    expect(board.root).to_have_attribute("data-only", "")
    board.expect_step(span.step)
    board.expect_selected(time.request)
    expect(board.root.locator(".sentence")).to_be_visible()


def test_keys_alone_reach_a_decision(board: BoardOnPage) -> None:
    first, second = order(board)[:2]
    board.root.locator(f".names .chip[data-request='{first}']").click()
    board.press("ArrowDown")
    board.expect_selected(second)
    link = board.root.locator(".why .step").first
    step = int(str(link.get_attribute("data-step")))
    link.focus()
    board.page.keyboard.press("Enter")
    board.expect_step(step)
    expect(board.root).to_have_attribute("data-only", "")
    board.press("y")
    expect(board.root).to_have_attribute("data-only", "waterfall")
    board.press("y")
    expect(board.root).to_have_attribute("data-only", "")


def test_the_address_opens_it(new_page: NewPage, tmp_path: Path) -> None:
    board = open_board(new_page(), tmp_path, "#step=12&selected=5&panel=waterfall")
    expect(board.root.locator(".why h2")).to_contain_text("r5")
    board.press("y")
    board.expect_step(12)


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark"), (1920, "light")])
def test_axe_finds_no_violation(new_page: NewPage, tmp_path: Path, width: int, scheme: str) -> None:
    board = open_board(new_page(width=width, color_scheme=scheme), tmp_path)
    board.press("y")
    expect(board.root.locator(".waterfall .alternative table").first).to_be_attached()
    expect_no_violation(board.page)
    section = board.root.locator(".waterfall")
    assert section.evaluate("element => element.scrollWidth - element.clientWidth") == 0
    board.press("t")
    expect(board.root.locator(".waterfall .alternative table").first).to_be_visible()
    expect_no_violation(board.page)
