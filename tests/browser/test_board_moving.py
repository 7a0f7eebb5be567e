"""Moving on the board: keys, speed, zoom, ranges, search, one panel, and links that come back."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.board import BoardOnPage, numbers_in
from tests.browser.conftest import NewPage
from tests.browser.exported import open_board, opened, the_log
from tests.facts import assert_names
from tests.visualizer.storytellers import crowd
from visualizer import to_html


@pytest.fixture
def board(new_page: NewPage, tmp_path: Path) -> BoardOnPage:
    return open_board(new_page(), tmp_path)


@pytest.fixture(scope="module")
def long_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "long.html"
    to_html(crowd(requests=60, prefix_cache=False), path)
    return path


def test_plus_and_minus_change_the_speed(board: BoardOnPage) -> None:
    for key, per_second in [("+", 10), ("+", 25), ("-", 10), ("-", 5), ("-", 2)]:
        board.press(key)
        expect(board.act("speed")).to_have_attribute("data-per-second", str(per_second))
        assert numbers_in(board.act("speed").inner_text()) == [per_second]


def test_brackets_sum_up_a_range_and_escape_forgets_it(board: BoardOnPage) -> None:
    board.press("[", ".", ".", ".", "]")
    expect(board.root).to_have_attribute("data-range", "30-33")
    words = board.root.locator(".range-words")
    assert_names(words.inner_text(), 30, 33, 4, 20, 1, 0)
    board.press("Escape")
    expect(board.root).to_have_attribute("data-range", "")
    expect(words).to_be_hidden()
    board.expect_selected(8)
    board.press("Escape")
    board.expect_selected("")


def test_the_means_of_a_range_are_those_of_the_requests_that_finish_in_it(
    board: BoardOnPage,
) -> None:
    ended = the_log().requests.query("finish_reason.notna()")
    board.press("Home", "[", "End", "]")
    expect(board.root).to_have_attribute("data-range", "1-53")
    words = board.root.locator(".range-words")
    assert_names(words.inner_text(), len(ended))
    said = re.search(r"TTFT\D*([\d.]+) ms", words.inner_text())
    assert said is not None
    assert float(said[1]) == pytest.approx(ended["ttft_ms"].mean(), rel=0.01)


def test_dragging_with_shift_brushes_a_range(board: BoardOnPage) -> None:
    box = board.canvas(".lanes canvas")
    mouse, y = board.page.mouse, box["y"] + 60
    board.page.keyboard.down("Shift")
    mouse.move(box["x"] + 400, y)
    mouse.down()
    mouse.move(box["x"] + 300, y, steps=4)
    mouse.up()
    board.page.keyboard.up("Shift")
    expect(board.root).to_have_attribute("data-range", re.compile(r"^\d+-\d+$"))
    first, last = map(int, board.data("range").split("-"))
    assert 1 < first < last < 53
    board.expect_step(30)
    expect(board.root.locator(".range").first).to_be_visible()


def test_search_finds_steps_blocks_requests_events_and_text(board: BoardOnPage) -> None:
    def search(words: str) -> list[tuple[str, str]]:
        """Kind and text of each thing found."""
        board.press("/")
        box = board.root.get_by_role("combobox")
        expect(box).to_be_focused()
        box.fill(words)
        count = board.root.locator(".search p")
        expect(count).to_have_attribute("data-over", "true")
        options = board.root.get_by_role("option").all()
        expect(count).to_have_attribute("data-found", str(len(options)))
        return [(str(one.get_attribute("data-kind")), one.inner_text()) for one in options]

    kind, text = search("step 42")[0]
    assert kind == "step"
    assert_names(text, 42)
    board.page.keyboard.press("Enter")
    board.expect_step(42)
    expect(board.root.locator(".search")).to_be_hidden()

    kind, text = search("block 15")[0]
    assert kind == "block"
    assert_names(text, 15)
    board.page.keyboard.press("Enter")
    expect(board.root).to_have_attribute("data-block", "15")

    kind, text = search("r10")[0]
    assert kind == "request"
    assert "r10" in text
    board.page.keyboard.press("Enter")
    board.expect_selected(10)

    assert len(search("preempted")) == 1
    board.page.keyboard.press("Enter")
    board.expect_step(30)
    board.expect_selected(8)

    found = search("a pike")
    assert {kind for kind, _ in found} == {"prompt", "output"}
    board.page.keyboard.press("ArrowDown")
    board.page.keyboard.press("Enter")
    board.expect_selected(7)
    assert board.data("step") != "30"

    assert "evicted" in {kind for kind, _ in search("evicted")}
    assert len(search("hit")) > 3
    board.page.keyboard.press("Escape")
    assert search("no such words anywhere") == []


def test_what_is_typed_into_the_search_is_no_command(board: BoardOnPage) -> None:
    board.press("/")
    board.page.keyboard.type("f,.a? 1t")
    board.expect_step(30)
    expect(board.root).to_have_attribute("data-only", "")
    expect(board.root.locator(".help")).to_be_hidden()


@pytest.mark.parametrize(
    ("key", "panel"),
    [("1", "timeline"), ("2", "blocks"), ("3", "tree"), ("4", "scheduler"), ("5", "tokens")],
)
def test_a_digit_leaves_one_panel_for_a_far_wall(
    new_page: NewPage, tmp_path: Path, key: str, panel: str
) -> None:
    board = open_board(new_page(width=1920, height=1080), tmp_path)
    board.press(key)
    expect(board.root).to_have_attribute("data-only", panel)
    expect(board.root.locator("section:visible")).to_have_count(1)
    assert board.root.evaluate("root => getComputedStyle(root).getPropertyValue('--px')") == "2px"
    assert board.page.evaluate("document.documentElement.scrollWidth") <= 1920
    board.press(",")
    board.expect_step(29)
    if panel != "timeline":
        expect(board.root.get_by_role("slider")).to_have_value("29")
    board.press("0")
    expect(board.root.locator("section:visible")).to_have_count(5)


def test_the_address_says_what_is_shown_and_brings_it_back(
    new_page: NewPage, tmp_path: Path
) -> None:
    board = open_board(new_page(), tmp_path)
    board.press(",", "ArrowDown", "[", ".", "]")
    board.page.wait_for_url(re.compile(r"#step=30&selected=9&range=29-30$"))
    again = open_board(new_page(), tmp_path, "#step=12&selected=5&range=10-14&panel=tree")
    again.expect_step(12)
    again.expect_selected(5)
    expect(again.root).to_have_attribute("data-range", "10-14")
    expect(again.root).to_have_attribute("data-only", "tree")
    again.page.evaluate("location.hash = '#step=20&selected='")
    again.expect_step(20)
    again.expect_selected("")


def test_an_address_that_asks_for_nonsense_is_taken_as_far_as_it_goes(
    new_page: NewPage, tmp_path: Path
) -> None:
    board = open_board(new_page(), tmp_path, "#step=9999&selected=777&range=x&panel=<b>")
    board.expect_step(53)
    board.expect_selected("")
    expect(board.root).to_have_attribute("data-only", "")


def test_a_button_copies_the_link(new_page: NewPage, tmp_path: Path) -> None:
    page = new_page(permissions=["clipboard-read", "clipboard-write"])
    board = open_board(page, tmp_path)
    board.act("link").click()
    link = board.root.locator(".link input").input_value()
    assert link.endswith("class.html#step=30&selected=8")
    board.root.locator(".link button").click()
    expect(board.root.locator(".link [role=status]")).not_to_be_empty()
    assert page.evaluate("navigator.clipboard.readText()") == link
    board.press("Escape")
    expect(board.root.locator(".link")).to_be_hidden()


def test_zooming_and_moving_are_in_the_address(new_page: NewPage, long_page: Path) -> None:
    board = opened(new_page(), long_page)

    def window() -> tuple[int, int]:
        board.page.wait_for_url(re.compile("from="))
        found = re.search(r"from=(\d+)&to=(\d+)", board.page.url)
        assert found is not None
        return int(found[1]), int(found[2])

    def changed(before: tuple[int, int]) -> tuple[int, int]:
        board.page.wait_for_function(
            "before => location.hash.includes('from=') && !location.hash.includes(before)",
            arg=f"from={before[0]}&to={before[1]}",
        )
        return window()

    board.press(",")
    first = window()
    board.press("w")
    closer = changed(first)
    assert closer[1] - closer[0] < first[1] - first[0]
    board.press("d")
    right = changed(closer)
    assert right[0] > closer[0]

    # A drag moves what is zoomed, and scrubs nothing.
    step = board.data("step")
    box = board.canvas(".lanes canvas")
    board.page.mouse.move(box["x"] + 500, box["y"] + 50)
    board.page.mouse.down()
    board.page.mouse.move(box["x"] + 620, box["y"] + 50, steps=4)
    board.page.mouse.up()
    left = changed(right)
    assert left[0] < right[0]
    board.expect_step(int(step))

    # The wheel zooms where the pointer is; a board without the focus leaves the wheel to the page.
    strip = board.canvas("canvas.strip")
    board.page.mouse.move(strip["x"] + 400, strip["y"] + 60)
    board.page.mouse.wheel(0, 240)
    wider = changed(left)
    assert wider[1] - wider[0] > left[1] - left[0]

    again = opened(new_page(), long_page, f"#step={step}&from={closer[0]}&to={closer[1]}")
    again.press("ArrowDown")
    again.page.wait_for_url(re.compile(f"from={closer[0]}&to={closer[1]}"))
