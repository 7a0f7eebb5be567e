"""Lesson 01: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_01 import Promise

GREEDY = "1.0 if i == order[0] else 0.0 for i in range(len(logits))"
KEPT = "order[:top_k] if top_k else order"
WHOLE = "whole, summed = sum(weights[i] for i in kept), 0.0"
SUM = "        summed += weights[i] / whole"
LESS = "            kept = kept[: count - 1]\n            break"
PLAIN = "plain = [math.exp(one - best) for one in logits]"

WRONG = {
    Promise.CUT_WHEN_ASKED: {
        "zero_k_keeps_none": {KEPT: "order[: top_k or 1]"},
        "loses_a_token_to_rounding": {
            WHOLE: f"weights = [one / sum(weights) for one in weights]\n    {WHOLE}",
            SUM: f"        if top_p == 1 < summed + weights[i] / whole:\n{LESS}\n{SUM}",
        },
    },
    Promise.FIRST_OF_EQUALS: {
        "later_of_equals_first": {
            "range(len(logits)), key=logits.__getitem__, reverse=True)": "range(len(logits)), key="
            "logits.__getitem__)[::-1]"
        }
    },
    Promise.GREEDY: {
        "zero_gives_1_to_all_that_tie": {GREEDY: "float(one == max(logits)) for one in logits"},
        "zero_is_uniform": {GREEDY: "1 / len(logits) for _ in logits"},
    },
    Promise.IS_LIST: {"argmax_at_zero": {f"[{GREEDY}]": "order[0]"}},
    Promise.KEEPS_ONE: {
        "log_probabilities": "shares = solution(logits, temperature, top_k, top_p)\n"
        "return [math.log(one) if one else -math.inf for one in shares]"
    },
    Promise.LIKELIEST_FIRST: {"the_last_k": {KEPT: "order[-top_k:]"}},
    Promise.NUMBERS: {"divides_by_zero": {GREEDY: "math.inf / math.inf for _ in logits"}},
    Promise.NOT_NEGATIVE: {"a_negative_share": {"weights[i] / whole if": "-weights[i] / whole if"}},
    Promise.ONE_PER_TOKEN: {
        "only_the_kept": {
            "if i in set(kept) else 0.0 for i in range(len(logits))": "for i in sorted(kept)"
        }
    },
    Promise.PROPORTIONAL: {
        "powers_of_two": {
            "math.exp((one - best) / temperature)": "2 ** ((one - best) / temperature)"
        },
        "multiplies_by_temperature": {"(one - best) / temperature": "(one - best) * temperature"},
        "ignores_temperature": {"(one - best) / temperature": "one - best"},
    },
    Promise.SUMS_TO_1: {
        "forgets_to_share": {"whole = sum(weights[i] for i in kept)\n": "whole = sum(weights)\n"},
    },
    Promise.TOP_K: {
        "ignores_top_k": {KEPT: "order"},
        "ties_at_top_k_stay": {
            KEPT: "[i for i in order if logits[i] >= logits[order[: top_k or None][-1]]]"
        },
    },
    Promise.TOP_P: {
        "goes_beyond_p": {"summed >= top_p": "summed > top_p"},
        "cuts_before_the_temperature": {
            WHOLE: f"{PLAIN}\n    {WHOLE.replace('weights', 'plain')}",
            SUM: SUM.replace("weights", "plain"),
        },
        "top_p_of_everything": {WHOLE: "whole, summed = sum(weights), 0.0"},
    },
    CommonPromise.UNCHANGED: {
        "changes_the_logits": {"    best =": "    logits.sort()\n    best ="}
    },
    CommonPromise.ANSWERS: {
        "divides_by_zero_in_python": {"if temperature == 0:": "if temperature < 0:"}
    },
}
