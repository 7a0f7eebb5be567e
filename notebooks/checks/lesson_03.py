"""Lesson 03: how much does a step compute, and how many bytes does it move?"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Real

from checks.answer import Answer
from checks.broken import Promises
from checks.guard import call
from checks.judging import counted, listed
from engine import CostRunner
from engine.core.runner import Row

_SHARED = "The weights, which are most of what is fetched, are fetched once for all eight."
ANSWERS = {
    "company": Answer(
        "1.3 times as long",
        {
            "8 times as long": "There is eight times as much to compute. But the step does not "
            f"wait for that. {_SHARED}",
            "4 times as long": f"Half shared, half not? {_SHARED}",
            "2 times as long": f"{_SHARED} Only the keys and values are each person's own, and at this "
            "context they are few.",
        },
        source="The count",
        fits=lambda ratio: 1.2 < ratio < 1.35,
    )
}
HINTS = (
    "Count the pairs first. A token at position p attends to p + 1 positions, and a row "
    "computes the tokens at positions start to start + count - 1.",
    "The weights are fetched once per step, not once per row. The bytes use KV heads and all "
    "start + count tokens of a row. The FLOPs of attention use query heads and pairs.",
)


class Promise(Promises):
    """The promises that the check tests."""

    PAIR = "the answer is a pair of numbers, FLOPs and bytes"
    BYTES = "the answer is in bytes"
    WEIGHTS_ONCE = "the weights are fetched once per step"
    KV_ONCE = "the keys and values of a row's tokens are moved once in every layer"
    EVERY_LAYER = "attention runs in every layer"
    OUTPUT_PER_ROW = "the output layer runs once per row"
    TWO_PER_WEIGHT = "each weight costs two FLOPs"
    ATTENTION = "attention counts, too"
    QUERY_HEADS = "every query head attends"
    FOUR_PER_PAIR = "every pair of tokens costs 4 * heads * head_size in each layer"
    CAUSAL = "a token attends to itself and to the tokens before it"
    SUM = "the FLOPs are two per weight and token, and attention for each pair of tokens"


Rows = Sequence[tuple[int, int]]
CountWork = Callable[..., tuple[float, float]]


@dataclass(frozen=True)
class Shape:
    """The sizes that determine a model's work.

    layer_weights   in the matrices of one layer
    output_weights  in the output layer, which turns the last layer's result into logits
    """

    layers: int
    layer_weights: int
    output_weights: int
    heads: int
    kv_heads: int
    head_size: int


BUNDLED = Shape(6, 393_216, 294_912, heads=6, kv_heads=2, head_size=32)
LLAMA_2_7B = Shape(32, 202_375_168, 131_072_000, heads=32, kv_heads=32, head_size=128)


@dataclass(frozen=True)
class Step:
    """The rows of one step, for a model of some shape."""

    shape: Shape
    rows: tuple[tuple[int, int], ...]
    bytes_per_value: int

    def __str__(self) -> str:
        s = self.shape
        sizes = (
            f"{counted(s.layers, 'layer')} of {s.layer_weights} weights, {s.output_weights} in the "
            f"output layer, {counted(s.heads, 'head')}, {counted(s.kv_heads, 'KV head')}, head "
            f"size {s.head_size}, {self.bytes_per_value} bytes a value"
        )
        return f"rows = {list(self.rows)}. The model: {sizes}."


class YourMachine(CostRunner):
    """A simulated machine that moves and computes in parallel: a step takes the longer of the two."""

    def __init__(
        self,
        count_work: CountWork,
        shape: Shape,
        bytes_per_value: int,
        flops_per_s: float,
        bytes_per_s: float,
    ) -> None:
        super().__init__(0, 0)
        self._count_work = count_work
        self._model = (shape, bytes_per_value)
        self._peaks = (flops_per_s, bytes_per_s)

    def step_ms(self, rows: Sequence[Row], *, woken: bool) -> float:  # noqa: ARG002
        """Return milliseconds, by the learner's count."""
        shape, bytes_per_value = self._model
        flops, moved = self._count_work(
            shape, [(row.start, row.count) for row in rows], bytes_per_value
        )
        flops_per_s, bytes_per_s = self._peaks
        return 1000 * max(flops / flops_per_s, moved / bytes_per_s)


def adapt(count_work: CountWork | None) -> CountWork:
    """Return the learner's function if it passed, otherwise ours."""
    return count_work or truth


def truth(shape: Shape, rows: Rows, bytes_per_value: int) -> tuple[int, int]:
    """Return FLOPs and bytes of one step."""
    pairs = sum(count * start + count * (count + 1) // 2 for start, count in rows)
    tokens = sum(count for _, count in rows)
    layers, output = shape.layers * shape.layer_weights, shape.output_weights
    flops = 2 * (layers * tokens + output * len(rows))
    flops += 4 * shape.layers * shape.heads * shape.head_size * pairs
    read = sum(start + count for start, count in rows)
    values = layers + output + _kv_values(shape) * read
    return flops, values * bytes_per_value


def _kv_values(shape: Shape) -> int:
    return 2 * shape.layers * shape.kv_heads * shape.head_size


def cases() -> list[Step]:
    """Return one token first, then chunks, then several rows; small models before real ones."""
    tiny = Shape(1, 100, 10, heads=2, kv_heads=2, head_size=4)
    shapes = [tiny, replace(tiny, layers=2), replace(tiny, heads=4)]
    # A lone first token has a context of one, where several mistakes look alike.
    short = [row for row in product((0, 3, 7), (1, 2, 3)) if row != (0, 1)]
    lone = [Step(shape, (row,), 2) for row in short for shape in shapes]
    pairs = [Step(shape, rows, 2) for rows in product(short, repeat=2) for shape in shapes]
    chance = random.Random(3)
    real = [
        Step(
            chance.choice((BUNDLED, LLAMA_2_7B)),
            tuple(
                (chance.randrange(100), chance.choice((1, 1, 1, 8, 40)))
                for _ in range(chance.randint(1, 6))
            ),
            chance.choice((2, 4)),
        )
        for _ in range(60)
    ]
    return sorted(lone + pairs, key=_size) + sorted(real, key=lambda one: len(one.rows))


def _size(step: Step) -> tuple[int, ...]:
    shape = step.shape
    unusual = (shape.layers > 1) + (shape.kv_heads != shape.heads)
    return (len(step.rows), sum(count for _, count in step.rows), unusual, *map(sum, step.rows))


def attempt(count_work: CountWork, step: Step) -> None:
    """Compare an answer with the work of one step."""
    answer = call(count_work, step.shape, list(step.rows), step.bytes_per_value)
    if not (
        isinstance(answer, list | tuple)
        and len(answer) == 2
        and all(isinstance(one, Real) for one in answer)
    ):
        raise Promise.PAIR.broken(f"You returned {answer!r}.", "What does count_work() return?")
    flops, moved = answer
    work = _Work(step)
    if work.flops != work.bytes and (flops, moved) == (work.bytes, work.flops):
        raise Promise.PAIR.broken(
            f"You count {flops:,.0f} FLOPs and {moved:,.0f} bytes.", "Which of the two comes first?"
        )
    if not _close(moved, work.bytes):
        did = f"You count {moved:,.0f} bytes; it is {work.bytes:,}."
        readings, otherwise = work.misread_bytes(), Promise.KV_ONCE
        if moved < work.weights * step.bytes_per_value:
            otherwise = Promise.WEIGHTS_ONCE
        raise _misread(moved, readings, otherwise).broken(did, work.facts)
    if not _close(flops, work.flops):
        did = f"You count {flops:,.0f} FLOPs; it is {work.flops:,}."
        pairs = (flops - work.flops) / work.of_a_pair
        causal = pairs == round(pairs) or _close(pairs, -work.tokens / 2)
        otherwise = Promise.CAUSAL if causal else Promise.SUM
        raise _misread(flops, work.misread_flops(), otherwise).broken(did, work.facts)


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-9 * abs(other)


Readings = Iterable[tuple[Promise, float]]


def _misread(count: float, readings: Readings, otherwise: Promise) -> Promise:
    """Return the promise of the first misreading that gives this count."""
    return next((promise for promise, one in readings if _close(count, one)), otherwise)


class _Work:
    """What a step consists of, and the counts of those who misread it."""

    def __init__(self, step: Step) -> None:
        self.step, shape = step, step.shape
        self.flops, self.bytes = truth(shape, step.rows, step.bytes_per_value)
        self.weights = shape.layers * shape.layer_weights + shape.output_weights
        self.tokens = sum(count for _, count in step.rows)
        self.context = sum(start + count for start, count in step.rows)
        self.of_a_pair = 4 * shape.layers * shape.heads * shape.head_size
        self.pairs = sum(count * start + count * (count + 1) // 2 for start, count in step.rows)

    @property
    def facts(self) -> str:
        """The sizes that matter, for a message."""
        rows, shape = self.step.rows, self.step.shape
        named = listed(f"the row ({start}, {count})" for start, count in rows)
        return (
            f"Work out {named} by hand: {counted(self.tokens, 'token')} in "
            f"{counted(len(rows), 'row')}, {counted(shape.layers, 'layer')}, "
            f"{counted(self.pairs, 'pair')} of a token and a position that it sees, keys and values of "
            f"{counted(self.context, 'token')} for {shape.kv_heads} of {counted(shape.heads, 'head')}, "
            f"{self.step.bytes_per_value} bytes a value. Which of these does your count use?"
        )

    def misread_bytes(self) -> Readings:
        """Yield a promise and the bytes of a reader who breaks it."""
        shape, size, rows = self.step.shape, self.step.bytes_per_value, self.step.rows
        values, weights = _kv_values(shape), self.weights
        kept = values * self.context
        for others in (
            shape.layer_weights + shape.output_weights,  # one layer
            weights - shape.output_weights,
            len(rows) * weights,
            self.tokens * weights,
        ):
            yield Promise.WEIGHTS_ONCE, (others + kept) * size
        for moved in (
            *(values * sum(row) for row in rows if len(rows) > 1),
            kept // shape.kv_heads * shape.heads,
            kept - values * self.tokens,
            kept + values * self.tokens,
            kept // shape.layers,
            kept // 2,
        ):
            yield Promise.KV_ONCE, (weights + moved) * size
        for wrong in (weights + kept, (weights + kept) * 2, weights + kept * size):
            yield Promise.BYTES, wrong

    def misread_flops(self) -> Readings:
        """Yield the same for FLOPs."""
        shape, rows, right = self.step.shape, self.step.rows, self.flops
        square = sum(count * (start + count) for start, count in rows)
        own = sum(count * (count + 1) // 2 for _, count in rows)
        attention, output = self.of_a_pair * self.pairs, 2 * shape.output_weights
        yield Promise.EVERY_LAYER, right - attention + attention // shape.layers
        yield Promise.OUTPUT_PER_ROW, right - output * (len(rows) - 1)
        yield Promise.TWO_PER_WEIGHT, right / 2
        yield Promise.OUTPUT_PER_ROW, right + output * (self.tokens - len(rows))
        yield Promise.ATTENTION, right - attention
        keys_only = self.of_a_pair // shape.heads * (shape.heads - shape.kv_heads)
        yield Promise.QUERY_HEADS, right - keys_only * self.pairs
        yield Promise.FOUR_PER_PAIR, right - attention // 2
        for pairs in (square - self.pairs, -self.tokens, own - self.pairs):
            yield Promise.CAUSAL, right + self.of_a_pair * pairs
