"""Thirty students and one live page: does the page keep up, and what does it cost?

    python -m benchmarks.class_of_thirty [--seconds 20] [--screenshots DIR]

It runs a server with the bundled model, thirty clients that each send one prompt after the other,
and the live page in Chromium. It reports steps and events per second, how far the page is behind
the engine, the time between two frames of the page, what one drawing costs, and the page's memory.
"""

import argparse
import asyncio
import json
import shutil
import time
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

from server.client import Client
from server.process import serve_in_background

STUDENTS = 30
NAMES = (
    "Ada Bo Cy Dee Eli Fay Gus Hal Ivy Jo Kai Lea Max Noa Ola Pia Quin Ray Sam Tia Uma Vic Wes Xia Yan "
    "Zoe Abe Bea Cal Dot"
).split()
OPENINGS = ("Once upon a time", "Once upon a time there was a", "The little fox", "One day a bear")

# Notes the time of every frame, and how long each of the page's own callbacks in a frame took.
WATCH_FRAMES = """() => {
  const notes = (window.notes = { frames: [], work: [] });
  const ask = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (callback) => ask((now) => {
    const began = performance.now();
    callback(now);
    notes.work.push(performance.now() - began);
  });
  const frame = (now) => { notes.frames.push(now); ask(frame); };
  ask(frame);
}"""


async def student(client: Client, name: str, number: int, until: float) -> int:
    """Send one prompt after the other; return their number."""
    sent = 0
    while time.monotonic() < until:
        prompt = f"{OPENINGS[(number + sent) % len(OPENINGS)]} {name if sent % 2 else ''}".strip()
        tokens = 20 + (number * 7 + sent * 13) % 60
        async for _ in client.stream(prompt, max_tokens=tokens, label=name):
            pass
        sent += 1
    return sent


async def page_at(browser: Browser, url: str, width: int, height: int, theme: str) -> Page:
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=theme,  # type: ignore[arg-type]
    )
    page = await context.new_page()
    page.on("pageerror", lambda error: print("PAGE ERROR", error))
    await page.goto(url)
    await page.wait_for_selector('.underglass[data-ready="true"]', timeout=30_000)
    return page


async def measure(seconds: float, screenshots: Path | None, options: dict[str, Any]) -> None:
    """Run the class and print the measurements."""
    with serve_in_background(**options) as server:
        client = Client(server.url)
        until = time.monotonic() + seconds + (40 if screenshots else 4)
        class_ = [
            asyncio.create_task(student(client, name, number, until))
            for number, name in enumerate(NAMES)
        ]
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = await page_at(browser, server.url, 1280, 860, "light")
            root = page.locator(".underglass")
            await page.evaluate(WATCH_FRAMES)
            steps_before = client.health()["step"]
            began, behind = time.monotonic(), []
            while time.monotonic() - began < seconds:
                await asyncio.sleep(0.5)
                newest = client.health()["step"]
                behind.append(newest - int(await root.get_attribute("data-steps") or 0))
            elapsed = time.monotonic() - began
            steps = client.health()["step"] - steps_before
            notes = await page.evaluate("window.notes")
            heap = await page.evaluate("performance.memory.usedJSHeapSize")
            report(steps, elapsed, behind, notes, heap)
            if screenshots:
                await take(browser, server.url, screenshots)
        print("requests answered:", sum(await asyncio.gather(*class_)))


def report(
    steps: int, elapsed: float, behind: list[int], notes: dict[str, list[float]], heap: int
) -> None:
    """One line per figure."""
    frames = [b - a for a, b in zip(notes["frames"], notes["frames"][1:], strict=False)]
    work = [one for one in notes["work"] if one > 1]
    print(f"{steps / elapsed:.0f} steps/s; page behind by {sorted(behind)[len(behind) // 2]} steps")
    for name, values in (("between frames", frames), ("drawing", work)):
        print(
            f"{name}, ms: p50 {quantile(values, 0.5):.1f}, p95 {quantile(values, 0.95):.1f},"
            f" p99 {quantile(values, 0.99):.1f}, max {max(values):.1f}, n {len(values)}"
        )
    print(f"page's memory: {heap / 2**20:.0f} MiB")


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def take(browser: Browser, url: str, folder: Path) -> None:
    """The class as a teacher projects it, and as a student sees it on a phone."""
    folder.mkdir(parents=True, exist_ok=True)
    for theme in ("light", "dark"):
        for width, height in ((1280, 860), (1920, 1080), (360, 760)):
            page = await page_at(browser, url, width, height, theme)
            await page.wait_for_timeout(700)  # some steps to look at
            if width in {1280, 360}:
                await page.get_by_role("textbox", name="Prompt").fill("Once upon a time")
                await page.get_by_role("button", name="Send").click()
                await page.wait_for_timeout(300)
            await page.screenshot(path=folder / f"class-{width}-{theme}.png")
            await page.context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--screenshots", type=Path)
    parser.add_argument("--serve", type=json.loads, default={"max_batch_size": 32})
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.seconds, arguments.screenshots, arguments.serve))


if __name__ == "__main__":
    main()
