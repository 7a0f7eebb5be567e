"""Lesson 03: how much does a step compute, and how many bytes does it move?"""

from collections.abc import Sequence

from checks.lesson_03 import Shape


def count_work(
    shape: Shape, rows: Sequence[tuple[int, int]], bytes_per_value: int
) -> tuple[int, int]:
    """Count weights once for all rows, matrices per token, attention per pair of tokens."""
    flops = 0
    values = shape.layers * shape.layer_weights + shape.output_weights
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * count + 2 * shape.output_weights
        for position in range(start, start + count):
            flops += 4 * shape.layers * shape.heads * shape.head_size * (position + 1)
        values += 2 * shape.layers * shape.kv_heads * shape.head_size * (start + count)
    return flops, values * bytes_per_value
