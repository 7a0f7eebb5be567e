"""A board that keeps layers and words between pictures shows the same as a new board.

A million events move smoothly because only what changed is drawn again. That must not be visible: after
every kind of change, a second board is created beside the first, at the same view, and all their
pictures and words must be equal, pixel by pixel.
"""

import pytest
from playwright.sync_api import Page, expect

from engine import EventLog
from tests.browser.board import BoardOnPage
from tests.browser.live import ask, open_live, steps
from tests.browser.live import held_server as held
from tests.visualizer.storytellers import crowd

# All that a board shows: its canvases' pixels, its words, and the tables beside the pictures.
_SHOWN = """
window.drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
window.shown = (root) => {
  const pictures = {};
  for (const canvas of root.querySelectorAll("canvas")) {
    if (!canvas.width || !canvas.offsetParent || canvas.className === "cursor") continue;
    const name = `${canvas.closest("section").className} ${Object.keys(pictures).length}`;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let ends = data.length; // a picture that only grows ends in nothing
    while (ends && !data[ends - 1]) ends -= 1;
    let hash = 0;
    const pixels = new Uint32Array(data.buffer, 0, Math.ceil(ends / 4));
    for (const pixel of pixels) hash = (Math.imul(hash, 31) + pixel) | 0;
    pictures[name] = `${canvas.width} ${pixels.length} ${hash}`;
  }
  const words = [".sentence", ".swatches", ".changes", ".block-table", ".decisions", ".tokens",
    ".tree h2", ".range-words"];
  if (root.hasAttribute("data-tables")) words.push(".alternative"); // hidden ones come a moment later
  const told = (node) => {
    if (node.nodeType !== Node.ELEMENT_NODE) return node.data;
    if (node.className === "painted") return null;
    const attributes = [...node.attributes].map(({ name, value }) => `${name}=${value}`).sort();
    return [node.localName, ...attributes, ...[...node.childNodes].map(told)];
  };
  const all = words.flatMap((name) => [...root.querySelectorAll(name)]);
  const text = all.filter((each) => each.offsetParent).map((each) => [...each.childNodes].map(told));
  return { pictures, text };
};
window.rested = async () => {
  while (document.querySelector("[data-moving=true]")) await drawn();
};
// After a key, or at rest: whether the decisions are painted, their rows, the swatches at their left.
window.listed = async (root, key) => {
  if (key) root.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  await (key ? drawn() : rested());
  const list = root.querySelector(".decisions .scroll");
  const canvas = root.querySelector(".decisions canvas");
  const painted = !canvas.hidden;
  if (key) await drawn(); // a list of another height
  const { top, bottom, left } = list.getBoundingClientRect();
  const swatches = [...list.querySelectorAll(".chip i")].map((one) => one.getBoundingClientRect());
  const own = swatches.filter((box) => box.left < left + 9 && box.top > top && box.bottom + 3 < bottom);
  let tops = own.map((box) => Math.round(box.top - top));
  if (!canvas.hidden) {
    const { data } = canvas.getContext("2d").getImageData(8, 22, 1, canvas.height - 22);
    const isDark = (y) => data[4 * y + 3] && data[4 * y + 1] < 200;
    const isSwatch = (y) => !isDark(y - 1) && [...Array(11).keys()].every((i) => isDark(y + i));
    tops = [...data.keys()].filter(isSwatch);
  }
  return { painted, rows: list.querySelectorAll("tr").length, tops };
};
window.anew = async () => {
  const text = (id) => document.getElementById(id).textContent;
  window.made ??= import(URL.createObjectURL(new Blob([text("module")], { type: "text/javascript" })));
  const { mount } = await window.made;
  const root = document.querySelector(".underglass");
  const host = document.createElement("div");
  document.querySelector("main").append(host);
  const ends = new AbortController();
  const { step, selected, range, axis, only, block } = root.dataset;
  const board = await mount(host, {
    log: Uint8Array.from(atob(text("log")), (letter) => letter.charCodeAt(0)),
    address: false,
    signal: ends.signal,
    step: Number(step),
    selected: selected === "" ? null : Number(selected),
    range: range === "" ? null : range.split("-").map(Number),
    axis,
  });
  if (only) board.showOnly(only); // the reader has chosen it
  board.store.set({ touched: root.dataset.touched === "true" });
  if (block !== "") board.lookAt(Number(block));
  const lanes = root.querySelector(".lanes");
  if (lanes.offsetParent) {
    const [from, to] = lanes.querySelector("canvas").dataset.view.split(" ").map(Number);
    board.axis.look({ from, to });
    host.querySelector(".lanes").scrollTop = lanes.scrollTop;
  }
  if (root.hasAttribute("data-tables")) board.toggleTables();
  for (let i = 0; i < 3; i += 1) await drawn();
  const both = [shown(root), shown(host.querySelector(".underglass"))];
  ends.abort();
  host.remove();
  return both;
};
"""


def expect_as_made_anew(board: BoardOnPage, pictures: int = 7) -> None:
    """Everything the board shows is what a new one shows at the same view."""
    mine, fresh = board.page.evaluate("drawn().then(rested).then(anew)")
    assert mine["pictures"] == fresh["pictures"]
    assert mine["text"] == fresh["text"]
    assert len(mine["pictures"]) >= pictures


@pytest.fixture
def opened(new_page, open_board):
    """Open a log on a page that can compare boards."""

    def opened(log: EventLog | None = None) -> BoardOnPage:
        page = new_page()
        page.add_init_script(_SHOWN)
        return open_board(log, on=page)

    return opened


@pytest.fixture
def board(opened):
    return opened()


@pytest.fixture
def long_board(opened):
    """A log that does not fit in steps nor in lanes, on blocks that are a few pixels each."""
    return opened(crowd(requests=60, max_kv_tokens=32768, block_size=8, max_batch_size=2))


def test_after_moves_of_cursor_and_selection_and_a_look_at_a_block(board):
    expect_as_made_anew(board)
    for keys in (["."], ["ArrowDown"], ["Home"], ["Escape"], ["End", ",", ","], ["ArrowUp", "<"]):
        board.press(*keys)
        expect_as_made_anew(board)
    board.page.evaluate("location.hash = '#step=30&selected=8'")
    board.expect_step(30)
    board.root.locator(".map > canvas").focus()
    for key in ("ArrowRight", "ArrowDown", "Enter"):
        board.page.keyboard.press(key)
    expect(board.root).to_have_attribute("data-block", "8")
    expect_as_made_anew(board)
    board.press("[", ".", ".", "]", "t")
    expect_as_made_anew(board)


def test_after_another_theme_width_axis_or_panel_and_back(board):
    page = board.page
    for change in (
        lambda: page.emulate_media(color_scheme="dark"),
        lambda: page.set_viewport_size({"width": 700, "height": 800}),
        lambda: page.emulate_media(color_scheme="light"),
        lambda: page.set_viewport_size({"width": 1900, "height": 1000}),
        lambda: board.press("x", "."),
        lambda: page.set_viewport_size({"width": 1280, "height": 860}),
        lambda: board.press("x"),
    ):
        change()
        expect_as_made_anew(board)
    board.press("1", ".")
    expect_as_made_anew(board, pictures=3)
    board.press("0")
    expect_as_made_anew(board)


def test_after_zooming_moving_and_scrolling_a_long_log(long_board):
    board = long_board
    for keys in ("ww", "dd.", "s", "f", "f", ["End"], "x", "w,", "x"):
        board.press(*keys)
        expect_as_made_anew(board)
    board.page.emulate_media(color_scheme="dark")
    expect_as_made_anew(board)


def test_what_was_played_fast_is_all_true_once_it_stops(long_board):
    board = long_board
    board.press("Home", "+", "+", "+", " ")
    expect(board.act("speed")).to_have_attribute("data-per-second", "60")
    expect(board.root).to_have_attribute("data-playing", "true")
    board.page.wait_for_function("document.querySelector('.underglass').dataset.step > 40")
    board.press(" ")
    expect(board.root).to_have_attribute("data-playing", "false")
    expect_as_made_anew(board)
    last = int(board.data("steps"))
    board.press("End", "<")
    board.expect_step(last - 10)
    board.press(" ")
    board.expect_data(step=last, playing="false")
    expect_as_made_anew(board)


def redrawn(page: Page) -> list[dict[str, str]]:
    """The live board's picture, and the one after two other widths have made it redraw everything."""
    pictures = []
    for width in (1280, 1100, 1280):
        page.set_viewport_size({"width": width, "height": 860})
        page.evaluate("drawn().then(drawn)")
        pictures.append(page.evaluate("shown(document.querySelector('.underglass'))")["pictures"])
    assert pictures[1] != pictures[0]
    return [pictures[0], pictures[2]]


def test_after_every_step_of_a_live_engine(new_page):
    with held() as server:
        ask(server.url, *"ABCDEF", max_tokens=9)
        steps(server.url, 1)
        page = new_page()
        page.add_init_script(_SHOWN)
        board = open_live(page, server.url).wait()
        for axis in ("steps", "time"):
            for _ in range(3):
                step = steps(server.url, 1)
                board.expect_step(step)
                before, after = redrawn(page)
                assert before == after
            if axis == "steps":
                board.press("x")
                expect(board.root).to_have_attribute("data-axis", "time")
        # A request that arrives during a pause has a lane at once; the axis stays as it is.
        for count, name in enumerate("GH", start=7):
            ask(server.url, name)
            expect(board.root).to_have_attribute("data-requests", str(count))
            before, after = redrawn(page)
            assert before == after
