"""The names of a log's requests. With an index, each is read where it is asked for."""

import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, cast

import msgspec

from visualizer.indexed.chunk import inflate
from visualizer.indexed.facts import Name
from visualizer.indexed.labels import Labels

if TYPE_CHECKING:
    from visualizer.indexed.index_file import IndexFile

_KEPT = 64  # parts
_ID = re.compile(r"(.*\()?r?(\d{1,18})\)?")


def unique_names(labels: Mapping[int, str]) -> Mapping[int, str]:
    """Return each request's label, with its id if another one has the same; "r7" without a label."""
    if isinstance(labels, IndexedLabels):
        return IndexedNames(labels)
    seen, same = set[str](), set[str]()
    for label in labels.values():
        (same if label in seen else seen).add(label)
    return {
        request: f"{label} (r{request})" if label and label in same else label or f"r{request}"
        for request, label in labels.items()
    }


class NameParts:
    """The parts of an index that have names."""

    def __init__(self, index: "IndexFile") -> None:
        self._index = index
        self._ranges = [(one.least, one.most) for one in index.directory.extents]
        # A request's part is not before the first one with as high an id, nor after the last one with
        # as low an id.
        self._highest = list(accumulate((most for _, most in self._ranges), max))
        lowest = (least if least <= most else sys.maxsize for least, most in reversed(self._ranges))
        self._lowest = list(accumulate(lowest, min))[::-1]
        self._part = lru_cache(_KEPT)(self._read)

    def find(self, request: int) -> tuple[int, Name] | None:
        """Return a request's part and name; of a sample that has not forked off, those of its parent.

        None: there is no such request.
        """
        around = None
        begin, end = bisect_left(self._highest, request), bisect_right(self._lowest, request)
        for number, (least, most) in enumerate(self._ranges[begin:end], begin):
            if least <= request <= most:
                names, parents = self._part(number)
                if (own := names.get(request)) is not None:
                    return number, own
                for one in parents:
                    if one.id < request < one.id + one.samples:
                        around = number, one
        return around

    def each(self) -> Iterator[Name]:
        """Yield all names, those of a part after each other."""
        for number in range(len(self._ranges)):
            yield from self._names_in(number)

    def having(self, text: str) -> Iterator[Name]:
        """Yield the names of the parts in which a text occurs in a label."""
        quoted = msgspec.json.encode(text)[1:-1]
        for number in range(len(self._ranges)):
            packed = self._index.packed(number, Name)
            if packed and quoted in inflate(packed):
                yield from self._names_in(number)

    @cached_property
    def labels(self) -> Labels:
        """The table of all labels."""
        part = self._index.directory.labels
        return Labels(self._index.part(part, "the table of labels") if part else b"")

    def _names_in(self, number: int) -> Sequence[Name]:
        return cast("Sequence[Name]", self._index.facts_in(number, Name))

    def _read(self, number: int) -> tuple[dict[int, Name], list[Name]]:
        """Return the names of a part by id, and those of requests with several samples."""
        names = {one.id: one for one in self._names_in(number)}
        return names, [one for one in names.values() if one.samples > 1]


class IndexedLabels(Mapping[int, str]):
    """The label of each request of an index, in order of appearance.

    has_samples  whether samples that have not forked off are requests, too
    """

    def __init__(self, parts: NameParts, *, has_samples: bool) -> None:
        self.parts, self._has_samples = parts, has_samples

    def of(self, request: object) -> Name | None:
        """Return the name that a request has; None if it is not one of these."""
        found = self.parts.find(request) if isinstance(request, int) else None
        if found is None or not (self._has_samples or found[1].id == request):
            return None
        return found[1]

    def place(self, request: int) -> tuple[int, int]:
        """Return what sorts requests in order of appearance."""
        name = self.of(request)
        return (name.index if name else 0), request

    def __getitem__(self, request: int) -> str:
        if (name := self.of(request)) is None:
            raise KeyError(request)
        return name.label

    def __contains__(self, request: object) -> bool:
        return self.of(request) is not None

    def __iter__(self) -> Iterator[int]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def items(self) -> ItemsView[int, str]:
        """Return all of them, which are read at once."""
        return self._all.items()

    def values(self) -> ValuesView[str]:
        """Return all labels."""
        return self._all.values()

    @property
    def _all(self) -> dict[int, str]:
        same = dict[str, str]()  # equal labels are one string
        names = [
            (one.index, one.id, one.samples, same.setdefault(one.label, one.label))
            for one in self.parts.each()
        ]
        names.sort()
        return {
            request + sample: label
            for _, request, samples, label in names
            for sample in range(samples if self._has_samples else 1)
        }


class IndexedNames(Mapping[int, str]):
    """What `unique_names` returns, each read where it is asked for."""

    def __init__(self, labels: IndexedLabels) -> None:
        self._labels = labels

    def __getitem__(self, request: int) -> str:
        if (name := self._labels.of(request)) is None:
            raise KeyError(request)
        if not name.label:
            return f"r{request}"
        is_shared = name.samples > 1 or len(self._labels.parts.labels.requests(name.label)) > 1
        return f"{name.label} (r{request})" if is_shared else name.label

    def __contains__(self, request: object) -> bool:
        return request in self._labels

    def __iter__(self) -> Iterator[int]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)

    def items(self) -> ItemsView[int, str]:
        """Return all of them, which are read at once."""
        return unique_names(dict(self._labels.items())).items()

    def values(self) -> ValuesView[str]:
        """Return all names."""
        return unique_names(dict(self._labels.items())).values()

    def near(self, key: str) -> dict[int, str]:
        """Return the names that a key may mean, in order of appearance: exactly, or else in part."""
        parts = self._labels.parts
        ids = {*parts.labels.requests(key)[:1]}
        if (match := _ID.fullmatch(key)) and int(match[2]) in self:
            ids.add(int(match[2]))
        if not ids:
            ids = {one.id for one in parts.having(key) if key in one.label}
        return {one: self[one] for one in sorted(ids, key=self._labels.place)}
