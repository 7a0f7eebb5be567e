"""How screenshots are packed."""

import base64
import io
from typing import Any

from PIL import Image

from authoring.__main__ import _keep_pictures

RED, BLUE = (255, 0, 0, 255), (20, 30, 200, 255)


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
