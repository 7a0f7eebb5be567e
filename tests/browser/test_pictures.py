"""The README's moving picture, decoded by Chromium."""

import base64
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import REPOSITORY, NewPage

# Decodes an animation; returns its size and a few pixels of some frames.
DECODE = """
  async ({ data, frames, places }) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const decoder = new ImageDecoder({ data: bytes, type: "image/png" });
    await Promise.all([decoder.completed, decoder.tracks.ready]);
    const { frameCount } = decoder.tracks.selectedTrack;
    const told = { count: frameCount, pixels: [] };
    for (const frameIndex of frames) {
      const { image } = await decoder.decode({ frameIndex: (frameIndex + frameCount) % frameCount });
      const context = new OffscreenCanvas(image.displayWidth, image.displayHeight).getContext("2d");
      context.drawImage(image, 0, 0);
      told.size = [image.displayWidth, image.displayHeight];
      told.pixels.push(places.map(([x, y]) => [...context.getImageData(x, y, 1, 1).data]));
    }
    return told;
  }
"""


@pytest.fixture
def page(new_page: NewPage, tmp_path: Path) -> Page:
    """A page that may decode images: one with an address of its own."""
    page = new_page()
    empty = tmp_path / "empty.html"
    empty.write_text("<!doctype html><title>empty</title>")
    page.goto(empty.as_uri())
    return page


def decoded(
    page: Page, content: bytes, frames: list[int], places: list[tuple[int, int]]
) -> dict[str, Any]:
    asked = {"data": base64.b64encode(content).decode(), "frames": frames, "places": places}
    told: dict[str, Any] = page.evaluate(DECODE, asked)
    return told


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_readmes_picture_is_whole_and_small(page: Page, theme: str) -> None:
    docs = REPOSITORY / "docs"
    content = (docs / f"handover-{theme}.png").read_bytes()
    assert len(content) <= 600_000
    places = [(4, 4), (2000, 700)]
    told = decoded(page, content, [0, -1], places)
    assert told["count"] > 10
    still = decoded(page, (docs / f"board-{theme}.png").read_bytes(), [0], places)
    assert told["size"] == still["size"]
    assert told["pixels"][-1] == still["pixels"][0]
