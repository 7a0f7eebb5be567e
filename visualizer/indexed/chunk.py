"""Some successive events of a log as one block of bytes: their columns, deflated.

    u32       length of the header, little-endian
    header    JSON: `kinds` (number, count, column, value of each kind of event), `columns`, and the
              lengths of the two last parts
    columns   each from a multiple of 8 bytes on
    strings   the table of strings, a JSON list
    values    what has no fixed type, a JSON list, and spaces up to a multiple of 8 bytes

A browser unpacks it with `DecompressionStream("deflate-raw")`. Blocks end at a byte and do not refer to
others, so those of several chunks, one after the other, are unpacked together.
"""

import struct
import zlib
from array import array
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from engine.core.log import LogError
from visualizer.indexed.columns import Columns, ColumnSource, Rows, kinds_of
from visualizer.sources.collector import without_gc

_LENGTH = struct.Struct("<I")
_encode = msgspec.json.Encoder().encode
_ALIGNED = 8  # bytes that a number takes at most
_LEVEL = 4  # 6 takes three times as long for keyframes, and saves a tenth


class _Header(msgspec.Struct):
    kinds: list[list[int]]
    columns: list[list[Any]]
    strings: int
    values: int


def deflate(data: bytes) -> bytes:
    """Return the bytes as blocks of DEFLATE (RFC 1951), none of which says that it is the last one."""
    packer = zlib.compressobj(_LEVEL, wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)


def inflate(data: bytes) -> bytes:
    """Unpack what `deflate` returned."""
    return zlib.decompressobj(wbits=-zlib.MAX_WBITS).decompress(data)


def pack_events(events: list[Any], vocabulary: Any) -> tuple[bytes, int]:
    """Return the chunk of some events of a vocabulary, and its length when it is unpacked.

    The vocabulary is `AnyEvent` or `AnyClusterEvent`.
    """
    columns = Columns()
    kinds = kinds_of(vocabulary).put_kinds(events, columns)
    strings, values = _encode(list(columns.strings)), _encode(columns.values)
    # The next chunk begins where a typed array can, as do its columns.
    values += b" " * (-(len(strings) + len(values)) % 8)
    header = _encode(_Header(kinds, columns.about, len(strings), len(values)))
    header += b" " * (-(len(header) + _LENGTH.size) % 8)
    plain = b"".join((_LENGTH.pack(len(header)), header, columns.bytes, strings, values))
    return deflate(plain), len(plain)


def unpack_events(
    data: bytes,
    vocabulary: Any,
    only: Collection[type] | None = None,
    without: Collection[str] = (),
) -> Sequence[Any]:
    """Return the events of a chunk, or only those of some kinds, in order.

    Their fields `without` are not unpacked, and are None.
    """
    shape = kinds_of(vocabulary)
    wanted = None if only is None else {shape.number_of[kind] for kind in only}
    inflating = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    header, begin, plain = _header(inflating, data)
    if wanted is not None and wanted.isdisjoint(number for number, *_ in header.kinds):
        return []
    plain += inflating.decompress(inflating.unconsumed_tail)
    end = len(plain) - header.values
    source = ColumnSource(
        header.columns,
        memoryview(plain)[begin:],
        plain[end - header.strings : end],
        plain[end:],
    )
    numbers = source.numbers()
    events = {}
    with without_gc():
        for number, count, column, value in header.kinds:
            if wanted is None or number in wanted:
                source.skip_to(column, value)
                kind = shape.shapes[number]
                if without and isinstance(kind, Rows):
                    events[number] = iter(kind.get_some(count, source, without))
                else:
                    events[number] = iter(kind.get(count, source))
    if wanted is not None:
        numbers = [number for number in numbers if number in wanted]
    return list(map(next, map(events.__getitem__, numbers)))


def first_lists(data: bytes) -> tuple[list[int], "array[int]"]:
    """Return the first field of the first kind of a chunk, lists of integers: lengths and items.

    The columns after it are not inflated.
    """
    inflating = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    header, begin, plain = _header(inflating, data)
    first = header.kinds[0][2]
    columns = header.columns[: first + 2]
    most = begin + sum(_ALIGNED * (count + 1) for _code, count, *_ in columns)
    plain += inflating.decompress(inflating.unconsumed_tail, max(1, most - len(plain)))
    source = ColumnSource(columns, memoryview(plain)[begin:], b"[]", b"[]")
    source.skip_to(first, 0)
    lengths = source.numbers()
    return lengths, source.integers() if any(lengths) else array("b")


def _header(inflating: Any, data: bytes) -> tuple[_Header, int, bytes]:
    """Return the header of a chunk, where it ends, and what had to be inflated for it."""
    plain = inflating.decompress(data, 1 << 14)
    (length,) = _LENGTH.unpack_from(plain)
    begin = _LENGTH.size + length
    plain += inflating.decompress(inflating.unconsumed_tail, max(1, begin - len(plain)))
    return msgspec.json.decode(plain[_LENGTH.size : begin], type=_Header), begin, plain


def checked(data: bytes, crc: int, what: str) -> bytes:
    """Return the bytes. Raises LogError if their checksum is another one."""
    if zlib.crc32(data) != crc:
        raise LogError(f"{what} of the index cannot be used: the checksum is wrong")
    return data
