"""Write PNG files with a palette, still or animated. The format: https://www.w3.org/TR/png-3/"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # [height, width, 4]: red, green, blue, alpha

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = 255  # of a palette; entry 0 is transparent
_KEEP, _OVER = 0, 1  # a frame stays, and the next is drawn over it


@dataclass(frozen=True)
class Picture:
    """A part of an animation: `pixels` drawn at (x, y) over what is there, shown for `seconds`.

    Pixels are opaque or, with alpha 0, leave what is there.
    """

    pixels: Pixels
    seconds: float
    x: int = 0
    y: int = 0


def png(pictures: Sequence[Picture], plays: int = 1) -> bytes:
    """Return a PNG file: still for one picture, otherwise an animation that runs `plays` times.

    The first picture covers the whole canvas.
    """
    packed = [_packed(picture.pixels) for picture in pictures]
    palette = _palette(np.concatenate([one.ravel() for one in packed]))
    height, width = packed[0].shape
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # 8 bits, with a palette
    chunks = [_chunk(b"IHDR", header)]
    if len(pictures) > 1:
        chunks.append(_chunk(b"acTL", struct.pack(">II", len(pictures), plays)))
    rgb = np.stack([palette >> 16, palette >> 8, palette], axis=1).astype(np.uint8)
    chunks += [_chunk(b"PLTE", bytes(3) + rgb.tobytes()), _chunk(b"tRNS", b"\0")]
    number = 0
    for index, (picture, colours) in enumerate(zip(pictures, packed, strict=True)):
        if len(pictures) > 1:
            chunks.append(_chunk(b"fcTL", struct.pack(">I", number) + _control(picture)))
            number += 1
        data = zlib.compress(_rows(colours, palette), 9)
        if index == 0:
            chunks.append(_chunk(b"IDAT", data))
        else:
            chunks.append(_chunk(b"fdAT", struct.pack(">I", number) + data))
            number += 1
    return b"".join([_SIGNATURE, *chunks, _chunk(b"IEND", b"")])


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


def _control(picture: Picture) -> bytes:
    height, width, _ = picture.pixels.shape
    milliseconds = round(1000 * picture.seconds)
    place = (width, height, picture.x, picture.y)
    return struct.pack(">IIIIHHBB", *place, milliseconds, 1000, _KEEP, _OVER)


def _packed(pixels: Pixels) -> NDArray[np.int32]:
    """Return each pixel's colour as one number, -1 for a transparent one."""
    red, green, blue, alpha = (pixels[..., i].astype(np.int32) for i in range(4))
    return np.where(alpha > 0, red << 16 | green << 8 | blue, -1)


def _group(colours: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the group of similar colours of each colour: 5 bits of each channel."""
    return (colours >> 9 & 0x7C00) | (colours >> 6 & 0x3E0) | (colours >> 3 & 0x1F)


def _palette(colours: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the most frequent colour of each frequent group, so that areas keep their colour."""
    found, counts = np.unique(colours[colours >= 0], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    found, counts = found[order], counts[order]
    _, first, group = np.unique(_group(found), return_index=True, return_inverse=True)
    frequent = np.argsort(-np.bincount(group, weights=counts), kind="stable")[:_COLOURS]
    return np.asarray(found[first[frequent]], dtype=np.int32)


def _rows(colours: NDArray[np.int32], palette: NDArray[np.int32]) -> bytes:
    """Return palette entries row by row; each row begins with filter type 0, which means no filter."""
    entries = np.zeros(1 << 15, np.uint8)
    groups = np.unique(_group(colours[colours >= 0]))
    channels = np.stack([groups >> 10, groups >> 5 & 31, groups & 31], axis=1) * 8 + 4
    known = np.stack([palette >> 16, palette >> 8 & 255, palette & 255], axis=1)
    distances = ((channels[:, None] - known[None]) ** 2).sum(axis=2)
    entries[groups] = distances.argmin(axis=1) + 1
    entries[_group(palette)] = np.arange(len(palette)) + 1
    indices = np.where(colours >= 0, entries[_group(colours)], 0).astype(np.uint8)
    return np.pad(indices, ((0, 0), (1, 0))).tobytes()
