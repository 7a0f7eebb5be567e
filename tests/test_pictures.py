"""The README's moving picture, and how screenshots are packed."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageChops

from authoring.__main__ import _keep_pictures
from authoring.palette import png

DOCS = Path(__file__).parents[1] / "docs"
RED, GREEN, BLUE, CLEAR = (255, 0, 0, 255), (0, 136, 0, 255), (20, 30, 200, 255), (0, 0, 0, 0)


def screenshot(pixels: NDArray[np.uint8]) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def frames(content: bytes) -> list[NDArray[np.uint8]]:
    image = Image.open(io.BytesIO(content))
    decoded = []
    for index in range(getattr(image, "n_frames", 1)):
        image.seek(index)
        decoded.append(np.array(image.convert("RGBA")))
    return decoded


def test_a_moving_picture_shows_each_screenshot_for_its_time():
    first = np.full((6, 8, 4), RED, np.uint8)
    second, third = first.copy(), first.copy()
    second[1:3, 2:5] = third[1:3, 3:5] = GREEN  # (2, 1) is red again in the third
    third[5, 7] = BLUE
    shots = [first, second, third]
    content = png([screenshot(one) for one in shots], [0.5, 0.25, 1], plays=3)
    assert np.array_equal(frames(content), shots)
    image = Image.open(io.BytesIO(content))
    assert image.info["loop"] == 3
    times = []
    for index in range(3):
        image.seek(index)
        times.append(image.info["duration"])
    assert times == [500, 250, 1000]


def test_a_picture_keeps_areas_and_transparency_and_nearly_keeps_rare_colours():
    pixels = np.full((60, 256, 4), GREEN, np.uint8)
    pixels[10:20, :128], pixels[10:20, 128:] = (245, 246, 248, 255), (255, 255, 255, 255)
    pixels[20:40] = CLEAR
    pixels[40] = np.stack([*[np.arange(256)] * 3, np.full(256, 255)], axis=1)  # each grey once
    pixels[41] = np.stack([np.arange(256), *[np.arange(256)[::-1]] * 2, np.full(256, 128)], axis=1)
    [shown] = frames(png([screenshot(pixels)]))
    assert np.array_equal(shown[:40], pixels[:40])
    assert np.abs(shown.astype(int) - pixels.astype(int)).max() < 32
    assert len(np.unique(shown.reshape(-1, 4), axis=0)) <= 256


def test_a_picture_that_shows_the_same_keeps_its_stored_bytes():
    def output(colour: tuple[int, ...], level: int) -> dict[str, Any]:
        content = io.BytesIO()
        Image.new("RGBA", (40, 30), colour).save(content, "PNG", compress_level=level)
        return {"data": {"image/png": base64.b64encode(content.getvalue()).decode()}}

    stored, again, other = output(RED, 0), output(RED, 9), output(BLUE, 9)
    assert stored != again
    expected = [{"name": "stdout"}, stored, output(BLUE, 9)]
    outputs = [{"name": "stdout"}, again, other]
    _keep_pictures([stored, {"name": "stdout"}], outputs)
    assert outputs == expected


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_readmes_picture_is_whole_and_small(theme):
    file = DOCS / f"handover-{theme}.png"
    assert file.stat().st_size <= 400_000
    moving, still = Image.open(file), Image.open(DOCS / f"board-{theme}.png")
    assert moving.n_frames > 10 and moving.size == still.size
    moving.seek(moving.n_frames - 1)
    difference = ImageChops.difference(moving.convert("RGB"), still.convert("RGB"))
    assert max(high for _, high in difference.getextrema()) < 64
