"""Lesson 03: plausible wrong parts, the promises that they break, and facts of the messages."""

from dataclasses import replace

from checks.lesson_03 import Promise
from solutions.lesson_03 import count_work as solution


def weights(shape) -> int:
    return shape.layers * shape.layer_weights + shape.output_weights


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


def a_token_is_not_in_its_own_context(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    tokens = sum(count for _, count in rows)
    return flops - 4 * shape.layers * shape.heads * shape.head_size * tokens, moved


def new_keys_are_written_and_read(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    tokens = sum(count for _, count in rows)
    kept = 2 * shape.layers * shape.kv_heads * shape.head_size
    return flops, moved + kept * tokens * bytes_per_value


def half_of_the_square(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    pairs = sum(count * start + count**2 / 2 for start, count in rows)
    pair = 4 * shape.layers * shape.heads * shape.head_size
    return flops - attention(shape, rows) + pair * pairs, moved


def weights_without_their_bytes(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    return flops, moved - weights(shape) * (bytes_per_value - 1)


def keys_of_one_layer(shape, rows, bytes_per_value):
    flops, moved = solution(shape, rows, bytes_per_value)
    fixed = weights(shape) * bytes_per_value
    return flops, fixed + (moved - fixed) / shape.layers


def every_row_is_one_token(shape, rows, bytes_per_value):
    moved = solution(shape, rows, bytes_per_value)[1]
    return solution(shape, [(start + count - 1, 1) for start, count in rows], 1)[0], moved


def pairs_without_the_past(shape, rows, bytes_per_value):
    flops = 0
    kept = 0
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * count
        flops += 2 * shape.output_weights
        flops += 4 * shape.heads * shape.head_size * shape.layers * count * (count + 1) // 2
        kept += start + count
    moved = shape.layers * shape.layer_weights + shape.output_weights
    moved += 2 * shape.layers * shape.kv_heads * shape.head_size * kept
    return flops, moved * bytes_per_value


def pairs_of_the_last_token(shape, rows, bytes_per_value):
    flops = 0
    kept = 0
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * count + 2 * shape.output_weights
        flops += 4 * shape.heads * shape.head_size * shape.layers * (start + count)
        kept += start + count
    moved = shape.layers * shape.layer_weights + shape.output_weights
    moved += 2 * shape.layers * shape.kv_heads * shape.head_size * kept
    return flops, moved * bytes_per_value


def forgets_the_layers(shape, rows, bytes_per_value):
    """layer_weights taken for the weights of all layers."""
    flops = kept = 0
    for start, count in rows:
        flops += 2 * shape.layer_weights * count + 2 * shape.output_weights
        for position in range(start, start + count):
            flops += 4 * shape.heads * shape.head_size * shape.layers * (position + 1)
        kept += start + count
    moved = shape.layer_weights + shape.output_weights
    moved += 2 * shape.layers * shape.kv_heads * shape.head_size * kept
    return flops, moved * bytes_per_value


def weights_in_every_row(shape, rows, bytes_per_value):
    flops = moved = 0
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * count + 2 * shape.output_weights
        for position in range(start, start + count):
            flops += 4 * shape.heads * shape.head_size * shape.layers * (position + 1)
        moved += shape.layers * shape.layer_weights + shape.output_weights
        moved += 2 * shape.layers * shape.kv_heads * shape.head_size * (start + count)
    return flops, moved * bytes_per_value


def returns_after_the_first_row(shape, rows, bytes_per_value):
    flops = 0
    moved = shape.layers * shape.layer_weights + shape.output_weights
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * count + 2 * shape.output_weights
        for position in range(start, start + count):
            flops += 4 * shape.heads * shape.head_size * shape.layers * (position + 1)
        moved += 2 * shape.layers * shape.kv_heads * shape.head_size * (start + count)
        return flops, moved * bytes_per_value
    return None


def overwrites_instead_of_adding(shape, rows, bytes_per_value):
    for start, count in rows:
        flops = 2 * shape.layers * shape.layer_weights * count + 2 * shape.output_weights
        for position in range(start, start + count):
            flops += 4 * shape.heads * shape.head_size * shape.layers * (position + 1)
        moved = shape.layers * shape.layer_weights + shape.output_weights
        moved += 2 * shape.layers * shape.kv_heads * shape.head_size * (start + count)
    return flops, moved * bytes_per_value


def range_to_count(shape, rows, bytes_per_value):
    """range(start, count): the row is taken for (start, end)."""
    flops = kept = 0
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * count + 2 * shape.output_weights
        for position in range(start, count):
            flops += 4 * shape.heads * shape.head_size * shape.layers * (position + 1)
        kept += start + count
    moved = shape.layers * shape.layer_weights + shape.output_weights
    moved += 2 * shape.layers * shape.kv_heads * shape.head_size * kept
    return flops, moved * bytes_per_value


def two_is_missing_in_the_cache(shape, rows, bytes_per_value):
    """bytes_per_value is 2 in the lesson, so a literal 2 for 'keys and values' is dropped."""
    flops = kept = 0
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * count + 2 * shape.output_weights
        for position in range(start, start + count):
            flops += 4 * shape.heads * shape.head_size * shape.layers * (position + 1)
        kept += start + count
    moved = (shape.layers * shape.layer_weights + shape.output_weights) * bytes_per_value
    moved += 2 * shape.layers * shape.kv_heads * shape.head_size * kept
    return flops, moved


def always_two_bytes(shape, rows, bytes_per_value):
    flops = kept = 0
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * count + 2 * shape.output_weights
        for position in range(start, start + count):
            flops += 4 * shape.heads * shape.head_size * shape.layers * (position + 1)
        kept += start + count
    values = shape.layers * shape.layer_weights + shape.output_weights
    values += 2 * shape.layers * shape.kv_heads * shape.head_size * kept
    return flops, 2 * values


def the_new_tokens_twice(shape, rows, bytes_per_value):
    """old is start + count, new is count."""
    flops = kept = 0
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * count + 2 * shape.output_weights
        for position in range(start, start + count):
            flops += 4 * shape.heads * shape.head_size * shape.layers * (position + 1)
        kept += (start + count) + count
    moved = shape.layers * shape.layer_weights + shape.output_weights
    moved += 2 * shape.layers * shape.kv_heads * shape.head_size * kept
    return flops, moved * bytes_per_value


def the_old_tokens_only(shape, rows, bytes_per_value):
    flops = kept = 0
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * count + 2 * shape.output_weights
        for position in range(start, start + count):
            flops += 4 * shape.heads * shape.head_size * shape.layers * (position + 1)
        kept += start
    moved = shape.layers * shape.layer_weights + shape.output_weights
    moved += 2 * shape.layers * shape.kv_heads * shape.head_size * kept
    return flops, moved * bytes_per_value


def weights_of_every_token_of_the_text(shape, rows, bytes_per_value):
    """2 * weights * (start + count): the old tokens go through the layers again."""
    flops = kept = 0
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * (start + count)
        flops += 2 * shape.output_weights
        for position in range(start, start + count):
            flops += 4 * shape.heads * shape.head_size * shape.layers * (position + 1)
        kept += start + count
    moved = shape.layers * shape.layer_weights + shape.output_weights
    moved += 2 * shape.layers * shape.kv_heads * shape.head_size * kept
    return flops, moved * bytes_per_value


def average_in_floats(shape, rows, bytes_per_value):
    """Pairs as count times the average, rounded down too early."""
    flops = kept = 0
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * count + 2 * shape.output_weights
        average = (start + 1 + start + count) // 2
        flops += 4 * shape.heads * shape.head_size * shape.layers * count * average
        kept += start + count
    moved = shape.layers * shape.layer_weights + shape.output_weights
    moved += 2 * shape.layers * shape.kv_heads * shape.head_size * kept
    return flops, moved * bytes_per_value


def returns_the_intensity(shape, rows, bytes_per_value):
    flops = kept = 0
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * count + 2 * shape.output_weights
        for position in range(start, start + count):
            flops += 4 * shape.heads * shape.head_size * shape.layers * (position + 1)
        kept += start + count
    moved = shape.layers * shape.layer_weights + shape.output_weights
    moved += 2 * shape.layers * shape.kv_heads * shape.head_size * kept
    return flops / (moved * bytes_per_value)


def the_example_only(shape, rows, bytes_per_value):
    return 708, 380


def one_pair_too_many(shape, rows, bytes_per_value):
    flops = kept = 0
    for start, count in rows:
        flops += 2 * shape.layers * shape.layer_weights * count + 2 * shape.output_weights
        for position in range(start, start + count + 1):
            flops += 4 * shape.heads * shape.head_size * shape.layers * (position + 1)
        kept += start + count
    moved = shape.layers * shape.layer_weights + shape.output_weights
    moved += 2 * shape.layers * shape.kv_heads * shape.head_size * kept
    return flops, moved * bytes_per_value


WRONG = [
    (weights_for_each_request, Promise.WEIGHTS_ONCE, [2]),
    (weights_for_each_token, Promise.WEIGHTS_ONCE, [1]),
    (kv_heads_in_the_flops, Promise.QUERY_HEADS, [2, 4]),
    (query_heads_in_the_bytes, Promise.KV_ONCE, [4, 2]),
    (full_square, Promise.CAUSAL, [0, 2]),
    (forgets_the_past, Promise.CAUSAL, [3]),
    (no_attention, Promise.ATTENTION, []),
    (output_for_every_token, Promise.OUTPUT_PER_ROW, [2, 1]),
    (one_flop_for_a_weight, Promise.TWO_PER_WEIGHT, []),
    (values_instead_of_bytes, Promise.BYTES, []),
    (only_what_is_read, Promise.KV_ONCE, []),
    (keys_only, Promise.KV_ONCE, []),
    (one_layer, Promise.WEIGHTS_ONCE, []),
    (weights_of_one_layer, Promise.WEIGHTS_ONCE, [2]),
    (no_output_layer, Promise.WEIGHTS_ONCE, []),
    (attention_in_one_layer, Promise.EVERY_LAYER, [2]),
    (half_of_the_attention, Promise.FOUR_PER_PAIR, []),
    (one_output_for_all, Promise.OUTPUT_PER_ROW, [2]),
    (the_other_way_round, Promise.PAIR, []),
    (flops_alone, Promise.PAIR, []),
    (a_token_is_not_in_its_own_context, Promise.CAUSAL, []),
    (new_keys_are_written_and_read, Promise.KV_ONCE, []),
    (half_of_the_square, Promise.CAUSAL, []),
    (weights_without_their_bytes, Promise.BYTES, []),
    (keys_of_one_layer, Promise.KV_ONCE, [2]),
    (every_row_is_one_token, Promise.SUM, []),
    (pairs_without_the_past, Promise.CAUSAL, []),
    (pairs_of_the_last_token, Promise.CAUSAL, [2, 3]),
    (forgets_the_layers, Promise.WEIGHTS_ONCE, []),
    (weights_in_every_row, Promise.WEIGHTS_ONCE, []),
    (returns_after_the_first_row, Promise.KV_ONCE, [2]),
    (overwrites_instead_of_adding, Promise.KV_ONCE, [2]),
    (range_to_count, Promise.ATTENTION, []),
    (two_is_missing_in_the_cache, Promise.KV_ONCE, []),
    (always_two_bytes, Promise.BYTES, [4]),
    (the_new_tokens_twice, Promise.KV_ONCE, []),
    (the_old_tokens_only, Promise.KV_ONCE, []),
    (weights_of_every_token_of_the_text, Promise.SUM, ["(3, 1)"]),
    (average_in_floats, Promise.CAUSAL, []),
    (returns_the_intensity, Promise.PAIR, []),
    (the_example_only, Promise.KV_ONCE, []),
    (one_pair_too_many, Promise.CAUSAL, [9, 4]),
]
