"""Moving on the board: keys, speed, zoom, ranges, search, one panel, and links that come back."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.board import expect_fold
from tests.facts import assert_names
from tests.visualizer.storytellers import crowd
from visualizer import read, show


@pytest.fixture
def board(open_board):
    return open_board()


def test_keys_move_the_cursor_before_anything_is_clicked_too(board):
    keyboard = board.page.keyboard
    keyboard.press(".")
    board.expect_step(31)
    keyboard.press("y")
    expect(board.root).to_have_attribute("data-only", "waterfall")
    keyboard.press("y")
    keyboard.press("Control+.")  # of the browser
    board.expect_step(31)
    for key, step in [
        (",", 30), (",", 29), ("ArrowRight", 30), ("Shift+ArrowRight", 40), ("End", 53), (".", 53),
        ("ArrowLeft", 52), ("Home", 1), (",", 1),
    ]:  # fmt: skip
        board.press(key)
        board.expect_step(step)


def test_buttons_and_keys_step_and_play(board):
    board.act("back").click()
    board.expect_step(29)
    board.press("End", ",", ",")
    board.expect_step(51)
    playing = board.record("playing")
    board.act("play").click()
    board.expect_data(step=53, playing="false")
    assert playing() == ["false", "true", "false"]
    board.press("Home", " ")
    expect(board.root).not_to_have_attribute("data-step", "1")
    board.press(" ")
    expect(board.root).to_have_attribute("data-playing", "false")
    assert int(board.data("step")) < 53


def test_keys_act_only_on_a_focused_board_and_stay_inside(board):
    page = board.page
    page.evaluate(
        """() => {
          window.heard = [];
          document.addEventListener("keydown", (event) => window.heard.push(event.key));
          document.body.prepend(Object.assign(document.createElement("input"), { id: "other" }));
        }"""
    )
    page.locator("#other").focus()
    page.keyboard.press(".")
    board.expect_step(30)
    board.press(".", "b", "a", "?", "Escape")
    board.expect_step(31)
    assert page.evaluate("window.heard") == ["."]
    assert board.root.get_attribute("data-lm-suppress-shortcuts") == "true"


def test_brackets_sum_up_a_range_and_escape_forgets_it(board):
    board.press("[", ".", ".", ".", "]")
    expect(board.root).to_have_attribute("data-range", "30-33")
    words = board.root.locator(".range-words")
    assert_names(words.inner_text(), 30, 33, 4, 20, 1, 0)
    board.press("Escape")
    expect(board.root).to_have_attribute("data-range", "")
    expect(words).to_be_hidden()
    board.expect_selected(8)


def test_search_leads_to_steps_blocks_requests_events_and_text(board):
    def search(words: str) -> list[str]:
        """The kind of each thing found."""
        board.press("/")
        box = board.root.get_by_role("combobox")
        expect(box).to_be_focused()
        box.fill(words)
        count = board.root.locator(".search p")
        expect(count).to_have_attribute("data-over", "true")
        options = board.root.get_by_role("option").all()
        expect(count).to_have_attribute("data-found", str(len(options)))
        return [str(one.get_attribute("data-kind")) for one in options]

    for words, kind, shown in (
        ("step 42", "step", {"step": 42}),
        ("block 15", "block", {"block": 15}),
        ("r10", "request", {"selected": 10}),
        ("preempted", "preempted", {"step": 30, "selected": 8}),
    ):
        assert search(words)[0] == kind
        board.page.keyboard.press("Enter")
        board.expect_data(**shown)
        expect(board.root.locator(".search")).to_be_hidden()
    assert set(search("a pike")) == {"prompt", "output"}
    board.page.keyboard.press("ArrowDown")
    board.page.keyboard.press("Enter")
    board.expect_selected(7)
    assert search("no such words anywhere") == []
    # An answer is a list that one walks through.
    board.page.keyboard.press("Escape")
    board.press("/")
    board.page.keyboard.press("Control+A")
    board.page.keyboard.press("Delete")
    board.root.get_by_role("button", name="slowest", exact=True).click()
    board.page.keyboard.press("Enter")
    walk = board.root.get_by_role("group", name="Results of the search")
    board.expect_data(selected=7)
    assert_names(walk.inner_text(), "slowest", 1, 12)
    board.press("n")
    board.expect_data(selected=1)
    board.press("Shift+n", "Shift+n")
    board.expect_data(selected=3)
    assert_names(walk.inner_text(), "12 of 12")
    assert search("why is r7 slow") == ["why slow"]
    board.page.keyboard.press("Enter")
    board.expect_data(selected=7, only="waterfall")
    board.press("y")
    assert search("no such words") == []
    # What is typed into the search is no command.
    step = int(board.data("step"))
    board.page.keyboard.type("f,.a? 1t")
    board.expect_data(step=step, only="")
    expect(board.root.locator(".help")).to_be_hidden()


def test_a_digit_leaves_one_panel_for_a_far_wall(open_board):
    board = open_board(width=1920, height=1080)
    for key, panel in enumerate(("timeline", "blocks", "tree", "scheduler", "tokens"), start=1):
        board.press(str(key))
        expect(board.root).to_have_attribute("data-only", panel)
        expect(board.root.locator("section:visible")).to_have_count(1)
        pixel = "root => getComputedStyle(root).getPropertyValue('--px')"
        assert board.root.evaluate(pixel) == "2px"
        assert board.page.evaluate("document.documentElement.scrollWidth") <= 1920
        board.press(",")
        board.expect_step(30 - key)
        if panel != "timeline":
            expect(board.root.get_by_role("slider")).to_have_value(str(30 - key))
        board.press("0")
        expect(board.root.locator("section:visible")).to_have_count(5)


def test_a_level_adds_panels_and_words_and_changes_no_number(open_board):
    board = open_board(None, "#step=30&level=lanes")
    sections = {"lanes": 1, "memory": 3, "all": 5}
    plots, told = [], []
    for level, count in sections.items():
        board.expect_data(level=level, step=30)
        expect(board.root.locator("section:visible")).to_have_count(count)
        expect(board.root.locator(".seats > canvas")).to_be_visible()
        expect(board.root.locator(".summary:visible")).to_have_count(int(level == "all"))
        expect(board.act(level)).to_have_attribute("aria-pressed", "true")
        told.append(
            {int(one) for one in re.findall(r"\d+", board.root.locator(".sentence").inner_text())}
        )
        plots.append(board.root.locator(".lanes canvas").get_attribute("data-shown"))
        board.press("v")
    assert plots[0] == plots[1] == plots[2]
    assert told[1] <= told[2]
    board.page.wait_for_url(re.compile("level=lanes$"))
    board.press("2")
    board.expect_data(only="blocks", level="all")
    expect(board.act("memory")).to_be_hidden()
    board.press("0")
    board.act("memory").click()
    board.page.wait_for_url(re.compile("level=memory$"))


def test_a_term_explains_itself_with_the_numbers_of_the_step(open_board):
    board = open_board(None, "#step=30&level=lanes", width=390, height=844)
    card, term = board.root.locator(".card"), board.root.locator(".seats .term")
    term.hover()
    expect(card).to_contain_text(re.compile(r"Step 30: \d of 7 taken"))
    box = card.bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= 390
    board.page.mouse.move(1, 1)
    expect(card).to_be_hidden()
    term.focus()
    expect(card).to_be_visible()
    board.page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    board = open_board(None, "#step=30", on=board.page)
    board.page.set_viewport_size({"width": 1280, "height": 900})
    board.root.locator("canvas.strip").hover(position={"x": 30, "y": 39})  # a painted word
    expect(card).to_have_attribute("data-about", "KV block")
    expect(card).to_contain_text("Step 30:")


def test_the_address_says_what_is_shown_and_brings_it_back(open_board):
    board = open_board()
    board.press(",", "ArrowDown", "[", ".", "]")
    board.page.wait_for_url(re.compile(r"#step=30&selected=9&range=29-30$"))
    again = open_board(None, "#step=12&selected=5&range=10-14&panel=tree", on=board.page)
    again.expect_data(step=12, selected=5, range="10-14", only="tree")
    again.page.evaluate("location.hash = '#step=20&selected='")
    again.expect_data(step=20, selected="")
    # An address that asks for nonsense is taken as far as it goes.
    nonsense = open_board(None, "#step=9999&selected=777&range=x&panel=<b>", on=board.page)
    nonsense.expect_data(step=53, selected="", only="")


def test_a_long_log_has_an_overview_and_zooms_and_the_address_has_it(open_board):
    log = crowd(requests=60, prefix_cache=False)
    board = open_board(log)
    # Python and the browser choose the same opening.
    expect_fold(board, log, show(log).step)
    board.expect_selected(show(log).selected)
    assert int(board.data("steps")) > 150
    regimes = read(log).regimes
    expect(board.root.locator("p.run")).to_contain_text(regimes.sentence)
    [limit] = [n for n, one in enumerate(regimes) if one.worst == regimes.worst]
    for number in (0, limit):
        board.root.locator(".regime").nth(number).click()
        board.expect_step(regimes[number].worst)

    def window() -> tuple[int, int]:
        board.page.wait_for_url(re.compile("from="))
        found = re.search(r"from=(\d+)&to=(\d+)", board.page.url)
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

    again = open_board(log, f"#step={step}&from={closer[0]}&to={closer[1]}", on=board.page)
    again.press("ArrowDown")
    again.page.wait_for_url(re.compile(f"from={closer[0]}&to={closer[1]}"))
