"""How screenshots are packed."""

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from authoring.__main__ import _keep_pictures
from authoring.palette import png

RED, GREEN, BLUE, CLEAR = (255, 0, 0, 255), (0, 136, 0, 255), (20, 30, 200, 255), (0, 0, 0, 0)


def screenshot(pixels: NDArray[np.uint8]) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def shown_by(content: bytes) -> NDArray[np.uint8]:
    return np.array(Image.open(io.BytesIO(content)).convert("RGBA"))


def test_a_picture_keeps_areas_and_transparency_and_nearly_keeps_rare_colours():
    pixels = np.full((60, 256, 4), GREEN, np.uint8)
    pixels[10:20, :128], pixels[10:20, 128:] = (245, 246, 248, 255), (255, 255, 255, 255)
    pixels[20:40] = CLEAR
    pixels[40] = np.stack([*[np.arange(256)] * 3, np.full(256, 255)], axis=1)  # each grey once
    pixels[41] = np.stack([np.arange(256), *[np.arange(256)[::-1]] * 2, np.full(256, 128)], axis=1)
    shown = shown_by(png(screenshot(pixels)))
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
