"""Lesson 01: plausible wrong parts, the promises that they break, and facts of the messages."""

import math

import numpy as np

from checks.broken import CommonPromise
from checks.lesson_01 import Promise
from solutions.lesson_01 import distribution as solution


def softmax(logits, temperature):
    weights = [math.exp((one - max(logits)) / temperature) for one in logits]
    return [one / sum(weights) for one in weights]


def cut(logits, temperature, top_k, top_p, *, until=lambda summed, p: summed >= p, share=True):
    """The lesson's rule with two screws to turn it wrong."""
    if temperature == 0:
        return solution(logits, 0, 0, 1)
    shares = softmax(logits, temperature)
    order = sorted(range(len(logits)), key=lambda i: -shares[i])[: top_k or None]
    whole, summed, kept = sum(shares[i] for i in order), 0.0, []
    for i in order:
        if kept and until(summed + shares[i] / whole, top_p) is None:
            break
        kept.append(i)
        summed += shares[i] / whole
        if until(summed, top_p):
            break
    whole = sum(shares[i] for i in kept) if share else 1
    return [shares[i] / whole if i in kept else 0.0 for i in range(len(logits))]


def drops_the_crossing_token(logits, temperature, top_k, top_p):
    def until(summed, p):
        return None if summed > p + 1e-9 else False

    return cut(logits, temperature, top_k, top_p, until=until)


def stops_before_crossing(logits, temperature, top_k, top_p):
    """The classic error. It also loses a token where three rounded shares sum to more than 1."""
    if temperature == 0:
        return solution(logits, 0, 0, 1)
    shares = softmax(logits, temperature)
    order = sorted(range(len(logits)), key=lambda i: -shares[i])[: top_k or None]
    whole, summed, kept = sum(shares[i] for i in order), 0.0, []
    for i in order:
        if kept and summed + shares[i] / whole > top_p:
            break
        kept.append(i)
        summed += shares[i] / whole
    whole = sum(shares[i] for i in kept)
    return [shares[i] / whole if i in kept else 0.0 for i in range(len(logits))]


def loses_a_token_to_rounding(logits, temperature, top_k, top_p):
    wrong = stops_before_crossing(logits, temperature, top_k, top_p)
    return wrong if top_p == 1 else solution(logits, temperature, top_k, top_p)


def cuts_before_the_temperature(logits, temperature, top_k, top_p):
    if temperature == 0:
        return solution(logits, 0, 0, 1)
    kept = [share > 0 for share in solution(logits, 1.0, top_k, top_p)]
    shares = [
        share * is_kept for share, is_kept in zip(softmax(logits, temperature), kept, strict=True)
    ]
    return [one / sum(shares) for one in shares]


def zero_gives_1_to_all_that_tie(logits, temperature, top_k, top_p):
    if temperature == 0:
        return [float(one == max(logits)) for one in logits]
    return solution(logits, temperature, top_k, top_p)


def keeps_nobody_where_the_first_crosses(logits, temperature, top_k, top_p):
    shares = solution(logits, temperature, top_k, top_p)
    return [0.0] * len(logits) if 1 in shares and temperature > 0 and top_p < 1 else shares


def forgets_to_share(logits, temperature, top_k, top_p):
    return cut(logits, temperature, top_k, top_p, share=False)


def divides_by_zero(logits, temperature, top_k, top_p):
    with np.errstate(all="ignore"):
        if temperature == 0:
            weights = np.exp((np.array(logits) - max(logits)) / np.float64(0))
            return (weights / weights.sum()).tolist()
    return solution(logits, temperature, top_k, top_p)


def divides_by_zero_in_python(logits, temperature, top_k, top_p):
    [one / temperature for one in logits]
    return solution(logits, temperature, top_k, top_p)


def top_p_first(logits, temperature, top_k, top_p):
    kept = solution(logits, temperature, 0, top_p)
    allowed = solution(logits, temperature, top_k, 1.0)
    both = [one if other > 0 else 0.0 for one, other in zip(kept, allowed, strict=True)]
    return [one / sum(both) for one in both]


def ignores_top_k(logits, temperature, top_k, top_p):
    return solution(logits, temperature, 0, top_p)


def zero_k_keeps_none(logits, temperature, top_k, top_p):
    return solution(logits, temperature, top_k or 1, top_p)


def ignores_temperature(logits, temperature, top_k, top_p):
    return solution(logits, temperature and 1.0, top_k, top_p)


def multiplies_by_temperature(logits, temperature, top_k, top_p):
    return solution(logits, temperature and 1 / temperature, top_k, top_p)


def sorted_answer(logits, temperature, top_k, top_p):
    return sorted(solution(logits, temperature, top_k, top_p), reverse=True)


def cut_at_a_probability(logits, temperature, top_k, top_p):
    shares = solution(logits, temperature, top_k, 1.0)
    kept = [one if one >= min(1 - top_p, max(shares)) - 1e-12 else 0.0 for one in shares]
    return [one / sum(kept) for one in kept]


def only_the_kept(logits, temperature, top_k, top_p):
    return [one for one in solution(logits, temperature, top_k, top_p) if one > 0]


def proportional_to_logits(logits, temperature, top_k, top_p):
    least = min(logits) - 1
    shares = [one - least for one in logits]
    return solution([math.log(one) for one in shares], temperature, top_k, top_p)


def zero_is_uniform(logits, temperature, top_k, top_p):
    if temperature == 0:
        return [1 / len(logits)] * len(logits)
    return solution(logits, temperature, top_k, top_p)


def top_p_of_everything(logits, temperature, top_k, top_p):
    """The sum for top-p runs over all probabilities, not over what top-k left."""
    if temperature == 0:
        return solution(logits, 0, 0, 1)
    shares = softmax(logits, temperature)
    order = sorted(range(len(logits)), key=lambda i: -shares[i])[: top_k or None]
    summed, kept = 0.0, []
    for i in order:
        kept.append(i)
        summed += shares[i]
        if summed >= top_p - 1e-12:
            break
    whole = sum(shares[i] for i in kept)
    return [shares[i] / whole if i in kept else 0.0 for i in range(len(logits))]


def first_k_tokens(logits, temperature, top_k, top_p):
    if temperature == 0 or not top_k:
        return solution(logits, temperature, 0, top_p)
    shares = solution(logits[:top_k], temperature, 0, top_p)
    return [*shares, *[0.0] * (len(logits) - len(shares))]


def argmax_at_zero(logits, temperature, top_k, top_p):
    if temperature == 0:
        return logits.index(max(logits))
    return solution(logits, temperature, top_k, top_p)


def percentages(logits, temperature, top_k, top_p):
    return [100 * one for one in solution(logits, temperature, top_k, top_p)]


def log_probabilities(logits, temperature, top_k, top_p):
    shares = solution(logits, temperature, top_k, top_p)
    return [math.log(one) if one else -math.inf for one in shares]


def plain(logits, temperature, top_k, top_p):
    if temperature == 0:
        return [1.0 if i == logits.index(max(logits)) else 0.0 for i in range(len(logits))]
    w = [math.exp((x - max(logits)) / temperature) for x in logits]
    order = sorted(range(len(w)), key=lambda i: -w[i])[: top_k or len(w)]
    whole, kept, total = sum(w[i] for i in order), [], 0
    for i in order:
        kept.append(i)
        total += w[i] / whole
        if total >= top_p:
            break
    whole = sum(w[i] for i in kept)
    return [w[i] / whole if i in kept else 0 for i in range(len(w))]


def changes_the_logits(logits, temperature, top_k, top_p):
    if temperature == 0:
        return [1.0 if i == logits.index(max(logits)) else 0.0 for i in range(len(logits))]
    for i in range(len(logits)):
        logits[i] = logits[i] / temperature
    shares = [math.exp(x - max(logits)) for x in logits]
    order = sorted(range(len(shares)), key=lambda i: -shares[i])[: top_k or len(shares)]
    whole, kept, total = sum(shares[i] for i in order), [], 0
    for i in order:
        kept.append(i)
        total += shares[i] / whole
        if total >= top_p:
            break
    whole = sum(shares[i] for i in kept)
    return [shares[i] / whole if i in kept else 0 for i in range(len(shares))]


def order_of_the_vocabulary(logits, temperature, top_k, top_p):
    """Adds the probabilities up in the list's order, not from the likeliest on."""
    if temperature == 0:
        return [1.0 if i == logits.index(max(logits)) else 0.0 for i in range(len(logits))]
    shares = [math.exp((x - max(logits)) / temperature) for x in logits]
    shares = [x / sum(shares) for x in shares]
    if top_k:
        border = sorted(shares)[-min(top_k, len(shares))]
        shares = [x if x >= border else 0.0 for x in shares]
        shares = [x / sum(shares) for x in shares]
    total, result = 0.0, []
    for x in shares:
        result.append(x if total < top_p else 0.0)
        total += x
    return [x / sum(result) for x in result]


def temperature_after_the_softmax(logits, temperature, top_k, top_p):
    if temperature == 0:
        return [1.0 if i == logits.index(max(logits)) else 0.0 for i in range(len(logits))]
    e = [math.exp(x - max(logits)) for x in logits]
    p = [x / sum(e) / temperature for x in e]
    order = sorted(range(len(p)), key=lambda i: -p[i])[: top_k or len(p)]
    whole, kept, total = sum(p[i] for i in order), [], 0
    for i in order:
        kept.append(i)
        total += p[i] / whole
        if total >= top_p:
            break
    whole = sum(p[i] for i in kept)
    return [p[i] / whole if i in kept else 0 for i in range(len(p))]


def ignores_top_p(logits, temperature, top_k, top_p):
    if temperature == 0:
        return [1.0 if i == logits.index(max(logits)) else 0.0 for i in range(len(logits))]
    w = [math.exp((x - max(logits)) / temperature) for x in logits]
    order = sorted(range(len(w)), key=lambda i: -w[i])[: top_k or len(w)]
    whole = sum(w[i] for i in order)
    return [w[i] / whole if i in order else 0.0 for i in range(len(w))]


def zero_temperature_returns_the_index(logits, temperature, top_k, top_p):
    if temperature == 0:
        return logits.index(max(logits))
    return plain(logits, temperature, top_k, top_p)


def the_least_likely_k(logits, temperature, top_k, top_p):
    if temperature == 0:
        return [1.0 if i == logits.index(max(logits)) else 0.0 for i in range(len(logits))]
    w = [math.exp((x - max(logits)) / temperature) for x in logits]
    order = sorted(range(len(w)), key=lambda i: w[i])
    if top_k:
        order = order[:top_k]
    whole, kept, total = sum(w[i] for i in order), [], 0
    for i in order:
        kept.append(i)
        total += w[i] / whole
        if total >= top_p:
            break
    whole = sum(w[i] for i in kept)
    return [w[i] / whole if i in kept else 0 for i in range(len(w))]


def one_more_than_k(logits, temperature, top_k, top_p):
    return plain(logits, temperature, top_k + 1 if top_k else 0, top_p)


def powers_of_two(logits, temperature, top_k, top_p):
    if temperature == 0:
        return [1.0 if i == logits.index(max(logits)) else 0.0 for i in range(len(logits))]
    w = [2 ** ((x - max(logits)) / temperature) for x in logits]
    order = sorted(range(len(w)), key=lambda i: -w[i])[: top_k or len(w)]
    whole, kept, total = sum(w[i] for i in order), [], 0
    for i in order:
        kept.append(i)
        total += w[i] / whole
        if total >= top_p:
            break
    whole = sum(w[i] for i in kept)
    return [w[i] / whole if i in kept else 0 for i in range(len(w))]


def rounded(logits, temperature, top_k, top_p):
    return [round(x, 3) for x in plain(logits, temperature, top_k, top_p)]


def returns_pairs(logits, temperature, top_k, top_p):
    return list(enumerate(plain(logits, temperature, top_k, top_p)))


def zero_k_is_one(logits, temperature, top_k, top_p):
    return plain(logits, temperature, max(top_k, 1), top_p)


def top_p_one_means_off_and_zero_too(logits, temperature, top_k, top_p):
    """Takes a small p for 'off'."""
    if top_p < 0.1:
        top_p = 1
    return plain(logits, temperature, top_k, top_p)


def top_k_out_of_range(logits, temperature, top_k, top_p):
    ranked = sorted(logits, reverse=True)
    if top_k:
        border = ranked[top_k]
        logits = [x if x > border else -math.inf for x in logits]
    return plain(logits, temperature, 0, top_p)


def forgets_the_second_division(logits, temperature, top_k, top_p):
    """Top-p measures with the probabilities of all tokens, and divides by what is left."""
    if temperature == 0:
        return [1.0 if i == logits.index(max(logits)) else 0.0 for i in range(len(logits))]
    w = [math.exp((x - max(logits)) / temperature) for x in logits]
    whole = sum(w)
    p = [x / whole for x in w]
    order = sorted(range(len(p)), key=lambda i: -p[i])[: top_k or len(p)]
    kept, total = [], 0
    for i in order:
        kept.append(i)
        total += p[i]
        if total >= top_p:
            break
    return [p[i] if i in kept else 0.0 for i in range(len(p))]


def removes_while_iterating(logits, temperature, top_k, top_p):
    p = plain(logits, temperature, top_k, 1)
    order = sorted(range(len(p)), key=lambda i: p[i])
    rest = 1.0
    for i in order:  # from the least likely: drop while enough is left
        if rest - p[i] < top_p:
            break
        rest -= p[i]
        p[i] = 0.0
    return p


WRONG = [
    (drops_the_crossing_token, Promise.TOP_P, [1, "0.731", "0.9"]),
    (stops_before_crossing, Promise.TOP_P, [1, "0.731", "0.9"]),
    (loses_a_token_to_rounding, Promise.CUT_WHEN_ASKED, [2, 3]),
    (cuts_before_the_temperature, Promise.TOP_P, [2]),
    (zero_gives_1_to_all_that_tie, Promise.GREEDY, ["1.000"]),
    (keeps_nobody_where_the_first_crosses, Promise.KEEPS_ONE, []),
    (forgets_to_share, Promise.SUMS_TO_1, [1]),
    (divides_by_zero, Promise.NUMBERS, [0]),
    (divides_by_zero_in_python, CommonPromise.ANSWERS, ["ZeroDivisionError"]),
    (top_p_first, Promise.TOP_P, []),
    (ignores_top_k, Promise.TOP_K, [2, "top_k", 1]),
    (zero_k_keeps_none, Promise.CUT_WHEN_ASKED, ["top_k", 0]),
    (ignores_temperature, Promise.PROPORTIONAL, [1]),
    (multiplies_by_temperature, Promise.PROPORTIONAL, []),
    (sorted_answer, Promise.PROPORTIONAL, []),
    (cut_at_a_probability, Promise.TOP_P, []),
    (only_the_kept, Promise.ONE_PER_TOKEN, [1, 2]),
    (proportional_to_logits, Promise.PROPORTIONAL, []),
    (zero_is_uniform, Promise.GREEDY, [0]),
    (top_p_of_everything, Promise.TOP_P, []),
    (first_k_tokens, Promise.LIKELIEST_FIRST, []),
    (argmax_at_zero, Promise.IS_LIST, []),
    (percentages, Promise.SUMS_TO_1, ["100.000"]),
    (log_probabilities, Promise.KEEPS_ONE, ["0.000"]),
    (changes_the_logits, CommonPromise.UNCHANGED, []),
    (order_of_the_vocabulary, Promise.TOP_P, []),
    (temperature_after_the_softmax, Promise.PROPORTIONAL, []),
    (ignores_top_p, Promise.TOP_P, []),
    (zero_temperature_returns_the_index, Promise.IS_LIST, []),
    (the_least_likely_k, Promise.LIKELIEST_FIRST, []),
    (one_more_than_k, Promise.TOP_K, []),
    (powers_of_two, Promise.PROPORTIONAL, []),
    (rounded, Promise.PROPORTIONAL, ["round"]),
    (returns_pairs, Promise.IS_LIST, []),
    (zero_k_is_one, Promise.CUT_WHEN_ASKED, []),
    (top_p_one_means_off_and_zero_too, Promise.TOP_P, []),
    (top_k_out_of_range, CommonPromise.ANSWERS, []),
    (forgets_the_second_division, Promise.SUMS_TO_1, []),
    (removes_while_iterating, Promise.SUMS_TO_1, []),
]
