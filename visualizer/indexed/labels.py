"""A sorted table of the checksums of all labels of a log: it finds a label without reading the others.

It takes 16 bytes a request, in an index and in memory.
"""

import hashlib
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from visualizer.indexed.facts import Name


class Labels:
    """A checksum of each label, ascending, with the id of its request.

    Of requests with the same label, the first that appeared is the first here.
    """

    def __init__(self, packed: bytes = b"") -> None:
        self._sums, self._ids, self._index = array("Q"), array("q"), array("q")
        half = len(packed) // 2
        for column, data in ((self._sums, packed[:half]), (self._ids, packed[half:])):
            column.frombytes(data)
            if sys.byteorder == "big":
                column.byteswap()

    def add(self, names: Iterable[Name]) -> None:
        """Add names, in any order."""
        for one in names:
            if one.label:
                self._sums.append(_checksum(one.label))
                self._ids.append(one.id)
                self._index.append(one.index)

    def packed(self) -> bytes:
        """Return the table."""
        order = sorted(range(len(self._ids)), key=self._index.__getitem__)
        order.sort(key=self._sums.__getitem__)
        columns = [
            array(one.typecode, map(one.__getitem__, order)) for one in (self._sums, self._ids)
        ]
        for column in columns if sys.byteorder == "big" else ():
            column.byteswap()
        return b"".join(column.tobytes() for column in columns)

    def requests(self, label: str) -> "array[int]":
        """Return the requests that have a label."""
        wanted = _checksum(label)
        begin = bisect_left(self._sums, wanted)
        return self._ids[begin : bisect_right(self._sums, wanted, begin)]


def _checksum(label: str) -> int:
    """Return 8 bytes of a hash, so that two labels practically never share it."""
    return int.from_bytes(hashlib.blake2b(label.encode(), digest_size=8).digest())
