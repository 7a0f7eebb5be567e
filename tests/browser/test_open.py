"""`underglass open` in a browser: a file that another process is writing, and a dropped file."""

import gzip
import os
import re
import signal
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from tests.browser.axe import expect_no_violation
from tests.browser.conftest import REPOSITORY
from tests.browser.exported import the_log
from tests.browser.test_open_log import drop
from tests.visualizer.clusters import three_replicas
from tests.visualizer.storytellers import crowd
from tests.visualizer.test_indexed import long_log
from visualizer import read
from visualizer.indexed import index_file
from visualizer.indexed.beside import index_of
from visualizer.live.local_server import LocalServer
from visualizer.live.pages import indexed_routes

VLLM = REPOSITORY / "tests/fixtures/vllm/vllm_shared_prefix.jsonl.gz"
# Requests of the page are sent when the test says so.
HOLD = """() => {
  const real = fetch
  window.held = []
  window.fetch = (...request) => new Promise((done) => {
    document.body.dataset.held = held.push(() => done(real(...request)))
  })
}"""


@pytest.fixture
def opened():
    """Runs the command; returns the address that it prints."""
    processes = []

    def run(*arguments: object) -> str:
        command = [sys.executable, "-m", "underglass", "open", "--no-browser"]
        process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        processes.append(process)
        assert process.stdout
        return process.stdout.readline().strip()

    yield run
    for process in processes:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stdout
        process.stdout.close()


def test_the_board_follows_a_file_that_grows_is_rotated_and_has_a_damaged_line(
    opened, new_page, tmp_path
):
    path = tmp_path / "run.jsonl"
    lines = the_log().to_bytes().splitlines(keepends=True)
    page = new_page()
    page.goto(opened(path, "--follow"))
    root = page.locator(".underglass")
    expect(root).to_have_attribute("data-live", "live")
    expect(root).to_contain_text("run.jsonl")  # nothing is in it
    with path.open("ab", buffering=0) as out:
        out.write(b"".join(lines[:200]))
        expect(root).to_have_attribute("data-ready", "true")
        first = int(root.get_attribute("data-step") or 0)
        assert first > 1
        out.write(b"".join(lines[200:]))
        expect(root).to_have_attribute("data-step", "53")
        expect_no_violation(page)
        path.rename(tmp_path / "run.jsonl.1")
    path.write_bytes(b"".join(lines[:200]))
    expect(root).to_have_attribute("data-step", str(first))
    expect(root.locator("[data-about=new-run]")).to_be_visible()
    with path.open("ab") as out:
        out.write(b"{damaged\n" + b"".join(lines[200:]))
    expect(root).to_have_attribute("data-step", "53")


def test_a_long_log_is_shown_while_it_is_indexed_then_in_ranges_and_damage_is_named(
    new_page, tmp_path
):
    path, page, answers = tmp_path / "run.jsonl", new_page(), []
    log = long_log()
    log.save(path)
    page.on("response", lambda answer: answers.append((answer.url.split("/")[-1], answer.status)))
    root = page.locator(".underglass")
    server = LocalServer(indexed_routes(path, None, is_cluster=False))
    server.start()

    def opened(name: str) -> set[tuple[str, int]]:
        answers.clear()
        page.goto(server.address + name)
        expect(root).to_have_attribute("data-loaded", "1", timeout=20_000)
        expect(root).to_have_attribute("data-ready", "true")
        return {one for one in answers if one[0] in {"index", "growing"}}

    assert opened("") == {("growing", 200)}
    expect(root).to_have_attribute("data-steps", str(log.state().step))
    expect(root).to_contain_text(read(log).regimes.sentence)
    step = root.get_attribute("data-step") or ""
    assert opened("?again") == {("index", 206)}
    expect(root).to_have_attribute("data-step", step)
    expect(root).to_contain_text(read(log).regimes.sentence)
    index = index_of(path)
    assert index is not None
    data = bytearray(index.path.read_bytes())
    data[index.directory.chunks[-1].offset] ^= 1
    index.path.write_bytes(data)
    last = log.state().step
    for name, key in (("?damaged", "End"), (f"?here#step={last}", "Home")):
        assert opened(name) == {("index", 206)}
        root.press(key)
        expect(root.locator("[role=alert]")).to_contain_text(f"to {len(log) - 1} is wrong")
        assert 1 < int(root.get_attribute("data-steps") or 0) < last
    server.close()


def test_a_cluster_log_is_read_from_its_index_and_damage_is_named(new_page, tmp_path, monkeypatch):
    monkeypatch.setattr(index_file, "EVENTS", 64)
    path, page, log = tmp_path / "run.jsonl", new_page(), three_replicas()
    root = page.locator(".cluster")
    log.save(path)
    server = LocalServer(indexed_routes(path, None, is_cluster=True))
    server.start()
    for again in ("", "?again"):
        page.goto(server.address + again)
        expect(root).to_have_attribute("data-ready", "true")
        expect(root).to_have_attribute("data-requests", "28")
        expect(root).to_contain_text(read(log).regimes.sentence)
    index = index_of(path)
    assert index is not None
    data = bytearray(index.path.read_bytes())
    data[index.directory.chunks[-1].offset] ^= 1
    index.path.write_bytes(data)
    page.goto(server.address + "?damaged")
    expect(root.locator("[role=alert]")).to_contain_text(f"to {len(log) - 1} is wrong")
    server.close()


def test_a_dropped_file_of_another_engine_is_translated(opened, new_page, tmp_path):
    crowd(5).save(tmp_path / "five.jsonl")
    page = new_page()
    page.goto(opened(tmp_path / "five.jsonl"))
    root = page.locator(".underglass")
    expect(root).to_have_attribute("data-requests", "5")
    drop(page, VLLM.read_bytes(), "vllm.jsonl.gz")
    expect(root).to_contain_text("vLLM")
    expect(root).to_have_attribute("data-ready", "true")
    drop(page, gzip.compress(bytes(64 << 20)), "bomb.gz")
    expect(root).to_have_attribute("data-ready", "error")
    expect(root.get_by_role("alert")).to_contain_text("line 1 is longer than 16 MB")
    drop(page, (tmp_path / "five.jsonl").read_bytes(), "five.jsonl")
    expect(root).to_have_attribute("data-requests", "5")
    # Of two files that are dropped at once, the later one is shown.
    page.evaluate(HOLD)
    for sent, count in enumerate((6, 7), start=1):
        drop(page, crowd(count).to_bytes(), f"{count}.jsonl")
        expect(page.locator("body")).to_have_attribute("data-held", str(sent))
    for send in (1, 0):
        with page.expect_response(re.compile("translate")) as answer:
            page.evaluate(f"held[{send}]()")
        answer.value.finished()
        expect(root).to_have_attribute("data-requests", "7")
    expect(root).to_have_attribute("data-ready", "true")


def test_a_page_without_a_server_names_the_command_for_a_foreign_file(open_board):
    board = open_board("preemption")
    page, root = board.page, board.root
    for content in (VLLM.read_bytes(), gzip.compress(bytes(100 << 20))):
        expect(root).to_have_attribute("data-ready", "true")
        drop(page, content, "foreign.jsonl.gz")
        expect(root.get_by_role("alert")).to_contain_text("underglass open FILE")
        drop(page, crowd(5).to_bytes(), "five.jsonl")
