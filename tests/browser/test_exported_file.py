"""The board in an exported file, opened from disk: no kernel, no server, no network."""

import base64
import gzip
import re
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from engine.events import EventLog
from engine.events.vocabulary import RequestFinished, StepScheduled, StepStarted
from tests.browser.board import (
    BoardOnPage,
    counts_at,
    expect_fold,
    numbers_in,
    swatches_for,
    table_at,
)
from tests.browser.conftest import NewPage
from tests.facts import assert_names
from tests.visualizer.storytellers import crowd, storytellers
from visualizer import show, to_html
from visualizer.logs import StepIndex, state_at


@pytest.fixture(scope="module")
def log() -> EventLog:
    return storytellers()


@pytest.fixture(scope="module")
def exported(log: EventLog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "board.html"
    to_html(log, path)
    return path


@pytest.fixture
def board(new_page: NewPage, exported: Path) -> BoardOnPage:
    return opened(new_page(), exported)


def opened(page: Page, path: Path) -> BoardOnPage:
    page.goto(path.as_uri())
    return BoardOnPage(page).wait()


def test_it_opens_at_the_first_preemption_and_says_so(board: BoardOnPage, log: EventLog) -> None:
    expect_fold(board, log, 30)
    board.expect_selected(8)
    assert_names(board.text(".sentence"), 30, 5, 64, "r8")
    assert "preempted" in board.told()
    moment = board.root.locator(".decisions .moment")
    expect(moment).to_have_attribute("data-kind", "preempted")
    expect(moment).to_have_attribute("data-request", "8")
    expect(board.root.locator(".block-table .fate").first).to_be_visible()


def test_every_step_equals_the_python_fold(board: BoardOnPage, log: EventLog) -> None:
    shown = board.walk()
    assert [int(each["step"]) for each in shown] == list(range(1, 54))
    for step, each in enumerate(shown, start=1):
        expected = counts_at(log, step)
        assert {name: int(each[name]) for name in expected} == expected
        assert numbers_in(each["words"]) == swatches_for(expected)


def test_keys_move_the_cursor(board: BoardOnPage) -> None:
    for key, step in [
        (",", 29), ("ArrowRight", 30), ("Shift+ArrowRight", 40), ("End", 53), (".", 53),
        ("ArrowLeft", 52), ("Home", 1), (",", 1),
    ]:  # fmt: skip
        board.press(key)
        board.expect_step(step)


def test_keys_work_before_anything_is_clicked(board: BoardOnPage) -> None:
    keyboard = board.page.keyboard
    keyboard.press(".")
    board.expect_step(31)
    keyboard.press("y")
    expect(board.root).to_have_attribute("data-only", "waterfall")
    keyboard.press("y")
    keyboard.press("Control+.")  # of the browser
    board.expect_step(31)


def test_buttons_step_and_play(board: BoardOnPage) -> None:
    board.act("back").click()
    board.expect_step(29)
    board.press("End", ",", ",")
    board.expect_step(51)
    playing = board.record("playing")
    board.act("play").click()
    board.expect_step(53)
    expect(board.root).to_have_attribute("data-playing", "false")
    assert playing() == ["false", "true", "false"]


def test_space_plays_and_pauses(board: BoardOnPage) -> None:
    board.press("Home", " ")
    expect(board.root).not_to_have_attribute("data-step", "1")
    board.press(" ")
    expect(board.root).to_have_attribute("data-playing", "false")
    assert int(board.data("step")) < 53


def test_dragging_over_the_strip_scrubs(board: BoardOnPage) -> None:
    box = board.canvas("canvas.strip")
    mouse, y = board.page.mouse, box["y"] + 40
    mouse.move(box["x"] + 140, y)
    mouse.down()
    expect(board.root).not_to_have_attribute("data-step", "30")
    first = int(board.data("step"))
    mouse.move(box["x"] + 340, y, steps=5)
    expect(board.root).not_to_have_attribute("data-step", str(first))
    mouse.up()
    board.settle()
    last = int(board.data("step"))
    assert last > first
    mouse.move(box["x"] + 200, y)
    board.expect_step(last)


def test_one_selection_everywhere(board: BoardOnPage, log: EventLog) -> None:
    board.root.locator(".sentence .chip", has_text="r6").first.click()
    board.expect_selected(6)
    pressed = board.root.locator(".chip[aria-pressed=true]").all_inner_texts()
    assert pressed
    assert set(pressed) == {"r6"}
    table = board.root.locator(".block-table .physical td").all_inner_texts()
    assert [int(block) for block in table] == table_at(log, 30, 6)
    assert "Soft grey drum" in board.text(".tokens .text").replace("\u00a0", " ")
    board.root.locator(".decisions .chip", has_text="r7").first.click()
    board.expect_selected(7)
    board.press("ArrowUp")
    board.expect_selected(6)
    board.press("Escape")
    board.expect_selected("")


def test_a_click_on_a_lane_and_on_a_block_selects(board: BoardOnPage) -> None:
    lanes = board.canvas(".lanes canvas")
    board.page.mouse.click(lanes["x"] + 300, lanes["y"] + 3 + 22 * 3 + 11)
    board.expect_selected(4)
    board.expect_step(30)
    blocks = board.canvas(".map > canvas")
    for owner in (1, 5, 6, 7, 1):  # block 0 is shared: each click selects the next owner
        board.page.mouse.click(blocks["x"] + 31, blocks["y"] + 31)
        board.expect_selected(owner)


def test_hovering_tells(board: BoardOnPage, log: EventLog) -> None:
    blocks = board.canvas(".map > canvas")
    board.page.mouse.move(blocks["x"] + 31, blocks["y"] + 31)
    expect(board.root.locator(".tip")).to_contain_text("You are a kind storyteller. Use short")
    assert_names(board.text(".tip"), 0, "r1", "r5", "r6", "r7")
    lanes = board.canvas(".lanes canvas")
    board.page.mouse.move(lanes["x"] + 300, lanes["y"] + 3 + 22 * 3 + 11)
    expect(board.root.locator(".tip")).to_contain_text("r4")
    [step] = numbers_in(board.text(".tip p:nth-child(2)"))[:1]
    assert 4 in state_at(log, StepIndex(log), step)["running"]
    band = board.canvas(".waiting canvas")
    board.page.mouse.move(band["x"] + 400, band["y"] + 30)
    expect(board.root.locator(".tip")).to_contain_text("waiting")
    step, *_, waiting = numbers_in(board.text(".tip"))[:8]
    assert waiting == len(state_at(log, StepIndex(log), int(step))["waiting"])


def test_keys_act_only_on_a_focused_board_and_stay_inside(board: BoardOnPage) -> None:
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


def test_stepping_never_moves_the_board(board: BoardOnPage) -> None:
    tops = {tuple(each["tops"]) for each in board.walk()}
    assert len(tops) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_readers_scheme_decides_and_a_host_may_change_it(
    new_page: NewPage, exported: Path, scheme: str
) -> None:
    board = opened(new_page(color_scheme=scheme), exported)
    expect(board.root).to_have_attribute("data-theme", scheme)
    ground = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 22, 26)"}
    expect(board.root).to_have_css("background-color", ground[scheme])
    board.page.evaluate("document.body.dataset.jpThemeLight = 'true'")
    expect(board.root).to_have_attribute("data-theme", "light")
    board.page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    expect(board.root).to_have_attribute("data-theme", "dark")


# What is cut off at its right, and the token to come, where it is not in sight. A block table scrolls.
_CUT = """() => {
  const cut = [...document.querySelectorAll(".scroll")].filter(
    (node) => !node.closest(".block-table")).filter(
    (node) => node.clientWidth && node.scrollWidth > node.clientWidth + 1);
  const box = document.querySelector(".tokens .text").getBoundingClientRect();
  const next = document.querySelector(".tokens .next").getBoundingClientRect();
  return [...cut.map((node) => node.className), ...(next.bottom > box.bottom ? ["next"] : [])];
}"""


def test_it_fits_every_width_and_takes_up_a_new_one(board: BoardOnPage) -> None:
    for width, layout in [
        (360, "narrow"), (700, "narrow"), (760, "wide"), (1280, "wide"), (1760, "wide"),
        (1840, "wide"), (2560, "wide"),
    ]:  # fmt: skip
        board.page.set_viewport_size({"width": width, "height": 900})
        expect(board.root).to_have_attribute("data-layout", layout)
        assert board.page.evaluate("document.documentElement.scrollWidth") <= width
        assert board.page.evaluate(_CUT) == [], width
        right = board.page.evaluate(
            """() => Math.max(...[...document.querySelectorAll(".underglass *")]
                 .filter((node) => !node.closest(".for-screen-readers, .scroll, .alternative, .cells"))
                 .map((node) => node.getBoundingClientRect().right))"""
        )
        assert right <= width


def _finish_beside_decodes(log: EventLog) -> int:
    """A step in which requests decode and at least one of them finishes."""
    step = rows = 0
    for event in log:
        match event:
            case StepStarted():
                step = event.step
            case StepScheduled():
                rows = len(event.rows)
            case RequestFinished() if rows > 2:
                return step
    raise AssertionError("no request finished beside two others")


def test_rows_of_decisions_that_wrap_do_not_overlap(new_page: NewPage, tmp_path: Path) -> None:
    log = crowd(requests=8, labels=[f"Student {i}" for i in range(8)])
    to_html(log, tmp_path / "names.html", step=_finish_beside_decodes(log))
    board = opened(new_page(width=760), tmp_path / "names.html")
    boxes = board.root.evaluate(
        """(root) => [...root.querySelectorAll(".decisions tr")].map((row) => {
          const { top, bottom, height } = row.getBoundingClientRect();
          return { top, bottom, height };
        })"""
    )
    assert len(boxes) > 2
    assert any(box["height"] > 30 for box in boxes)  # a decision takes a second line
    for above, below in pairwise(boxes):
        assert above["bottom"] <= below["top"] + 0.5


def test_screen_readers_get_words_for_everything(board: BoardOnPage, log: EventLog) -> None:
    expect(board.root.locator(".sentence")).to_have_attribute("aria-live", "polite")
    for canvas in board.root.locator("canvas").all():
        named = canvas.get_attribute("role") in ("img", "application")
        named = named and canvas.get_attribute("aria-label")
        assert named or canvas.get_attribute("aria-hidden") == "true"
    tables = board.root.locator(".alternative table")
    expect(tables).to_have_count(4)
    requests = board.root.locator(".time .alternative table").nth(1)
    assert numbers_in(requests.locator("caption").inner_text()) == [30]
    state = state_at(log, StepIndex(log), 30)
    names = [f"r{one}" for one in [8, *state["running"], *state["waiting"]]]
    assert requests.locator("tbody th").all_inner_texts() == list(dict.fromkeys(names))


def test_text_from_prompts_is_text(new_page: NewPage, tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=window.hacked=1><b>bold</b>"
    log = crowd(labels=[hostile, "Ada"], prompts=[hostile + " tell me", "hello"])
    to_html(log, tmp_path / "hostile.html", step=1, select=1, title=hostile)
    board = opened(new_page(), tmp_path / "hostile.html")
    said = "".join(board.root.locator(".tokens .token").all_inner_texts())
    assert "".join(said.split()).startswith("".join(hostile.split()))
    assert hostile[:10] in board.text(".decisions")
    board.press(".", ".", "ArrowDown")
    assert board.page.evaluate("window.hacked") is None
    assert board.root.locator("img:not(.postcard img), b:not(.token b)").count() == 0


def test_a_long_log_has_an_overview_and_zooms(new_page: NewPage, tmp_path: Path) -> None:
    log = crowd(requests=60, prefix_cache=False)
    to_html(log, tmp_path / "long.html")
    board = opened(new_page(), tmp_path / "long.html")
    # Python and the browser choose the same opening.
    expect_fold(board, log, show(log).step)
    board.expect_selected(show(log).selected)
    board.press("f", "f", "w", "w", "a", "d", "s", "End")
    last = int(board.data("steps"))
    expect_fold(board, log, last)
    assert last > 150


def test_nothing_is_animated(new_page: NewPage, exported: Path) -> None:
    board = opened(new_page(reduced_motion="reduce"), exported)
    board.press(".", ".")
    assert board.page.evaluate("document.getAnimations().length") == 0


def with_log(exported: Path, path: Path, log: bytes) -> Path:
    """The exported page with another log in it, which Python itself would refuse to export."""
    page = exported.read_text("utf-8")
    start = page.index('id="log">') + len('id="log">')
    end = page.index("<", start)
    packed = base64.b64encode(gzip.compress(log)).decode()
    path.write_text(page[:start] + packed + page[end:], "utf-8")
    return path


def test_a_bad_log_says_which_line_and_why(
    new_page: NewPage, exported: Path, log: EventLog, tmp_path: Path
) -> None:
    lines = log.to_bytes().split(b"\n")
    lines[6] = b'{"type": "step_st'
    page = new_page()
    page.goto(with_log(exported, tmp_path / "bad.html", b"\n".join(lines)).as_uri())
    # What comes before it is shown.
    alert = page.locator(".underglass").get_by_role("alert")
    expect(alert).to_have_text(re.compile(r"\b7\b"))
    expect(page.locator(".underglass")).to_have_attribute("data-error", "7")


def test_an_empty_log_says_what_to_do(
    new_page: NewPage, exported: Path, log: EventLog, tmp_path: Path
) -> None:
    header = log.to_bytes().split(b"\n")[0] + b"\n"
    page = new_page()
    page.goto(with_log(exported, tmp_path / "empty.html", header).as_uri())
    expect(page.locator(".underglass [data-message=empty]")).to_contain_text("engine.step()")
