"""Everything on screen belongs to one step: while an engine runs, and while a log is played.

A reader reads the whole page at once. So do these tests: one call to the page reads every attribute and
every word that depends on the step, and all of them must say the same.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from playwright.sync_api import expect

from engine.core.log import EventLog
from tests.browser.board import BoardOnPage
from tests.browser.live import open_live
from tests.server.harness import http, start
from tests.visualizer.storytellers import crowd
from visualizer import to_html

READS = 20

# Steps by the place that names them, and counts by the place that says them.
_READ = r"""
(root) => {
  const { step, unshared, shared, cached, free, running, waiting } = root.dataset;
  // Words of a board that moves quickly are on a canvas, which says them in its label.
  const words = (selector) => {
    const one = root.querySelector(selector);
    return one.closest("[data-painted]")?.previousElementSibling.ariaLabel ?? one.textContent;
  };
  const numbers = (text) => (text.match(/\d+/g) ?? []).map(Number);
  const steps = { root: Number(step), sentence: numbers(words(".sentence"))[0] };
  const strip = root.querySelector(".strip").getAttribute("aria-label");
  steps.strip = numbers(strip)[0];
  for (const section of root.querySelectorAll("section:not([hidden])"))
    steps[section.className] = Number(section.dataset.step);
  for (const caption of root.querySelectorAll(".alternative caption"))
    if (/step \d/i.test(caption.textContent))
      steps[caption.textContent.split(/ at | of /)[0]] = numbers(caption.textContent)[0];
  const blocks = [unshared, shared, cached, free].map(Number);
  const counts = [
    ["blocks", blocks, numbers(words(".swatches"))],
    ["blocks, in the label", blocks, numbers(root.querySelector(".map > canvas").ariaLabel).slice(1)],
    ["waiting", [Number(waiting)], numbers(strip.match(/\d+ waiting/)[0])],
    ["waiting, in Decisions", [Number(waiting)], numbers(words(".decisions .count")).slice(-1)],
  ];
  const [held] = numbers(words(".decisions .count"));
  const header = root.querySelector(".live .counts");
  if (header) {
    const [said, seats, , idle, used, all] = numbers(header.textContent);
    counts.push(["seats, in the header", [held], [seats]]);
    if (!blocks[0] && !blocks[1]) counts.push(["seats, without a block", [0], [seats]]);
    steps.header = Number(header.dataset.step);
    steps["header, in words"] = said;
    counts.push(["waiting, in the header", [Number(waiting)], [idle]]);
    counts.push(["blocks, in the header", [blocks[0] + blocks[1]], [used]]);
    counts.push(["all blocks, in the header", [blocks.reduce((sum, one) => sum + one)], [all]]);
  }
  return { steps, counts };
}
"""

# The same in the frames after each of some keys: back a step, and to the newest.
_READ_AFTER_KEYS = f"""
async (root, turns) => {{
  const read = {_READ.strip()};
  const seen = [];
  for (let turn = 0; turn < turns; turn += 1) {{
    const key = turn % 2 ? "n" : ",";
    root.dispatchEvent(new KeyboardEvent("keydown", {{ key, bubbles: true, cancelable: true }}));
    for (let frame = 0; frame < 3; frame += 1) {{
      await new Promise(requestAnimationFrame);
      await new Promise((done) => setTimeout(done));
      seen.push(read(root));
    }}
  }}
  return seen;
}}
"""

# What follows after each of these keys. The engine's steps arrive meanwhile.
_FOLLOWING_AFTER_KEYS = """
async (root, turns) => {
  const seen = { ",": [], n: [] };
  for (let turn = 0; turn < turns; turn += 1) {
    const key = turn % 2 ? "n" : ",";
    root.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    for (let frame = 0; frame < 3; frame += 1) {
      await new Promise(requestAnimationFrame);
      await new Promise((done) => setTimeout(done, turn % 7));
    }
    seen[key].push(root.dataset.following);
  }
  return seen;
}
"""


def read(board: BoardOnPage) -> int:
    """Read all of the page at one moment; returns its step, once all places agree on it."""
    seen: dict[str, Any] = board.root.evaluate(_READ)
    assert len(seen["steps"]) >= 8
    assert len(set(seen["steps"].values())) == 1, seen["steps"]
    for place, shown, said in seen["counts"]:
        assert shown == said, (place, seen)
    return int(seen["steps"]["root"])


@contextmanager
def clients(url: str, count: int) -> Iterator[None]:
    """So many clients, each of which asks again as soon as it has its answer."""
    over = threading.Event()

    def ask(name: int) -> None:
        body = {
            "prompt": f"Once upon a time {name % 3}",
            "max_tokens": 40,
            "user": f"Student {name}",
        }
        with http(url) as client:
            while not over.is_set():
                client.post("/v1/completions", json=body)

    threads = [threading.Thread(target=ask, args=(name,)) for name in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@cache
def long_log() -> EventLog:
    return crowd(requests=60, max_kv_tokens=32768, block_size=8, max_batch_size=2)


def test_every_read_of_a_log_that_is_played_is_of_one_step(open_board):
    board = open_board(long_log())
    board.press("Home", "+", "+", "+", " ")
    expect(board.root).to_have_attribute("data-playing", "true")
    steps = {read(board) for _ in range(READS)}
    assert len(steps) > 5


def test_another_log_in_a_zoomed_board_keeps_the_cursor_in_view(new_page, tmp_path):
    text = to_html(long_log()).replace("await mount(", "window.board = await mount(")
    (tmp_path / "log.html").write_text(text, "utf-8")
    page = new_page()
    page.goto((tmp_path / "log.html").as_uri())
    board = BoardOnPage(page).wait()
    board.press("End")
    board.expect_step(int(board.data("steps")))
    view = board.page.evaluate(
        """(log) => {
          const model = new board.model.constructor();
          model.read(new TextEncoder().encode(log));
          model.end();
          board.open(model, { step: 30, selected: 2 });
          return board.root.querySelector(".lanes canvas").dataset.view.split(" ").map(Number);
        }""",
        long_log().to_bytes().decode(),
    )
    assert (board.data("step"), board.data("selected")) == ("30", "2")
    assert view[0] <= 30 < view[1]


ENGINE = {"max_batch_size": 8, "max_kv_tokens": 1024, "block_size": 8, "token_budget": 64}


@pytest.fixture(scope="module")
def busy():
    """The address of a server with many clients, which keep a core busy: its tests come last."""
    with start(engine=ENGINE) as server, clients(server.url, 12):
        yield server.url


def test_every_read_of_a_live_page_is_of_one_step_and_no_key_is_lost(new_page, busy, soak):
    board = open_live(new_page(), busy).wait()
    steps = set()
    for _ in range(1000 if soak else READS):
        steps.add(read(board))
        board.page.evaluate("() => new Promise(requestAnimationFrame)")
    while len(steps) < 4:  # it goes on
        steps.add(read(board))
        board.settle()
    # A board that looks back reads one step, too.
    board.press(",")
    expect(board.root).to_have_attribute("data-following", "false")
    assert len({read(board) for _ in range(READS // 4)}) == 1
    turns = 40 if soak else 12
    for seen in board.root.evaluate(_READ_AFTER_KEYS, turns):
        assert len(set(seen["steps"].values())) == 1, seen["steps"]
    following = board.root.evaluate(_FOLLOWING_AFTER_KEYS, turns)
    assert following == {",": ["false"] * (turns // 2), "n": ["true"] * (turns // 2)}
