"""Lesson 01: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_01 import Promise
from tests.lessons.wrong import Wrong

GREEDY = "1.0 if i == order[0] else 0.0 for i in range(len(logits))"
KEPT = "order[:top_k] if top_k else order"
WHOLE = "whole, summed = sum(weights[i] for i in kept), 0.0"
SUM = "        summed += weights[i] / whole"
LESS = "            kept = kept[: count - 1]\n            break"
ENOUGH = "if summed >= top_p:"
PLAIN = "plain = [math.exp(one - best) for one in logits]"
WRONG = [
    Wrong("zero_k_keeps_none", Promise.CUT_WHEN_ASKED, {KEPT: "order[: top_k or 1]"}),
    Wrong(
        "loses_a_token_to_rounding",
        Promise.CUT_WHEN_ASKED,
        {
            WHOLE: f"weights = [one / sum(weights) for one in weights]\n    {WHOLE}",
            SUM: f"        if top_p == 1 < summed + weights[i] / whole:\n{LESS}\n{SUM}",
        },
    ),
    Wrong(
        "zero_gives_1_to_all_that_tie",
        Promise.GREEDY,
        {GREEDY: "float(one == max(logits)) for one in logits"},
    ),
    Wrong("zero_is_uniform", Promise.GREEDY, {GREEDY: "1 / len(logits) for _ in logits"}),
    Wrong("argmax_at_zero", Promise.IS_LIST, {f"[{GREEDY}]": "order[0]"}),
    Wrong(
        "log_probabilities",
        Promise.KEEPS_ONE,
        "shares = solution(logits, temperature, top_k, top_p)\n"
        "return [math.log(one) if one else -math.inf for one in shares]",
    ),
    Wrong("the_last_k", Promise.LIKELIEST_FIRST, {KEPT: "order[-top_k:]"}),
    Wrong("divides_by_zero", Promise.NUMBERS, {GREEDY: "math.inf / math.inf for _ in logits"}),
    Wrong(
        "a_negative_share",
        Promise.NOT_NEGATIVE,
        {"weights[i] / whole if": "-weights[i] / whole if"},
    ),
    Wrong(
        "only_the_kept",
        Promise.ONE_PER_TOKEN,
        {"if i in set(kept) else 0.0 for i in range(len(logits))": "for i in sorted(kept)"},
    ),
    Wrong(
        "powers_of_two",
        Promise.PROPORTIONAL,
        {"math.exp((one - best) / temperature)": "2 ** ((one - best) / temperature)"},
    ),
    Wrong(
        "multiplies_by_temperature",
        Promise.PROPORTIONAL,
        {"(one - best) / temperature": "(one - best) * temperature"},
    ),
    Wrong(
        "ignores_temperature", Promise.PROPORTIONAL, {"(one - best) / temperature": "one - best"}
    ),
    Wrong(
        "rounded",
        Promise.PROPORTIONAL,
        {"return [weights[i] / whole if": "return [round(weights[i] / whole, 3) if"},
    ),
    Wrong("percentages", Promise.SUMS_TO_1, {"return [weights": "return [100 * weights"}),
    Wrong(
        "forgets_to_share",
        Promise.SUMS_TO_1,
        {"whole = sum(weights[i] for i in kept)\n": "whole = sum(weights)\n"},
    ),
    Wrong("ignores_top_k", Promise.TOP_K, {KEPT: "order"}),
    Wrong(
        "drops_the_crossing_token",
        Promise.TOP_P,
        {ENOUGH: "if top_p < 1 and summed > top_p:", "kept[:count]": "kept[: max(1, count - 1)]"},
    ),
    Wrong(
        "cuts_before_the_temperature",
        Promise.TOP_P,
        {
            WHOLE: f"{PLAIN}\n    {WHOLE.replace('weights', 'plain')}",
            SUM: SUM.replace("weights", "plain"),
        },
    ),
    Wrong("top_p_of_everything", Promise.TOP_P, {WHOLE: "whole, summed = sum(weights), 0.0"}),
    Wrong("ignores_top_p", Promise.TOP_P, {ENOUGH: "if not top_p:"}),
    Wrong(
        "changes_the_logits",
        CommonPromise.UNCHANGED,
        {"    best =": "    logits.sort()\n    best ="},
    ),
    Wrong(
        "divides_by_zero_in_python",
        CommonPromise.ANSWERS,
        {"if temperature == 0:": "if temperature < 0:"},
    ),
]
