"""Lesson 03: how much does a step compute, and how many bytes does it move?"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Real

from checks.answer import Answer
from checks.broken import Broken, Promises
from checks.guard import call
from checks.judging import counted, listed
from engine import CostRunner
from engine.core.runner import Row

_SHARED = "The weights, which are most of what is fetched, are fetched once for all eight."
ANSWERS = {
    "company": Answer(
        "1.3 times as long",
        {
            "8 times as long": "There's eight times as much to compute, but the step doesn't "
            f"wait for that. {_SHARED}",
            "4 times as long": f"Is half of it shared, and half not? {_SHARED}",
            "2 times as long": f"{_SHARED} Only the keys and values are each person's own, and at this "
            "context there are few of them.",
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


BUNDLED = Shape(6, 393_216, 393_216, heads=6, kv_heads=2, head_size=32)
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

    def step_ms(self, rows: Sequence[Row], *, woken: bool) -> float:
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
    rows = list(step.rows)
    answer = call(count_work, step.shape, rows, step.bytes_per_value)
    if not (
        isinstance(answer, list | tuple)
        and len(answer) == 2
        and all(isinstance(one, Real) for one in answer)
    ):
        raise Promise.PAIR.broken(f"You returned {answer!r}.", "What does count_work() return?")
    flops, moved = answer
    right_flops, right_bytes = truth(step.shape, rows, step.bytes_per_value)
    if right_flops != right_bytes and (flops, moved) == (right_bytes, right_flops):
        raise Promise.PAIR.broken(
            f"You count {flops:,.0f} FLOPs and {moved:,.0f} bytes.", "Which of the two comes first?"
        )
    if not _close(moved, right_bytes):
        raise Broken(
            f"You count {moved:,.0f} bytes; it is {right_bytes:,}.", *_about_bytes(moved, step)
        )
    if not _close(flops, right_flops):
        raise Broken(
            f"You count {flops:,.0f} FLOPs; it is {right_flops:,}.", *_about_flops(flops, step)
        )


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-9 * abs(other)


def _about_bytes(moved: float, step: Step) -> tuple[str, str]:
    """Return promise and hint of the first misreading that gives this count."""
    shape, size, rows = step.shape, step.bytes_per_value, len(step.rows)
    weights = shape.layers * shape.layer_weights + shape.output_weights
    kept = _kv_values(shape) * sum(start + count for start, count in step.rows)
    tokens = sum(count for _, count in step.rows)
    there = f"There {'is' if rows == 1 else 'are'} {counted(rows, 'row')} here"
    often = f"{there}: how often are they fetched?"
    asking = f"There are {shape.heads} query heads and {shape.kv_heads} KV heads."
    one_layer = shape.layer_weights + shape.output_weights
    misreadings = [
        (
            (one_layer + kept) * size,
            Promise.WEIGHTS_ONCE,
            f"The model has {counted(shape.layers, 'layer')}. How many of them are fetched?",
        ),
        (
            (weights - shape.output_weights + kept) * size,
            Promise.WEIGHTS_ONCE,
            "The output layer turns the last layer's result into logits. Do you count its weights?",
        ),
        *(
            (
                (weights + _kv_values(shape) * sum(row)) * size,
                Promise.KV_ONCE,
                f"{there}, and you count one. What does your loop do with each row?",
            )
            for row in step.rows
            if rows > 1
        ),
        ((weights + kept), Promise.BYTES, "You counted values. How many bytes has each?"),
        ((weights + kept) * 2, Promise.BYTES, f"Here a value has {size} bytes."),
        (
            weights + kept * size,
            Promise.BYTES,
            "The weights are values, too. How many bytes has each?",
        ),
        ((rows * weights + kept) * size, Promise.WEIGHTS_ONCE, often),
        ((tokens * weights + kept) * size, Promise.WEIGHTS_ONCE, often),
        (
            (weights + kept // shape.kv_heads * shape.heads) * size,
            Promise.KV_ONCE,
            f"{asking} Which of them are in memory?",
        ),
        (
            (weights + kept - _kv_values(shape) * tokens) * size,
            Promise.KV_ONCE,
            "The new tokens have keys and values, too. Where are these written?",
        ),
        (
            (weights + kept + _kv_values(shape) * tokens) * size,
            Promise.KV_ONCE,
            "The new tokens' keys and values count once. Do you count them as written and as read?",
        ),
        (
            (weights + kept // shape.layers) * size,
            Promise.KV_ONCE,
            f"There are {shape.layers} layers, and a token has keys and values in each.",
        ),
        (
            (weights + kept // 2) * size,
            Promise.KV_ONCE,
            f"A token has a key and a value, and each number in them has {size} bytes. Is one of "
            "these factors missing?",
        ),
    ]
    for count, promise, look in misreadings:
        if _close(moved, count):
            return promise, look
    if moved < weights * size:
        return (
            Promise.WEIGHTS_ONCE,
            "That is less than the weights alone. Do you count all layers, and the output layer?",
        )
    return Promise.KV_ONCE, f"How many tokens' keys and values are moved for {_rows(step)}?"


def _about_flops(flops: float, step: Step) -> tuple[str, str]:
    """Do the same for FLOPs."""
    shape, rows = step.shape, step.rows
    right = truth(shape, rows, 1)[0]
    tokens = sum(count for _, count in rows)
    pair = 4 * shape.layers * shape.heads * shape.head_size
    pairs = sum(count * start + count * (count + 1) // 2 for start, count in rows)
    square = sum(count * (start + count) for start, count in rows)
    own = sum(count * (count + 1) // 2 for _, count in rows)
    start, many = max(rows, key=lambda row: row[1])
    latest = max(start for start, _ in rows)
    all_pairs = pair * pairs
    misreadings = [
        (
            right - all_pairs + all_pairs // shape.layers,
            Promise.EVERY_LAYER,
            f"There {'is' if shape.layers == 1 else 'are'} {counted(shape.layers, 'layer')}.",
        ),
        (
            right - 2 * shape.output_weights * (len(rows) - 1),
            Promise.OUTPUT_PER_ROW,
            f"There are {counted(len(rows), 'row')}, and each belongs to another request.",
        ),
        (
            right / 2,
            Promise.TWO_PER_WEIGHT,
            "A weight is multiplied, and the product is added: two FLOPs.",
        ),
        (
            right + 2 * shape.output_weights * (tokens - len(rows)),
            Promise.OUTPUT_PER_ROW,
            f"{counted(tokens, 'token')} and {counted(len(rows), 'row')}: which of the tokens needs "
            "logits for a next token?",
        ),
        (
            right - pair * pairs,
            Promise.ATTENTION,
            "Where does your count use the length of the context?",
        ),
        (
            right - pair // shape.heads * (shape.heads - shape.kv_heads) * pairs,
            Promise.QUERY_HEADS,
            f"With {shape.kv_heads} KV heads for {shape.heads} heads there are fewer keys, "
            "but as many queries.",
        ),
        (
            right - all_pairs // 2,
            Promise.FOUR_PER_PAIR,
            "A query is multiplied with a key, and a weight with a value: two products.",
        ),
        (
            right + pair * (square - pairs),
            Promise.CAUSAL,
            f"In the row ({start}, {many}), token {start} attended to all {start + many} of them. "
            "Those after it did not exist yet.",
        ),
        (
            right - pair * tokens,
            Promise.CAUSAL,
            "A token is part of its own context. Is it in yours?",
        ),
        (
            right + pair * (own - pairs),
            Promise.CAUSAL,
            f"Before a row that starts at {latest} there are {latest} tokens. Does yours count them?",
        ),
        (
            right + 2 * shape.layers * shape.layer_weights * sum(start for start, _ in rows),
            Promise.SUM,
            f"Of {_rows(step)}, {counted(tokens, 'token')} goes through the layers now. The keys and "
            "values of those before are kept.",
        ),
    ]
    for count, promise, look in misreadings:
        if _close(flops, count):
            return promise, look
    more = (flops - right) / pair
    if more == round(more):
        return (
            Promise.CAUSAL,
            f"You count {counted(pairs + round(more), 'pair')}; in {_rows(step)} there are {pairs}. "
            "List the positions that each token attends to.",
        )
    if _close(more, -tokens / 2):
        return (
            Promise.CAUSAL,
            "Half of a square counts a token only half in its own context. List the positions that "
            "each token attends to.",
        )
    return (
        Promise.SUM,
        f"Work out {_rows(step)} by hand: the layers, the output layer, the pairs.",
    )


def _rows(step: Step) -> str:
    return listed(f"the row ({start}, {count})" for start, count in step.rows)
