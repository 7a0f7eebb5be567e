"""Lesson 03: plausible wrong parts and the promises that they break."""

from checks.lesson_03 import Promise

WEIGHTS = "shape.layers * shape.layer_weights + shape.output_weights"
ATTENTION = "4 * shape.layers * shape.heads"
KEPT = "        values += 2 * shape.layers *"
POSITIONS = "range(start, start + count)"
ANSWER = "return flops, values * bytes_per_value"

WRONG = {
    Promise.PAIR: {
        "the_other_way_round": {ANSWER: "return values * bytes_per_value, flops"},
        "flops_alone": {ANSWER: "return flops"},
    },
    Promise.BYTES: {
        "always_two_bytes": {ANSWER: "return flops, 2 * values"},
    },
    Promise.WEIGHTS_ONCE: {
        "weights_for_each_request": {
            f"values = {WEIGHTS}": "values = 0",
            KEPT: f"        values += {WEIGHTS}\n{KEPT}",
        },
        "weights_for_each_token": {KEPT: f"        values += ({WEIGHTS}) * (count - 1)\n{KEPT}"},
        "weights_of_one_layer": {"values = shape.layers *": "values ="},
    },
    Promise.KV_ONCE: {
        "keys_of_one_layer": {KEPT: "        values += 2 *"},
        "query_heads_in_the_bytes": {"shape.kv_heads": "shape.heads"},
        "returns_after_the_first_row": {f"    {ANSWER}": f"        {ANSWER}"},
    },
    Promise.EVERY_LAYER: {"attention_in_one_layer": {ATTENTION: "4 * shape.heads"}},
    Promise.OUTPUT_PER_ROW: {
        "output_for_every_token": {
            "+ 2 * shape.output_weights": "+ 2 * shape.output_weights * count"
        },
        "one_output_for_all": {
            " + 2 * shape.output_weights": "",
            "flops = 0": "flops = 2 * shape.output_weights",
        },
    },
    Promise.TWO_PER_WEIGHT: {"one_flop_for_a_weight": {"return flops,": "return flops / 2,"}},
    Promise.ATTENTION: {"no_attention": {ATTENTION: "0 * shape.heads"}},
    Promise.QUERY_HEADS: {
        "kv_heads_in_the_flops": {ATTENTION: "4 * shape.layers * shape.kv_heads"}
    },
    Promise.FOUR_PER_PAIR: {"half_of_the_attention": {ATTENTION: "2 * shape.layers * shape.heads"}},
    Promise.CAUSAL: {
        "full_square": {"(position + 1)": "(start + count)"},
        "forgets_the_past": {POSITIONS: "range(count)"},
    },
    Promise.SUM: {
        "weights_of_every_token_of_the_text": {
            "shape.layer_weights * count": "shape.layer_weights * (start + count)"
        },
        "every_row_is_one_token": {"shape.layer_weights * count": "shape.layer_weights"},
    },
}
