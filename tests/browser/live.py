"""Servers and pages for tests of what is drawn of a running engine."""

import re
from typing import Any

from playwright.sync_api import Locator, Page, expect

from engine.core.log.vocabulary import RequestArrived
from server.process import BackgroundServer
from tests.browser.board import BoardOnPage, counts_at, swatches_for
from tests.server.harness import Caller, Feed, post, start, trace

ENGINE = {"max_batch_size": 4, "max_kv_tokens": 256, "block_size": 8, "token_budget": 32}


def held_server(port: int = 0, **server: str) -> BackgroundServer:
    """A server whose engine is held, so that a test says when a step happens."""
    return start(paused=True, engine=ENGINE, port=port, server=server)


_callers: list[Caller] = []


def ask(url: str, *names: str, max_tokens: int = 6, held: bool = False) -> list[Caller]:
    """Queue requests, or let a server hold them back. `hang_up` closes them after the test."""
    callers = []
    with Feed(url) as feed:
        feed.keyframe()
        for name in names:
            body = {"prompt": f"Once upon a time {name}", "max_tokens": max_tokens}
            callers.append(Caller(url, "/v1/completions", body, X_Client=name))
            if not held:
                feed.until_kind(RequestArrived)
    _callers.extend(callers)
    return callers


def hang_up() -> None:
    while _callers:
        _callers.pop().close()


def watch(page: Page, url: str, options: str = "{}", before: str = "") -> BoardOnPage:
    """Replace the live page's board by one that is watched with other options, as `window.watched`."""
    page.goto(url)
    page.evaluate(
        f"""async () => {{
          const {{ watch }} = await import("/board/live.js");
          {before}
          const host = document.createElement("div");
          document.getElementById("board").replaceWith(host);
          window.watched = watch(host, {options});
        }}"""
    )
    return BoardOnPage(page)


def steps(url: str, count: int) -> int:
    """Let a held engine go on; returns the number of its last step."""
    return int(post(url, "/engine/step", {"steps": count}).json()["step"])


def run_until(url: str, until: str) -> dict[str, Any]:
    """Let a held engine go on until something happens; returns why it stopped."""
    stopped: dict[str, Any] = post(url, "/engine/run_until", {"until": until}).json()
    return stopped


def open_live(page: Page, url: str) -> BoardOnPage:
    page.goto(url)
    board = BoardOnPage(page)
    expect(board.root).to_have_attribute("data-live", "live", timeout=30_000)
    return board


def expect_same_as_trace(board: BoardOnPage, url: str, step: int) -> None:
    """The board comes to show at this step what the Python fold of /trace has."""
    board.expect_step(step)
    expected = counts_at(trace(url), step)
    for name, count in expected.items():
        expect(board.root).to_have_attribute(f"data-{name}", str(count))
    numbers = r"\D+".join(map(str, ["", *swatches_for(expected), ""]))
    expect(board.root.locator(".swatches").first).to_have_text(
        re.compile(rf"^{numbers}$"), use_inner_text=True
    )


def engine_button(page: Page, name: str) -> Locator:
    """A button of the teacher's: pause, step, resume, hold or release."""
    return page.locator(f"#{name}")


def send(page: Page, prompt: str, *, raw: bool | None = True, **fields: str) -> None:
    """Send a prompt from the page's box; fields are its inputs `name` and `tokens`.

    The page's own maximum does not fit into the memory of most servers here. `raw` is None while the
    page does not know whether the model chats.
    """
    if raw is not None:
        page.locator("#raw").set_checked(raw)
    for field, value in ({"tokens": "60"} | fields).items():
        page.locator(f"#{field}").fill(value)
    page.locator("#text").fill(prompt)
    page.locator("#send").click()
