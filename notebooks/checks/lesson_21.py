"""Lesson 21: which rows and columns of a weight each device keeps."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

from checks.answer import Answer
from checks.broken import Promises
from checks.guard import call
from checks.judging import counted, whole

Part = Callable[..., Any]
Matrix = list[list[int]]

ANSWERS = {
    "fits": Answer(
        8,
        {
            2: "The weights are smaller than twice 80 GB. But where would keys and values be?",
            4: "Half of four GPUs is left beside the weights. Do 64 users fit into that half?",
            3: "There is some room, but can 64 heads be divided by 3?",
        },
    ),
    "network": Answer(
        "slower",
        {
            "faster": "Each device reads half as much. But how many messages does a step wait for?",
            "as fast": "There is less to read but more to send. Did the two balance from "
            "four to eight?",
        },
        fits=lambda ratio: ratio > 1.1,
    ),
    "nvlink": Answer(
        "about 6 times as fast",
        {
            "about 8 times as fast": "Each device reads an eighth. What else is in a step?",
            "about 3 times as fast": "On the network, messages took most of the step. Do they here?",
            "no faster": "On the network, eight devices were still faster than one.",
        },
        fits=lambda ratio: 5.0 < ratio < 7.0,
    ),
}
HINTS = (
    "There are two kinds of weight. The results of one kind go through something that is not a sum (a "
    "product of two results, a head), while the devices add up the results of the other kind. Which "
    "dimension of each can be cut?",
    "Cut q, k, v, gate and up by rows, but o and down by columns. Count in units: part p of n gets the "
    "units from size * p // n up to size * (p + 1) // n.",
)


class Promise(Promises):
    """The promises that the check tests."""

    RANGES = "cut() returns the rows and the columns to keep, each as a range inside of the weight"
    ONCE = "every value of a weight is on exactly one device"
    SUM = "the devices' results add up to the whole result"
    EVEN = "no device has two units more than another"


@dataclass(frozen=True)
class Layer:
    """Half of a layer with small whole numbers: attention, or a feed-forward network."""

    is_attention: bool
    hidden: int
    units: int
    unit: int
    parts: int

    def __str__(self) -> str:
        inner = f"{counted(self.units, 'head')} of size {self.unit}"
        if not self.is_attention:
            inner = f"{counted(self.units, 'inner value')}"
        kind = "Attention" if self.is_attention else "A feed-forward network"
        return f"{kind} with a hidden size of {self.hidden} and {inner}, on {self.parts} devices."

    @property
    def names(self) -> tuple[str, ...]:
        """The weights; the last one's results are added up."""
        return ("q", "k", "v", "o") if self.is_attention else ("gate", "up", "down")

    def size(self, name: str) -> tuple[int, int]:
        """Return the rows and columns of a weight."""
        inner = self.units * self.unit
        return (self.hidden, inner) if name == self.names[-1] else (inner, self.hidden)


def adapt(part: Part | None) -> Part | None:
    """Return the rule of the learner's part for `Parallel(cut=...)`; None is the engine's."""
    return _as_rule(part) if part else None


def _as_rule(part: Part) -> Part:
    def your_cut(*arguments: Any) -> tuple[range, range]:
        rows, columns = (_range(one) for one in part(*arguments))
        assert rows is not None
        assert columns is not None
        return rows, columns

    return your_cut


def cases() -> list[Layer]:
    """Return both halves in all small sizes, then uneven ones and more devices."""
    found = [
        Layer(is_attention, hidden, units, unit if is_attention else 1, parts)
        for parts, units, hidden, unit, is_attention in product(
            (1, 2, 3, 4), (2, 3, 4, 6, 8), (6,), (2, 3), (False, True)
        )
        if units >= parts
    ]
    return sorted(set(found), key=lambda one: (one.units % one.parts > 0, one.units, one.parts))


def attempt(part: Part, case: Layer) -> None:
    """Cut all weights of half a layer, compute on each device, and add up."""
    kept = {
        name: [_kept(part, case, name, device) for device in range(case.parts)]
        for name in case.names
    }
    for name, cuts in kept.items():
        _check_once(case, name, cuts)
    chance = random.Random(f"{case}")
    weights = {name: _drawn(chance, *case.size(name)) for name in case.names}
    x = [chance.randint(1, 5) for _ in range(case.hidden)]
    everything = {name: tuple(map(range, case.size(name))) for name in case.names}
    expected = _result(case, weights, everything, x)
    total = [0] * case.hidden
    for device in range(case.parts):
        own = {name: cuts[device] for name, cuts in kept.items()}
        result = _result(case, weights, own, x)
        if isinstance(result, str):
            raise Promise.SUM.broken(f"On device {device}, {result}.", _fitting(case))
        total = [one + other for one, other in zip(total, result, strict=True)]
    if total != expected:
        look = "Does a head stay whole?" if case.is_attention else _fitting(case)
        raise Promise.SUM.broken(f"The sum is {total}, and the whole result {expected}.", look)
    _check_even(case, kept)


def _fitting(case: Layer) -> str:
    *first, last = case.names
    return f"Which results does its part of {last} read, and are they those of its {first[-1]}?"


def _range(value: Any) -> range | None:
    """Return consecutive numbers as a range; None for anything else."""
    if not isinstance(value, range | list | tuple) and not hasattr(value, "tolist"):
        return None
    numbers = [whole(one) for one in value]
    first = numbers[0] if numbers else 0
    if first is None or numbers != [*range(first, first + len(numbers))]:
        return None
    return range(first, first + len(numbers))


def _kept(part: Part, case: Layer, name: str, device: int) -> tuple[range, range]:
    rows, columns = case.size(name)
    answer = call(part, name, rows, columns, case.unit, device, case.parts)
    did = f"cut({name!r}, {rows}, {columns}, {case.unit}, {device}, {case.parts}) returned {answer!r}."
    look = "What does each path return?"
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Promise.RANGES.broken(did, look)
    kept = tuple(map(_range, answer))
    for own, size in zip(kept, (rows, columns), strict=True):
        if own is None or (own and not 0 <= own.start < own.stop <= size):
            raise Promise.RANGES.broken(did, look)
    return kept  # type: ignore[return-value]


def _check_once(case: Layer, name: str, cuts: list[tuple[range, range]]) -> None:
    """Raise Broken for a value that no device has, or that several have."""
    rows, columns = case.size(name)
    for row, column in product(range(rows), range(columns)):
        having = [n for n, (own, of) in enumerate(cuts) if row in own and column in of]
        if len(having) != 1:
            where = " and ".join(f"device {one}" for one in having) or "no device"
            did = f"The value in row {row} and column {column} of {name} is on {where}."
            raise Promise.ONCE.broken(did, f"The devices keep {[_words(*one) for one in cuts]}.")


def _words(rows: range, columns: range) -> str:
    return f"rows {rows.start}:{rows.stop}, columns {columns.start}:{columns.stop}"


def _check_even(case: Layer, kept: dict[str, list[tuple[range, range]]]) -> None:
    for name, cuts in kept.items():
        other = case.hidden * case.unit
        units = [len(rows) * len(columns) / other for rows, columns in cuts]
        if max(units) - min(units) > 1:
            did = f"Of {name}, the devices keep {', '.join(f'{one:g}' for one in units)} units."
            raise Promise.EVEN.broken(did, "Which device has the most to read, and waits for none?")


def _drawn(chance: random.Random, rows: int, columns: int) -> Matrix:
    return [[chance.randint(-3, 3) for _ in range(columns)] for _ in range(rows)]


def _result(
    case: Layer, weights: dict[str, Matrix], kept: dict[str, Any], x: list[int]
) -> list[int] | Any:
    """Return what a device computes with its parts, or what does not fit as words."""

    def times(name: str, values: list[int]) -> list[int]:
        rows, columns = kept[name]
        return [
            sum(weights[name][row][column] * values[at] for at, column in enumerate(columns))
            for row in rows
        ]

    *first, last = case.names
    counts = {len(kept[name][0]) for name in first}
    for name in first:
        if len(kept[name][1]) != case.hidden and kept[name][0]:
            return f"{name} has {len(kept[name][1])} columns, and the input {case.hidden} values"
    if counts != {len(kept[last][1])} and any(counts):
        return (
            f"{first[-1]} gives {len(kept[first[-1]][0])} results, and {last} reads "
            f"{len(kept[last][1])}"
        )
    parts = [times(name, x) for name in first]
    if case.is_attention:
        inner = list[int]()
        for at in range(0, len(parts[0]), case.unit):
            q, k, v = (one[at : at + case.unit] for one in parts)
            score = sum(one * other for one, other in zip(q, k, strict=True))
            inner += [score * value for value in v]
    else:
        gate, up = parts
        inner = [max(one, 0) * other for one, other in zip(gate, up, strict=True)]
    if len(kept[last][0]) != case.hidden and inner:
        return f"{last} gives {len(kept[last][0])} of {case.hidden} results"
    return times(last, inner) if inner else [0] * case.hidden
