"""The board in an exported file, opened from disk: no kernel, no server, no network."""

import base64
import gzip
import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.board import counts_at, numbers_in, right_end, swatches_for
from tests.browser.exported import the_log


@pytest.fixture
def board(open_board):
    return open_board()


def test_every_step_equals_the_python_fold_and_never_moves_the_board(board):
    board.page.emulate_media(reduced_motion="reduce")
    shown = board.walk()
    assert [int(each["step"]) for each in shown] == list(range(1, 54))
    for step, each in enumerate(shown, start=1):
        expected = counts_at(the_log(), step)
        assert {name: int(each[name]) for name in expected} == expected
        assert numbers_in(each["words"]) == swatches_for(expected)
    assert len({tuple(each["tops"]) for each in shown}) == 1
    assert board.page.evaluate("document.getAnimations().length") == 0


# What is cut off at its right, and the token to come, where it is not in sight. A block table scrolls.
_CUT = """() => {
  const cut = [...document.querySelectorAll(".scroll")].filter(
    (node) => !node.closest(".block-table")).filter(
    (node) => node.clientWidth && node.scrollWidth > node.clientWidth + 1);
  const box = document.querySelector(".tokens .text").getBoundingClientRect();
  const next = document.querySelector(".tokens .next").getBoundingClientRect();
  return [...cut.map((node) => node.className), ...(next.bottom > box.bottom ? ["next"] : [])];
}"""


def test_it_fits_every_width_and_takes_up_a_new_one(board):
    for width, layout in [
        (360, "narrow"), (700, "narrow"), (760, "wide"), (1280, "wide"), (1760, "wide"),
        (1840, "wide"), (2560, "wide"),
    ]:  # fmt: skip
        board.page.set_viewport_size({"width": width, "height": 900})
        expect(board.root).to_have_attribute("data-layout", layout)
        assert board.page.evaluate("document.documentElement.scrollWidth") <= width
        assert board.page.evaluate(_CUT) == [], width
        unless = ".for-screen-readers, .scroll, .alternative, .cells"
        assert right_end(board.page, unless) <= width


def test_a_board_is_printed_on_one_page_unless_that_makes_it_too_small(open_board):
    for log, pages in (("thirty", 1), ("vllm_tight", 2)):
        printed = open_board(log).page.pdf(prefer_css_page_size=True)
        assert len(re.findall(rb"/Type */Page\b", printed)) == pages


def test_a_bad_log_says_which_line_and_why_and_an_empty_one_what_to_do(new_page, exports, tmp_path):
    def show_log(page: Page, name: str, log: bytes) -> None:
        """Show the exported page with another log, which Python itself would refuse to export."""
        text = exports.page().read_text("utf-8")
        packed = base64.b64encode(gzip.compress(log)).decode()
        path = tmp_path / name
        path.write_text(re.sub(r'(?<=id="log">)[^<]*', packed, text, count=1), "utf-8")
        page.goto(path.as_uri())

    page = new_page()
    lines = the_log().to_bytes().split(b"\n")
    show_log(page, "empty.html", lines[0] + b"\n")
    expect(page.locator(".underglass [data-message=empty]")).to_contain_text("engine.step()")
    lines[6] = b'{"type": "step_st'
    show_log(page, "bad.html", b"\n".join(lines))
    # What comes before it is shown.
    alert = page.locator(".underglass").get_by_role("alert")
    expect(alert).to_have_text(re.compile(r"\b7\b"))
    expect(page.locator(".underglass")).to_have_attribute("data-error", "7")
