"""How the values of a type become columns: numbers in typed arrays, strings as numbers of a table.

A `Shape` is made from a type of the vocabulary, so that a new event needs no code here. A list becomes
its lengths and its items one after the other; an optional value a flag and the values that are there; a
row the columns of its fields. Whatever has no fixed type (settings, measured values, a keyframe) is
stored as JSON. `visualizer/frontend/src/model/columns_in.ts` reads the same from the same types.

Source: Apache Arrow stores lists and optional values in this way.
"""

import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, cached_property
from itertools import accumulate, chain, repeat
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
from msgspec import inspect

# The codes of a column, each with the smallest and the largest number that it can store.
_INTEGERS = {
    "b": (-(2**7), 2**7 - 1),
    "B": (0, 2**8 - 1),
    "h": (-(2**15), 2**15 - 1),
    "H": (0, 2**16 - 1),
    "i": (-(2**31), 2**31 - 1),
}
_EXACT = 2**53  # the largest number up to which a double has every integer
_CONSTANT, _DOUBLES, _INTEGER_DOUBLES, _MIXED = "c", "d", "D", "m"
_BYTES = {code: array(code).itemsize for code in "bBhHiIlLqQfd"}  # of an item of a column
_BYTES |= {_CONSTANT: 0, _MIXED: 0, _INTEGER_DOUBLES: _BYTES[_DOUBLES]}
_ALIGNED = 8  # bytes; a typed array of JavaScript begins at a multiple of its item's size


class Columns:
    """The columns of a chunk while it is written, its table of strings, and its JSON values."""

    def __init__(self) -> None:
        self.about: list[list[Any]] = []  # (code, number of values), and the value of a constant
        self.bytes = bytearray()
        self.strings: dict[str, int] = {}
        self.values: list[Any] = []

    def numbers(self, values: Sequence[float]) -> None:
        """Add a column of numbers, in the smallest type that has them all."""
        kinds = set(map(type, values))
        if kinds <= {int, bool}:
            self.integers(values)  # type: ignore[arg-type]
        elif len(kinds) > 1:
            self._add_mixed(values)  # 1 and 1.0 are different in JSON
        elif values.count(values[0]) == len(values) and (
            values[0] or not array("d", values).tobytes().strip(b"\0")
        ):  # -0.0 equals 0.0
            self.about.append([_CONSTANT, len(values), values[0]])
        else:
            self._add(_DOUBLES, "d", values)

    def integers(self, values: Sequence[int]) -> None:
        """Add a column of integers."""
        least, most = min(values), max(values)
        fits = (code for code, (low, high) in _INTEGERS.items() if low <= least and most <= high)
        if least == most:
            self.about.append([_CONSTANT, len(values), values[0]])
        elif code := next(fits, ""):
            self._add(code, code, values)
        elif least >= -_EXACT and most <= _EXACT:
            self._add(_INTEGER_DOUBLES, "d", values)
        else:
            self._add_mixed(values)

    def _add_mixed(self, values: Sequence[float]) -> None:
        self.about.append([_MIXED, len(values)])
        self.values.extend(values)

    def _add(self, code: str, kind: str, values: Iterable[float]) -> None:
        column = array(kind, values)
        if sys.byteorder == "big":
            column.byteswap()
        self.about.append([code, len(column)])
        self.bytes += column.tobytes()
        self.bytes += bytes(-len(self.bytes) % _ALIGNED)

    def texts(self, values: Iterable[str]) -> None:
        """Add a column of strings: their numbers in the table."""
        table, values = self.strings, list(values)
        for value in dict.fromkeys(values):
            table.setdefault(value, len(table))
        self.integers(list(map(table.__getitem__, values)))


class ColumnSource:
    """Reads the columns of a chunk in order. `skip_to` goes on at another one."""

    def __init__(
        self, about: list[list[Any]], data: memoryview, strings: bytes, values: bytes
    ) -> None:
        self._about, self._data = about, data
        sizes = [-(-_BYTES[code] * count // _ALIGNED) * _ALIGNED for code, count, *_ in about]
        self._begins = [0, *accumulate(sizes)]
        self._next = self._next_value = 0
        self._packed_values, self._packed_strings = values, strings

    @cached_property
    def _values(self) -> list[Any]:
        values: list[Any] = msgspec.json.decode(self._packed_values)
        return values

    @cached_property
    def _strings(self) -> list[str]:
        return msgspec.json.decode(self._packed_strings, type=list[str])

    def skip_to(self, column: int, value: int) -> None:
        """Go on at a column and a JSON value, which are counted from 0."""
        self._next, self._next_value = column, value

    def numbers(self) -> list[Any]:
        """Return the next column."""
        number = self._next
        self._next += 1
        code, count, *constant = self._about[number]
        if code == _CONSTANT:
            constants: list[Any] = constant * count
            return constants
        if code == _MIXED:
            return self.values(count)
        values: list[Any] = self._array(number).tolist()
        return list(map(int, values)) if code == _INTEGER_DOUBLES else values

    def _array(self, number: int) -> "array[Any]":
        code, count, *_ = self._about[number]
        column = array("d" if code == _INTEGER_DOUBLES else code)
        begin = self._begins[number]
        column.frombytes(self._data[begin : begin + count * column.itemsize])
        if sys.byteorder == "big":
            column.byteswap()
        return column

    def integers(self) -> "array[int]":
        """Return the next column, of integers that a column has in 4 bytes or fewer."""
        number = self._next
        self._next += 1
        code, count, *constant = self._about[number]
        return array("i", constant) * count if code == _CONSTANT else self._array(number)

    def texts(self) -> list[str]:
        """Return the next column, of strings."""
        return list(map(self._strings.__getitem__, self.numbers()))

    def skip_numbers(self) -> None:
        """Go on after the next column."""
        code, count, *_ = self._about[self._next]
        self._next += 1
        self.skip_values(count * (code == _MIXED))

    def skip_values(self, count: int) -> None:
        """Go on after the next JSON values."""
        self._next_value += count

    def values(self, count: int) -> list[Any]:
        """Return the next JSON values."""
        begin = self._next_value
        self._next_value += count
        return self._values[begin : self._next_value]


class Shape:
    """How the values of a type are stored. `put` and `get` visit the same columns in the same order.

    No values take no column, so a kind of event that does not occur costs nothing.
    """

    def put(self, values: list[Any], columns: Columns) -> None:
        """Store values, of which there is at least one."""
        columns.values.extend(values)

    def get(self, count: int, source: ColumnSource) -> list[Any]:
        """Return so many values, at least one. They are JSON values, unless a subclass says more."""
        return source.values(count)

    def skip(self, count: int, source: ColumnSource) -> None:
        """Go on after so many values, at least one."""
        source.skip_values(count)


class _Converted(Shape):
    def __init__(self, kind: type) -> None:
        self._kind = kind

    def get(self, count: int, source: ColumnSource) -> list[Any]:
        return [msgspec.convert(value, self._kind) for value in source.values(count)]


class _Numbers(Shape):
    def put(self, values: list[Any], columns: Columns) -> None:
        columns.numbers(values)

    def get(self, count: int, source: ColumnSource) -> list[Any]:
        return source.numbers()

    def skip(self, count: int, source: ColumnSource) -> None:
        source.skip_numbers()


class _Integers(_Numbers):
    def put(self, values: list[Any], columns: Columns) -> None:
        columns.integers(values)


class _Flags(_Numbers):
    def put(self, values: list[Any], columns: Columns) -> None:
        columns.integers(list(map(int, values)))

    def get(self, count: int, source: ColumnSource) -> list[Any]:
        return list(map(bool, source.numbers()))


class _Texts(_Numbers):
    def put(self, values: list[Any], columns: Columns) -> None:
        columns.texts(values)

    def get(self, count: int, source: ColumnSource) -> list[Any]:
        return source.texts()


class _Optional(Shape):
    def __init__(self, item: Shape) -> None:
        self._item = item

    def put(self, values: list[Any], columns: Columns) -> None:
        columns.integers([int(value is not None) for value in values])
        if known := [value for value in values if value is not None]:
            self._item.put(known, columns)

    def get(self, count: int, source: ColumnSource) -> list[Any]:
        flags = source.numbers()
        known = iter(self._item.get(total, source) if (total := sum(flags)) else ())
        return [next(known) if flag else None for flag in flags]

    def skip(self, count: int, source: ColumnSource) -> None:
        if total := sum(source.numbers()):
            self._item.skip(total, source)


class _Lists(Shape):
    def __init__(self, item: Shape) -> None:
        self._item = item

    def put(self, values: list[Any], columns: Columns) -> None:
        columns.integers(list(map(len, values)))
        if items := list(chain.from_iterable(values)):
            self._item.put(items, columns)

    def get(self, count: int, source: ColumnSource) -> list[Any]:
        lengths = source.numbers()
        ends = list(accumulate(lengths))
        items = self._item.get(ends[-1], source) if ends[-1] else []
        return [items[end - length : end] for length, end in zip(lengths, ends, strict=True)]

    def skip(self, count: int, source: ColumnSource) -> None:
        if total := sum(source.numbers()):
            self._item.skip(total, source)


class Rows(Shape):
    """Structs or tuples: a column or more for each field.

    names  of the fields; those of them that a reader does without (`get_some`) are None
    """

    def __init__(
        self,
        parts: Sequence[tuple[Callable[[Any], Any], Shape]],
        kind: Callable[..., Any] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self._parts, self._kind, self._names = parts, kind, names  # None: a tuple

    def put(self, values: list[Any], columns: Columns) -> None:
        """See `Shape`."""
        for part, shape in self._parts:
            shape.put(list(map(part, values)), columns)

    def get(self, count: int, source: ColumnSource) -> list[Any]:
        """See `Shape`."""
        fields = [shape.get(count, source) for _part, shape in self._parts]
        return list(map(self._kind, *fields) if self._kind else zip(*fields, strict=True))

    def get_some(self, count: int, source: ColumnSource, without: Collection[str]) -> list[Any]:
        """Return so many structs, whose fields `without` are None."""
        assert self._kind is not None
        fields: list[Iterable[Any]] = []
        for (_part, shape), name in zip(self._parts, self._names, strict=True):
            if name in without:
                shape.skip(count, source)
                fields.append(repeat(None))
            else:
                fields.append(shape.get(count, source))
        return list(map(self._kind, *fields))

    def skip(self, count: int, source: ColumnSource) -> None:
        """See `Shape`."""
        for _part, shape in self._parts:
            shape.skip(count, source)


class Kinds(Shape):
    """Structs of several kinds: the number of each one's kind, then kind after kind."""

    def __init__(self, kinds: Sequence[type]) -> None:
        self.number_of = {kind: number for number, kind in enumerate(kinds)}
        self.shapes = [shape_of(inspect.type_info(kind)) for kind in kinds]

    def put(self, values: list[Any], columns: Columns) -> None:
        """See `Shape`."""
        self.put_kinds(values, columns)

    def put_kinds(self, values: list[Any], columns: Columns) -> list[list[int]]:
        """Store values. Return where each kind begins: (number, count, column, JSON value)."""
        by_kind: dict[int, list[Any]] = {}
        numbers = [self.number_of[type(value)] for value in values]
        for number, value in zip(numbers, values, strict=True):
            by_kind.setdefault(number, []).append(value)
        columns.integers(numbers)
        begins = []
        for number, own in sorted(by_kind.items()):
            begins.append([number, len(own), len(columns.about), len(columns.values)])
            self.shapes[number].put(own, columns)
        return begins

    def get(self, count: int, source: ColumnSource) -> list[Any]:
        """See `Shape`."""
        numbers = source.numbers()
        kinds = {
            number: iter(self.shapes[number].get(numbers.count(number), source))
            for number in sorted(set(numbers))
        }
        return list(map(next, map(kinds.__getitem__, numbers)))

    def skip(self, count: int, source: ColumnSource) -> None:
        """See `Shape`."""
        numbers = source.numbers()
        for number in sorted(set(numbers)):
            self.shapes[number].skip(numbers.count(number), source)


@cache
def kinds_of(union: Any) -> Kinds:
    """Return how the events of a vocabulary are stored."""
    return Kinds(union.__args__)


def shape_of(kind: inspect.Type) -> Shape:
    """Return how the values of a type are stored."""
    shape = Shape()
    match kind:
        case inspect.IntType():
            shape = _Integers()
        case inspect.FloatType():
            shape = _Numbers()
        case inspect.BoolType():
            shape = _Flags()
        case inspect.StrType() | inspect.LiteralType():
            shape = _Texts()
        case inspect.ListType(item_type=item):
            shape = _Lists(shape_of(item))
        case inspect.TupleType(item_types=items):
            shape = Rows([(itemgetter(at), shape_of(one)) for at, one in enumerate(items)])
        case inspect.StructType(cls=cls) if kind.tag is not None or kind.array_like:
            parts = [(attrgetter(one.name), shape_of(one.type)) for one in kind.fields]
            shape = Rows(parts, cls, [one.name for one in kind.fields])
        case inspect.StructType(cls=cls):
            shape = _Converted(cls)
        case inspect.UnionType(types=types):
            shape = _shape_of_union(types)
        case inspect.DictType() | inspect.AnyType():
            pass
        case _:
            raise TypeError(f"the vocabulary has a type that an index cannot store: {kind}")
    return shape


def _shape_of_union(types: Sequence[inspect.Type]) -> Shape:
    others = [one for one in types if not isinstance(one, inspect.NoneType)]
    if len(others) < len(types):
        [item] = others
        return _Optional(shape_of(item))
    structs = [one.cls for one in others if isinstance(one, inspect.StructType)]
    return Kinds(structs) if structs else _Numbers()
