"""Take the pictures of the docs in Chromium: `make pictures`.

`docs/step-light.png` is a preemption among three people, made for the width of a README;
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
# The least width with two columns, which a README shows in 846 px, and what ends below the tree.
README_LAYOUT: ViewportSize = {"width": 720, "height": 350}
# Only what the sentence tells of; the lanes get as much room as all their steps need.
README_STYLE = """
html { overflow: hidden; scrollbar-gutter: auto !important }
.underglass { padding: 6px 8px !important; overflow: hidden }
.underglass :is(.top, .caption, .moments, .controls, .foot, .seats, .changed, .told),
.underglass .map :is(.table, .paintable:has(.table)), .open-log { display: none !important }
.underglass .grid {
  grid-template: "left right" / minmax(0, 1fr) 200px !important;
  column-gap: 22px !important;
}
.underglass .term { text-decoration: none !important }
"""
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
                "step": step_of(browser, Path(folder), theme),
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


def step_of(browser: Browser, folder: Path, theme: Theme) -> bytes:
    """Return a picture of a step for a README: the sentence, the lanes and the memory.

    It is laid out narrower than a README shows it, so its smallest letters have more than 12 px.
    """
    file = folder / "step.html"
    page_text = to_html("preemption", level="memory")
    file.write_text(
        page_text.replace("</title>", f"</title><style>{README_STYLE}</style>", 1), "utf-8"
    )
    context = browser.new_context(
        viewport=README_LAYOUT,
        color_scheme=theme,
        device_scale_factor=3,  # a whole number, so that canvases stay sharp
    )
    page = context.new_page()
    page.goto(file.as_uri())
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
