"""An exported page shows another log that is dropped on it or chosen from the disk."""

import base64
import gzip

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import expect_no_violation
from tests.browser.exported import the_log
from tests.visualizer.storytellers import crowd

DROP = """([text, name]) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], name));
  const send = (type) => document.body.dispatchEvent(
    new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
  return [send("dragover"), send("drop")];
}"""


@pytest.fixture
def page(open_board):
    board = open_board("preemption", "#step=25&selected=3")
    board.expect_step(25)
    return board.page


def drop(page: Page, content: bytes, name: str) -> None:
    # The browser must not open the file itself: both events are cancelled.
    assert page.evaluate(DROP, [base64.b64encode(content).decode(), name]) == [False, False]


def test_a_dropped_log_replaces_the_one_on_the_page(page):
    drop(page, the_log().to_bytes(), "class.jsonl")
    root = page.locator(".underglass")
    expect(root).to_have_attribute("data-requests", "12")
    expect(root).to_have_count(1)
    expect(root).to_have_attribute("data-ready", "true")
    # It opens at its own step, not at the one that the address named.
    expect(root).not_to_have_attribute("data-step", "25")
    expect(page).to_have_title("class.jsonl")
    expect(root.locator("h2.title")).to_have_text("class.jsonl")
    expect(root.locator(".caption")).to_have_text("")
    root.press("Home")
    expect(root).to_have_attribute("data-step", "1")
    page.wait_for_url("**#step=1*")
    expect_no_violation(page)


def test_logs_can_be_chosen_and_what_is_none_is_rejected_with_the_reason(page, tmp_path):
    crowd(5).save(tmp_path / "five.jsonl")
    (tmp_path / "twelve.jsonl.gz").write_bytes(gzip.compress(the_log().to_bytes()))
    for name, requests in (("five.jsonl", "5"), ("twelve.jsonl.gz", "12")):
        page.get_by_label("Open a log").set_input_files(tmp_path / name)
        expect(page.locator(".underglass")).to_have_attribute("data-requests", requests)
    drop(page, b"no log\n", "notes.txt")
    expect(page.get_by_role("alert")).to_contain_text("Line 1")
