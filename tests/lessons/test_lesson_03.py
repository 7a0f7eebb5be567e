"""Lesson 03's exercise: right counts are accepted and time a simulated machine."""

import numpy as np
import pytest

from checks import check, lesson_03
from checks.lesson_03 import BUNDLED, LLAMA_2_7B, YourMachine, truth
from engine import Engine, EngineConfig, simulate
from engine.simulation.speakers import Speaker, workload_of
from solutions.lesson_03 import count_work as solution
from visualizer import read

H100 = (989e12, 3.35e12)

OWN = lesson_03.truth


def size(one):
    return (one.shape.layers > 2, len(one.rows))


def in_numpy(shape, rows, bytes_per_value):
    return tuple(np.int64(one) for one in solution(shape, rows, bytes_per_value))


@pytest.mark.parametrize("right", [solution, in_numpy])
def test_every_right_count_is_accepted_and_times_a_machine(right) -> None:
    assert check.lesson_03(right) is right
    people = workload_of([Speaker("Ada", own=1000, output=4)])
    config = EngineConfig(token_budget=2048, max_kv_tokens=4096)
    log = simulate(people, config, cost=YourMachine(right, LLAMA_2_7B, 2, *H100))
    assert [round(one, 1) for one in read(log).steps.duration_ms] == [13.4, 4.1, 4.1, 4.1]


@pytest.mark.parametrize(
    ("shape", "rows", "size", "flops", "moved"),
    [
        (BUNDLED, [(255, 1)], 4, 6.68e6, 11.8e6),
        (BUNDLED, [(255, 1)] * 32, 4, 214e6, 36.2e6),
        (BUNDLED, [(0, 256)], 4, 1.36e9, 11.8e6),
        (LLAMA_2_7B, [(999, 1)] * 64, 2, 879e9, 46.8e9),
        (LLAMA_2_7B, [(0, 1000)], 2, 13.2e12, 13.7e9),
    ],
)
def test_the_count_gives_the_storyboards_table(shape, rows, size, flops, moved) -> None:
    assert truth(shape, rows, size) == (pytest.approx(flops, 4e-3), pytest.approx(moved, 4e-3))


def test_the_shape_of_the_bundled_model_is_its_own() -> None:
    model, shape = Engine.load("bundled").log[0].model, BUNDLED
    sizes = (shape.layers, shape.heads, shape.kv_heads, shape.head_size)
    assert tuple(model[one] for one in ("layers", "heads", "kv_heads", "head_dim")) == sizes
    vectors = 6 * (2 * 192 + 2 * 32) + 192  # norms, which are not matrices
    weights = shape.layers * shape.layer_weights + shape.output_weights
    assert weights == model["parameters"] - vectors
