"""Where did the time go: bars, orders, reasons, and the way to a decision."""

from playwright.sync_api import Locator, expect

from tests.browser.axe import expect_no_violation
from tests.browser.board import BoardOnPage
from tests.browser.exported import OpenBoard, the_log
from visualizer import read
from visualizer.reading.durations import duration

TOP = 22  # px above the first row
PITCH = 38


def bars(board: BoardOnPage) -> Locator:
    return board.root.locator(".waterfall .spacer canvas")


def order(board: BoardOnPage) -> list[int]:
    return [int(request) for request in str(bars(board).get_attribute("data-order")).split()]


def opened(open_board: OpenBoard, **options: object) -> BoardOnPage:
    board = open_board(**options)
    board.press("y")
    expect(board.root).to_have_attribute("data-only", "waterfall")
    return board


def test_rows_are_in_the_chosen_order_and_reasons_are_those_of_the_log(open_board):
    board, waterfall = opened(open_board), read(the_log()).waterfall
    for time in list(waterfall)[:4]:
        board.root.locator(f".names .chip[data-request='{time.request}']").click()
        board.expect_selected(time.request)
        board.settle()
        expected = [duration(row.time / 1000) for row in time.parts]
        said = board.root.locator(".why tbody th").all_inner_texts()
        assert said == [*expected, "no value"]
        assert duration(time.total / 1000) in board.text(".why .headline")
    totals = [waterfall[request].total for request in order(board)]
    assert totals == sorted(totals, reverse=True)
    board.root.locator("[data-sort=lost]").click()
    expect(board.root.locator("[data-sort=lost]")).to_have_attribute("aria-pressed", "true")
    lost = [waterfall[request].lost for request in order(board)]
    assert lost == sorted(lost, reverse=True) != [0] * len(lost)


def test_clicks_keys_and_addresses_lead_to_a_decision_and_back(open_board):
    board = opened(open_board)
    row, time, span = next(
        (row, time, span)
        for row, time in enumerate(read(the_log()).waterfall)
        for span in time.spans
        if span.cause == "preempted"
    )
    assert time.arrived is not None
    left, right, longest = map(float, str(bars(board).get_attribute("data-plot")).split())
    middle = (span.start + span.end) / 2 - time.arrived
    x = left + (right - left) * middle / longest
    first, second = order(board)[:2]
    bars(board).click(position={"x": x, "y": TOP + row * PITCH + PITCH / 2})
    board.expect_data(only="", step=span.step, selected=time.request)
    expect(board.root.locator(".sentence")).to_be_visible()
    # Keys alone reach a decision, too.
    board.press("y")
    board.root.locator(f".names .chip[data-request='{first}']").click()
    board.press("ArrowDown")
    board.expect_selected(second)
    link = board.root.locator(".why .step").first
    step = int(str(link.get_attribute("data-step")))
    link.focus()
    board.page.keyboard.press("Enter")
    board.expect_data(step=step, only="")
    fragment = "#step=12&selected=5&panel=waterfall"
    board = open_board(None, fragment, on=board.page)
    expect(board.root.locator(".why h2")).to_contain_text("r5")
    board.press("y")
    board.expect_step(12)


def test_axe_finds_no_violation_at_any_width(open_board):
    board = opened(open_board, width=360)
    section = board.root.locator(".waterfall")
    table = section.locator(".alternative table").first
    for width, scheme in ((360, "light"), (1280, "dark")):
        board.page.set_viewport_size({"width": width, "height": 860})
        board.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        board.settle()
        expect(table).to_be_attached()
        expect_no_violation(board.page)
        assert section.evaluate("element => element.scrollWidth - element.clientWidth") == 0
    board.press("t")
    expect(table).to_be_visible()
    expect_no_violation(board.page)
