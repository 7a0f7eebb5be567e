"""Lesson 03: plausible wrong parts and the promises that they break."""

from checks.lesson_03 import Promise
from tests.lessons.wrong import Wrong

WEIGHTS = "shape.layers * shape.layer_weights + shape.output_weights"
ATTENTION = "4 * shape.layers * shape.heads"
KEPT = "        values += 2 * shape.layers *"
POSITIONS = "range(start, start + count)"
ANSWER = "return flops, values * bytes_per_value"
WRONG = [
    Wrong("the_other_way_round", Promise.PAIR, {ANSWER: "return values * bytes_per_value, flops"}),
    Wrong("flops_alone", Promise.PAIR, {ANSWER: "return flops"}),
    Wrong("values_instead_of_bytes", Promise.BYTES, {ANSWER: "return flops, values"}),
    Wrong("always_two_bytes", Promise.BYTES, {ANSWER: "return flops, 2 * values"}),
    Wrong(
        "weights_without_their_bytes",
        Promise.BYTES,
        {KEPT: f"{KEPT} bytes_per_value *", ANSWER: "return flops, values"},
    ),
    Wrong(
        "weights_for_each_request",
        Promise.WEIGHTS_ONCE,
        {f"values = {WEIGHTS}": "values = 0", KEPT: f"        values += {WEIGHTS}\n{KEPT}"},
    ),
    Wrong(
        "weights_for_each_token",
        Promise.WEIGHTS_ONCE,
        {KEPT: f"        values += ({WEIGHTS}) * (count - 1)\n{KEPT}"},
    ),
    Wrong("weights_of_one_layer", Promise.WEIGHTS_ONCE, {"values = shape.layers *": "values ="}),
    Wrong(
        "no_output_layer",
        Promise.WEIGHTS_ONCE,
        {f"values = {WEIGHTS}": "values = shape.layers * shape.layer_weights"},
    ),
    Wrong("no_weights", Promise.WEIGHTS_ONCE, {f"values = {WEIGHTS}": "values = 0"}),
    Wrong("keys_only", Promise.KV_ONCE, {KEPT: KEPT.replace("2", "1")}),
    Wrong("keys_of_one_layer", Promise.KV_ONCE, {KEPT: "        values += 2 *"}),
    Wrong("query_heads_in_the_bytes", Promise.KV_ONCE, {"shape.kv_heads": "shape.heads"}),
    Wrong("only_what_is_read", Promise.KV_ONCE, {"* (start + count)\n": "* start\n"}),
    Wrong(
        "new_keys_are_written_and_read",
        Promise.KV_ONCE,
        {"* (start + count)\n": "* (start + 2 * count)\n"},
    ),
    Wrong("returns_after_the_first_row", Promise.KV_ONCE, {f"    {ANSWER}": f"        {ANSWER}"}),
    Wrong("attention_in_one_layer", Promise.EVERY_LAYER, {ATTENTION: "4 * shape.heads"}),
    Wrong(
        "output_for_every_token",
        Promise.OUTPUT_PER_ROW,
        {"+ 2 * shape.output_weights": "+ 2 * shape.output_weights * count"},
    ),
    Wrong(
        "one_output_for_all",
        Promise.OUTPUT_PER_ROW,
        {" + 2 * shape.output_weights": "", "flops = 0": "flops = 2 * shape.output_weights"},
    ),
    Wrong("one_flop_for_a_weight", Promise.TWO_PER_WEIGHT, {"return flops,": "return flops / 2,"}),
    Wrong("no_attention", Promise.ATTENTION, {ATTENTION: "0 * shape.heads"}),
    Wrong(
        "kv_heads_in_the_flops",
        Promise.QUERY_HEADS,
        {ATTENTION: "4 * shape.layers * shape.kv_heads"},
    ),
    Wrong(
        "half_of_the_attention",
        Promise.FOUR_PER_PAIR,
        {ATTENTION: "2 * shape.layers * shape.heads"},
    ),
    Wrong("full_square", Promise.CAUSAL, {"(position + 1)": "(start + count)"}),
    Wrong("half_of_the_square", Promise.CAUSAL, {"(position + 1)": "(start + count / 2)"}),
    Wrong("a_token_is_not_in_its_own_context", Promise.CAUSAL, {"(position + 1)": "position"}),
    Wrong("forgets_the_past", Promise.CAUSAL, {POSITIONS: "range(count)"}),
    Wrong("one_pair_too_many", Promise.CAUSAL, {POSITIONS: "range(start, start + count + 1)"}),
    Wrong(
        "weights_of_every_token_of_the_text",
        Promise.SUM,
        {"shape.layer_weights * count": "shape.layer_weights * (start + count)"},
    ),
    Wrong(
        "every_row_is_one_token",
        Promise.SUM,
        {"shape.layer_weights * count": "shape.layer_weights"},
    ),
]
