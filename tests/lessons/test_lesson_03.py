"""Lesson 03's exercise: right counts are accepted and time a simulated machine."""

import numpy as np
import pytest

from checks import check
from checks.lesson_03 import BUNDLED, LLAMA_2_7B, YourMachine, cases, truth
from engine import EngineConfig, simulate
from engine.simulation.speakers import Speaker, workload_of
from solutions.lesson_03 import count_work as solution
from tests.lessons.wrong.lesson_03 import weights

H100 = (989e12, 3.35e12)


def as_a_formula(shape, rows, bytes_per_value):
    tokens = sum(count for _, count in rows)
    pairs = sum(
        ((start + count) * (start + count + 1) - start * (start + 1)) / 2 for start, count in rows
    )
    flops = 2.0 * (shape.layers * shape.layer_weights * tokens + shape.output_weights * len(rows))
    flops += 4 * shape.layers * shape.heads * shape.head_size * pairs
    contexts = sum(map(sum, rows))
    kept = 2 * shape.layers * shape.kv_heads * shape.head_size * contexts
    return [flops, float((weights(shape) + kept) * bytes_per_value)]


def pair_by_pair(shape, rows, bytes_per_value):
    flops, moved = 0, weights(shape) * bytes_per_value
    for start, count in rows:
        flops += 2 * shape.output_weights
        for position in range(start + count):
            moved += 2 * shape.layers * shape.kv_heads * shape.head_size * bytes_per_value
            if position >= start:
                flops += 2 * shape.layers * shape.layer_weights
                for _ in range(position + 1):
                    flops += 4 * shape.layers * shape.heads * shape.head_size
    return flops, moved


def in_numpy(shape, rows, bytes_per_value):
    return tuple(np.int64(one) for one in solution(shape, rows, bytes_per_value))


def with_the_lessons_decode(shape, rows, bytes_per_value):
    """Each token is a decode of its own; then take away what a chunk shares."""
    flops, kept = 0, 0
    for start, count in rows:
        for context in range(start + 1, start + count + 1):
            attention = 4 * shape.layers * shape.heads * shape.head_size * context
            flops += 2 * weights(shape) + attention
        flops -= 2 * shape.output_weights * (count - 1)
        kept += 2 * shape.layers * shape.kv_heads * shape.head_size * (start + count)
    return flops, bytes_per_value * (weights(shape) + kept)


def layer_by_layer(shape, rows, bytes_per_value):
    flops = moved = 0
    for _ in range(shape.layers):
        moved += shape.layer_weights
        for start, count in rows:
            flops += 2 * shape.layer_weights * count
            seen = sum(start + i for i in range(1, count + 1))
            flops += 2 * 2 * shape.heads * shape.head_size * seen
            moved += 2 * shape.kv_heads * shape.head_size * (start + count)
    flops += 2 * shape.output_weights * len(rows)
    return flops, (moved + shape.output_weights) * bytes_per_value


def sums_with_generators(shape, rows, bytes_per_value):
    tokens = sum(n for _, n in rows)
    pairs = sum(start + i for start, n in rows for i in range(1, n + 1))
    texts = sum(map(sum, rows))
    per_pair = 4 * shape.heads * shape.head_size
    flops = (
        2 * (tokens * shape.layers * shape.layer_weights + len(rows) * shape.output_weights)
        + shape.layers * pairs * per_pair
    )
    values = (
        shape.layers * (shape.layer_weights + 2 * shape.kv_heads * shape.head_size * texts)
        + shape.output_weights
    )
    return [flops, values * bytes_per_value]


def squares(shape, rows, bytes_per_value):
    """Triangles: pairs are those of the whole text less those of its beginning."""

    def triangle(n):
        return n * (n + 1) / 2

    pairs = sum(triangle(a + b) - triangle(a) for a, b in rows)
    flops = sum(2 * shape.layers * shape.layer_weights * b for _, b in rows)
    flops += 2 * shape.output_weights * len(rows)
    flops += shape.layers * 4 * shape.heads * shape.head_size * pairs
    memory = bytes_per_value * (shape.layers * shape.layer_weights + shape.output_weights)
    for a, b in rows:
        memory += bytes_per_value * shape.layers * 2 * shape.kv_heads * shape.head_size * (a + b)
    return flops, memory


def recursion(shape, rows, bytes_per_value):
    if not rows:
        weights = shape.layers * shape.layer_weights + shape.output_weights
        return 0, weights * bytes_per_value
    (start, count), *rest = rows
    flops, moved = recursion(shape, rest, bytes_per_value)
    context = list(range(start + 1, start + count + 1))
    flops += 2 * (shape.layers * shape.layer_weights * count + shape.output_weights)
    flops += shape.layers * 4 * shape.heads * shape.head_size * sum(context)
    kv = 2 * shape.layers * shape.kv_heads * shape.head_size * context[-1]
    return flops, moved + kv * bytes_per_value


RIGHT = [
    solution,
    as_a_formula,
    pair_by_pair,
    in_numpy,
    with_the_lessons_decode,
    layer_by_layer,
    sums_with_generators,
    squares,
    recursion,
]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_count_is_accepted_and_times_a_machine(right, capsys) -> None:
    count = check.lesson_03(right)
    assert f"{right.__name__}() keeps its promises in all" in capsys.readouterr().out
    assert count is right
    people = workload_of([Speaker("Ada", own=1000, output=4)])
    config = EngineConfig(token_budget=2048, max_kv_tokens=4096)
    log = simulate(people, config, cost=YourMachine(count, LLAMA_2_7B, 2, *H100))
    first, *others = log.steps.duration_ms
    assert round(first, 1) == 13.4
    assert [round(one, 1) for one in others] == [4.1, 4.1, 4.1]


@pytest.mark.parametrize(
    ("shape", "rows", "size", "flops", "moved"),
    [
        (BUNDLED, [(255, 1)], 4, 6.49e6, 11.4e6),
        (BUNDLED, [(255, 1)] * 8, 4, 51.9e6, 16.9e6),
        (BUNDLED, [(255, 1)] * 32, 4, 208e6, 35.8e6),
        (BUNDLED, [(0, 256)], 4, 1.36e9, 11.4e6),
        (LLAMA_2_7B, [(999, 1)], 2, 13.7e9, 13.7e9),
        (LLAMA_2_7B, [(999, 1)] * 8, 2, 110e9, 17.4e9),
        (LLAMA_2_7B, [(999, 1)] * 64, 2, 879e9, 46.8e9),
        (LLAMA_2_7B, [(0, 1000)], 2, 13.2e12, 13.7e9),
    ],
)
def test_the_count_gives_the_storyboards_table(shape, rows, size, flops, moved) -> None:
    assert truth(shape, rows, size) == (pytest.approx(flops, 4e-3), pytest.approx(moved, 4e-3))


def test_chunking_changes_nothing_but_the_output_layer() -> None:
    whole, chunks = (
        [(0, 10)],
        [(0, 3), (3, 3), (6, 4)],
    )
    more = sum(truth(BUNDLED, [chunk], 4)[0] for chunk in chunks) - truth(BUNDLED, whole, 4)[0]
    assert more == 2 * 2 * BUNDLED.output_weights


def test_the_shape_of_the_bundled_model_is_its_own() -> None:
    from engine import Engine

    model = Engine.load("bundled").log[0].model
    assert (model["layers"], model["heads"], model["kv_heads"], model["head_dim"]) == (
        BUNDLED.layers,
        BUNDLED.heads,
        BUNDLED.kv_heads,
        BUNDLED.head_size,
    )
    vectors = 6 * (2 * 192 + 2 * 32) + 192  # norms, which are not matrices
    assert weights(BUNDLED) == model["parameters"] - vectors


def stub(shape, rows, bytes_per_value):
    """FLOPs and bytes of one step."""
    ...


def test_an_untouched_stub_counts_as_unwritten_and_ours_counts(capsys) -> None:
    assert check.lesson_03(stub) is truth
    assert "not written yet" in capsys.readouterr().out


def test_cases_come_smallest_first() -> None:
    lengths = [len(step.rows) for step in cases() if step.shape not in (BUNDLED, LLAMA_2_7B)]
    assert lengths == sorted(lengths)
