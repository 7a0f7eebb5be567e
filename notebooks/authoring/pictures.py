"""Take the pictures of the docs in Chromium: `make pictures`.

`docs/board-light.png` is the whole board at a preemption, `docs/live-light.png` the live page with a
class of thirty, and `docs/vllm-light.png` a recording of vLLM. All exist for the dark theme too.
"""

import tempfile
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Literal

import httpx
from playwright.sync_api import Browser, ViewportSize, expect, sync_playwright

from authoring.lab import CHROMIUM_FLAGS, REPOSITORY
from authoring.palette import png
from engine.core.log import EventLog
from engine.core.log.vocabulary import Preempted, StepStarted
from engine.simulation.speakers import NAMES
from server.process import serve_in_background
from tests.visualizer.storytellers import storytellers
from visualizer import gallery, to_html
from visualizer.pictures import chromium_path

SIZE: ViewportSize = {"width": 1280, "height": 1100}  # a whole board is in sight
SHARPNESS = 2  # device pixels per pixel

Theme = Literal["light", "dark"]
LIVE: ViewportSize = {"width": 1280, "height": 1000}
LIVE_STEP = 28
RECORDED: ViewportSize = {"width": 1280, "height": 715}  # down to the prefix tree
RECORDED_STEP, WAITING = 60, 9  # six requests wait, Ivo at the end of the queue
# The live page has these prompts as buttons; each student asks for a story about another animal.
QUESTIONS = (
    "Tell me a story about a {animal}.",
    "What is a KV cache?",
    "Tell me a story about a {animal}.",
    "What is 17 + 25?",
    "Why is decode slower than prefill?",
)
ANIMALS = "bear cat dog duck fox frog goat lion mouse owl pig wolf".split()


def main() -> None:
    """Write the pictures into `docs`."""
    path = chromium_path()
    if path is None:
        raise SystemExit("no Chromium on this machine: install the package `chromium`")
    log = storytellers()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "class.html"
        to_html(log, file)
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        themes: tuple[Theme, ...] = ("light", "dark")
        lives = live(browser, themes)
        for theme in themes:
            made = {
                "board": board_of(browser, file, log, theme),
                "live": lives[theme],
                "vllm": recorded(browser, Path(folder), theme),
            }
            for name, content in made.items():
                target = REPOSITORY / "docs" / f"{name}-{theme}.png"
                target.write_bytes(content)
                print(f"{target.name}: {len(content) / 1000:.0f} KB")
        browser.close()


def live(browser: Browser, themes: Sequence[Theme]) -> dict[Theme, bytes]:
    """Return a picture of the live page for each theme: a class of thirty, paused at LIVE_STEP."""
    pictures = {}
    with (
        serve_in_background(
            paused=True, token_budget=64, max_batch_size=24, max_kv_tokens=2048
        ) as server,
        httpx.Client(base_url=server.url, timeout=None, trust_env=False) as client,
    ):
        for name, question, animal in zip(NAMES, cycle(QUESTIONS), cycle(ANIMALS), strict=False):
            chat = [{"role": "user", "content": question.format(animal=animal)}]
            body = {"messages": chat, "user": name, "max_tokens": 60, "stream": True}
            asked = client.build_request("POST", "/v1/chat/completions", json=body)
            client.send(asked, stream=True).raise_for_status()  # it is in the queue now
        client.post("/engine/step", json={"steps": LIVE_STEP}).raise_for_status()
        for theme in themes:
            context = browser.new_context(
                viewport=LIVE, color_scheme=theme, device_scale_factor=SHARPNESS
            )
            page = context.new_page()
            page.goto(server.url)
            board = page.locator(".underglass").first
            expect(board).to_have_attribute("data-live", "live")
            expect(board).to_have_attribute("data-step", str(LIVE_STEP))
            pictures[theme] = png(page.screenshot(animations="disabled"))
            context.close()
    return pictures


def recorded(browser: Browser, folder: Path, theme: Theme) -> bytes:
    """Return a picture of a recorded vLLM: the upper part of the board."""
    file = folder / "vllm.html"
    to_html(gallery()["vllm_tight"].log, file)
    context = browser.new_context(
        viewport=RECORDED, color_scheme=theme, device_scale_factor=SHARPNESS
    )
    page = context.new_page()
    page.goto(f"{file.as_uri()}#step={RECORDED_STEP}&selected={WAITING}")
    expect(page.locator(".underglass").first).to_have_attribute("data-ready", "true")
    picture = png(page.screenshot(animations="disabled"))
    context.close()
    return picture


def board_of(browser: Browser, file: Path, log: EventLog, theme: Theme) -> bytes:
    """Return a picture of the whole board at the log's first preemption."""
    step, victim = first_preemption(log)
    context = browser.new_context(viewport=SIZE, color_scheme=theme, device_scale_factor=SHARPNESS)
    page = context.new_page()
    page.goto(f"{file.as_uri()}#step={step}&selected={victim}")
    board = page.locator(".underglass").first
    expect(board).to_have_attribute("data-ready", "true")
    picture = png(board.screenshot(animations="disabled"))
    context.close()
    return picture


def first_preemption(log: EventLog) -> tuple[int, int]:
    """Return the step and the victim of the log's first preemption."""
    step = 0
    for event in log:
        if isinstance(event, StepStarted):
            step = event.step
        elif isinstance(event, Preempted):
            return step, event.request
    raise ValueError("the log has no preemption")


if __name__ == "__main__":
    main()
