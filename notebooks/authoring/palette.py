"""Store screenshots as PNG files with a palette, in a third of the bytes.

The same screenshots always give the same bytes.
"""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Colours = NDArray[np.uint32]  # red in the lowest byte, then green, blue and alpha; 0 is transparent

_EXACT = 32  # the most frequent colours, those of areas, stay as they are
_CLEAR = 0  # the palette's first entry: transparent


def png(screenshot: bytes) -> bytes:
    """Return a screenshot as a PNG file with a palette."""
    palette = _palette(screenshot)
    image = Image.fromarray(_entries(screenshot, palette))
    image.putpalette(palette.tobytes(), "RGBA")
    content = io.BytesIO()
    image.save(content, "PNG", optimize=True)
    return content.getvalue()


def _colours(screenshot: bytes) -> Colours:
    pixels = np.array(Image.open(io.BytesIO(screenshot)).convert("RGBA"))
    return pixels.view("<u4")[..., 0]


def _channels(colours: Colours) -> NDArray[np.int32]:
    return colours.view(np.uint8).reshape(-1, 4).astype(np.int32)


def _palette(screenshot: bytes) -> Colours:
    """Return the most frequent colours, and one of each group of similar colours of the others."""
    found, times = np.unique(_colours(screenshot), return_counts=True)
    colours = found[np.argsort(-times, kind="stable")]
    _, most_frequent = np.unique(_channels(colours) >> 5, axis=0, return_index=True)
    chosen = [_CLEAR, *colours[:_EXACT].tolist(), *colours[np.sort(most_frequent)].tolist()]
    return np.array(list(dict.fromkeys(chosen))[:256], "<u4")


def _entries(screenshot: bytes, palette: Colours) -> NDArray[np.uint8]:
    """Return each pixel's entry in the palette: that of the nearest colour."""
    colours = _colours(screenshot)
    found, places = np.unique(colours, return_inverse=True)
    distances = ((_channels(found)[:, None] - _channels(palette)) ** 2).sum(axis=2)
    return np.asarray(distances.argmin(axis=1)[places], np.uint8).reshape(colours.shape)
