"""The README's moving picture and its encoder, decoded by Chromium."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from authoring.apng import Picture, Pixels, png
from tests.browser.conftest import REPOSITORY, NewPage

# Decodes an animation; returns its size and, for some frames, the duration in ms and a few pixels.
DECODE = """
  async ({ data, frames, places }) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const decoder = new ImageDecoder({ data: bytes, type: "image/png" });
    await Promise.all([decoder.completed, decoder.tracks.ready]);
    const { frameCount, repetitionCount } = decoder.tracks.selectedTrack;
    const told = { count: frameCount, repetitions: repetitionCount, durations: [], pixels: [] };
    for (const frameIndex of frames) {
      const { image } = await decoder.decode({ frameIndex: (frameIndex + frameCount) % frameCount });
      const context = new OffscreenCanvas(image.displayWidth, image.displayHeight).getContext("2d");
      context.drawImage(image, 0, 0);
      told.durations.push(image.duration / 1000);
      told.size = [image.displayWidth, image.displayHeight];
      told.pixels.push(places.map(([x, y]) => [...context.getImageData(x, y, 1, 1).data]));
    }
    return told;
  }
"""
RED, GREEN, BLUE = [255, 0, 0, 255], [0, 136, 0, 255], [20, 30, 200, 255]
CLEAR = [0, 0, 0, 0]


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


def area(width: int, height: int, colour: list[int]) -> Pixels:
    return np.full((height, width, 4), colour, np.uint8)


def test_each_picture_is_drawn_over_the_ones_before(page: Page) -> None:
    second = area(3, 2, GREEN)
    second[0, 0] = CLEAR
    pictures = [
        Picture(area(8, 6, RED), 0.5),
        Picture(second, 0.25, x=2, y=1),
        Picture(area(1, 1, BLUE), 1.0, x=7, y=5),
    ]
    told = decoded(page, png(pictures, plays=3), [0, 1, 2], [(0, 0), (2, 1), (3, 1), (7, 5)])
    assert told["count"] == 3
    assert told["size"] == [8, 6]
    assert told["repetitions"] == 2  # after the first time
    assert told["durations"] == [500, 250, 1000]
    assert told["pixels"] == [
        [RED, RED, RED, RED],
        [RED, RED, GREEN, RED],
        [RED, RED, GREEN, BLUE],
    ]


def test_a_still_picture_keeps_frequent_colours_and_nearly_keeps_rare_ones(page: Page) -> None:
    pixels = area(256, 40, GREEN)
    pixels[20:, :, :3] = np.arange(256)[None, :, None]  # every grey
    places = [(0, 0), (255, 19), *((grey, 30) for grey in range(256))]
    told = decoded(page, png([Picture(pixels, 1)]), [0], places)
    assert told["count"] == 1
    green, other, *greys = told["pixels"][0]
    assert green == other == GREEN
    assert all(abs(channel - i) < 8 for i, grey in enumerate(greys) for channel in grey[:3])


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
