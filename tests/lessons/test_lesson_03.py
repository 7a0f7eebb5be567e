"""Lesson 03's exercise: wrong counts are refused helpfully, right ones time a pretend machine."""

from dataclasses import replace

import numpy as np
import pytest

from checks import check
from checks.judging import Verdict, judge
from checks.lesson_03 import BUNDLED, LLAMA_2_7B, YourMachine, attempt, cases, truth
from engine import EngineConfig, simulate
from engine.simulation.speakers import Speaker, workload_of
from solutions.lesson_03 import count_work as solution

H100 = (989e12, 3.35e12)


def verdict(part) -> Verdict:
    return judge(part, cases(), attempt)


def weights(shape) -> int:
    return shape.layers * shape.layer_weights + shape.output_weights


# Wrong


def weights_for_each_request(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    return flops, moved + (len(rows) - 1) * weights(shape) * bytes_per_value


def weights_for_each_token(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    tokens = sum(count for _, count in rows)
    return flops, moved + (tokens - 1) * weights(shape) * bytes_per_value


def kv_heads_in_the_flops(shape, rows, bytes_per_value):
    fewer = replace(shape, heads=shape.kv_heads)
    return solution(fewer, rows, bytes_per_value)[0], solution(shape, rows, bytes_per_value)[1]


def query_heads_in_the_bytes(shape, rows, bytes_per_value):
    more = replace(shape, kv_heads=shape.heads)
    return solution(shape, rows, bytes_per_value)[0], solution(more, rows, bytes_per_value)[1]


def full_square(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    hidden = sum(count * (start + count) for start, count in rows) - sum(
        position + 1 for start, count in rows for position in range(start, start + count)
    )
    return flops + 4 * shape.layers * shape.heads * shape.head_size * hidden, moved


def forgets_the_past(shape, rows, bytes_per_value):
    fresh = [(0, count) for _, count in rows]
    return solution(shape, fresh, bytes_per_value)[0], solution(shape, rows, bytes_per_value)[1]


def no_attention(shape, rows, bytes_per_value):
    without = replace(shape, heads=0)
    return solution(without, rows, bytes_per_value)[0], solution(shape, rows, bytes_per_value)[1]


def output_for_every_token(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    tokens = sum(count for _, count in rows)
    return flops + 2 * shape.output_weights * (tokens - len(rows)), moved


def one_flop_for_a_weight(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    return flops / 2, moved


def values_instead_of_bytes(shape, rows, bytes_per_value):
    return solution(shape, rows, 1)


def only_what_is_read(shape, rows, bytes_per_value):
    flops, _ = solution(shape, rows, bytes_per_value)
    kept = 2 * shape.layers * shape.kv_heads * shape.head_size
    read = sum(start for start, _ in rows)
    return flops, (weights(shape) + kept * read) * bytes_per_value


def keys_only(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    fixed = weights(shape) * bytes_per_value
    return flops, fixed + (moved - fixed) / 2


def one_layer(shape, rows, bytes_per_value):
    return solution(replace(shape, layers=1), rows, bytes_per_value)


def weights_of_one_layer(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    return flops, moved - (shape.layers - 1) * shape.layer_weights * bytes_per_value


def no_output_layer(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    return flops, moved - shape.output_weights * bytes_per_value


def attention_in_one_layer(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    return flops - attention(shape, rows) * (shape.layers - 1) // shape.layers, moved


def half_of_the_attention(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    return flops - attention(shape, rows) // 2, moved


def attention(shape, rows) -> int:
    pairs = sum(sum(range(start + 1, start + count + 1)) for start, count in rows)
    return 4 * shape.layers * shape.heads * shape.head_size * pairs


def one_output_for_all(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    return flops - 2 * shape.output_weights * (len(rows) - 1), moved


def the_other_way_round(shape, rows, bytes_per_value):
    return solution(shape, rows, bytes_per_value)[::-1]


def flops_alone(shape, rows, bytes_per_value):
    return solution(shape, rows, bytes_per_value)[0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            weights_for_each_request,
            [
                "the weights are fetched once in a step",
                "There are 2 rows here: how often are they fetched?",
            ],
        ),
        (weights_for_each_token, ["the weights are fetched once in a step", "There is 1 row here"]),
        (
            kv_heads_in_the_flops,
            ["every query head attends", "2 KV heads for 4 heads", "The queries did not shrink."],
        ),
        (query_heads_in_the_bytes, ["There are 4 heads that ask and 2 that keep."]),
        (
            full_square,
            [
                "rows = [(0, 2)]",
                "a token attends to itself and to what comes before it",
                "token 0 attended to all 2 of them",
            ],
        ),
        (forgets_the_past, ["Before a row that starts at 3 there are 3 tokens."]),
        (no_attention, ["attention counts as well", "the length of the context"]),
        (output_for_every_token, ["the output layer runs once for each row", "2 tokens and 1 row"]),
        (one_flop_for_a_weight, ["A weight is multiplied, and the product is added."]),
        (values_instead_of_bytes, ["the answer is in bytes", "How long is each?"]),
        (only_what_is_read, ["The new tokens have keys and values, too."]),
        (keys_only, ["leaves two things behind"]),
        (one_layer, ["Are all layers in it"]),
        (weights_of_one_layer, ["The model has 2 layers. How many of them are fetched?"]),
        (no_output_layer, ["Are its weights in it?"]),
        (attention_in_one_layer, ["every layer attends", "There are 2 layers."]),
        (half_of_the_attention, ["that is two products"]),
        (one_output_for_all, ["There are 2 rows, and each of them is somebody's text."]),
        (the_other_way_round, ["Which of the two comes first?"]),
        (flops_alone, ["the answer is a pair of numbers, FLOPs and bytes"]),
    ],
)
def test_a_wrong_count_is_refused_with_the_case_and_the_promise(wrong, said: list[str]) -> None:
    found = verdict(wrong)
    assert not found.passed
    message = " ".join(str(found).split())
    for words in said:
        assert words in message


# Right


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


@pytest.mark.parametrize("right", [solution, as_a_formula, pair_by_pair, in_numpy])
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


def test_an_untouched_stub_is_not_written_yet_and_ours_counts(capsys) -> None:
    assert check.lesson_03(stub) is truth
    assert "not written yet" in capsys.readouterr().out


def test_cases_come_smallest_first() -> None:
    lengths = [len(step.rows) for step in cases() if step.shape not in (BUNDLED, LLAMA_2_7B)]
    assert lengths == sorted(lengths)
