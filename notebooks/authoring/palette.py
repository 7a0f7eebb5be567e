"""Store screenshots as PNG files with a palette, still or moving, in a third of the bytes.

The same screenshots always give the same bytes.
"""

import io
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin

Colours = NDArray[np.uint32]  # red in the lowest byte, then green, blue and alpha; 0 is transparent

_EXACT = 32  # the most frequent colours, those of areas, stay as they are
_CLEAR = 0  # the palette's first entry is transparent


def png(screenshots: Sequence[bytes], seconds: Sequence[float] = (0,), plays: int = 1) -> bytes:
    """Return a PNG file: one picture, or an animation that shows each for its `seconds`."""
    palette = _palette(screenshots)
    frames = [_entries(one, palette) for one in screenshots]
    # Chromium and Pillow draw a frame over the frame before, so pixels that stay can be left out.
    changes = [np.where(now == before, np.uint8(_CLEAR), now) for before, now in pairwise(frames)]
    first, *others = [Image.fromarray(pixels) for pixels in frames[:1] + changes]
    for image in (first, *others):
        image.putpalette(palette.tobytes(), "RGBA")
    content = io.BytesIO()
    first.save(
        content,
        "PNG",
        optimize=True,
        save_all=True,
        append_images=others,
        duration=[round(1000 * one) for one in seconds],
        loop=plays,
        blend=PngImagePlugin.Blend.OP_OVER,
    )
    return content.getvalue()


def _colours(screenshot: bytes) -> Colours:
    pixels = np.array(Image.open(io.BytesIO(screenshot)).convert("RGBA"))
    return pixels.view("<u4")[..., 0]


def _channels(colours: Colours) -> NDArray[np.int32]:
    return colours.view(np.uint8).reshape(-1, 4).astype(np.int32)


def _palette(screenshots: Sequence[bytes]) -> Colours:
    """Return the most frequent colours, and one of each group of similar colours of the others."""
    counts: Counter[int] = Counter()
    for one in screenshots:
        found, times = np.unique(_colours(one), return_counts=True)
        counts.update(dict(zip(found.tolist(), times.tolist(), strict=True)))
    colours = np.array([colour for colour, _ in counts.most_common()], "<u4")
    _, most_frequent = np.unique(_channels(colours) >> 5, axis=0, return_index=True)
    chosen = [_CLEAR, *colours[:_EXACT].tolist(), *colours[np.sort(most_frequent)].tolist()]
    return np.array(list(dict.fromkeys(chosen))[:256], "<u4")


def _entries(screenshot: bytes, palette: Colours) -> NDArray[np.uint8]:
    """Return each pixel's entry in the palette: that of the nearest colour."""
    colours = _colours(screenshot)
    found, places = np.unique(colours, return_inverse=True)
    distances = ((_channels(found)[:, None] - _channels(palette)) ** 2).sum(axis=2)
    return np.asarray(distances.argmin(axis=1)[places], np.uint8).reshape(colours.shape)
