"""Lesson 02: plausible wrong parts, the promises that they break, and facts of the messages."""

import numpy as np

from checks.broken import CommonPromise
from checks.lesson_02 import Promise
from solutions.lesson_02 import attend as solution


def mix(scores, values):
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ values


def hidden(scores, positions):
    scores[np.arange(scores.shape[1]) > positions[:, None]] = -np.inf
    return scores


def written(k_new, v_new, k_cache, v_cache, start):
    end = start + len(k_new)
    k_cache[start:end], v_cache[start:end] = k_new, v_new
    return end


def mask_at_the_top_left(q, k_new, v_new, k_cache, v_cache, *, start):
    end = written(k_new, v_new, k_cache, v_cache, start)
    return mix(hidden(q @ k_cache[:end].T / np.sqrt(q.shape[1]), np.arange(len(q))), v_cache[:end])


def attends_before_it_writes(q, k_new, v_new, k_cache, v_cache, *, start):
    scores = q @ k_cache[:start].T / np.sqrt(q.shape[1])
    weights = np.exp(scores)
    mixed = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9) @ v_cache[:start]
    written(k_new, v_new, k_cache, v_cache, start)
    return mixed


def writes_over_the_beginning(q, k_new, v_new, k_cache, v_cache, *, start):
    k_cache[: len(q)], v_cache[: len(q)] = k_new, v_new
    scores = q @ k_cache[: start + len(q)].T / np.sqrt(q.shape[1])
    return mix(hidden(scores, start + np.arange(len(q))), v_cache[: start + len(q)])


def no_mask(q, k_new, v_new, k_cache, v_cache, *, start):
    end = written(k_new, v_new, k_cache, v_cache, start)
    return mix(q @ k_cache[:end].T / np.sqrt(q.shape[1]), v_cache[:end])


def reads_every_slot(q, k_new, v_new, k_cache, v_cache, *, start):
    written(k_new, v_new, k_cache, v_cache, start)
    scores = q @ k_cache.T / np.sqrt(q.shape[1])
    return mix(hidden(scores, start + np.arange(len(q))), v_cache)


def keeps_nothing(q, k_new, v_new, k_cache, v_cache, *, start):
    keys = np.concatenate([k_cache[:start], k_new])
    values = np.concatenate([v_cache[:start], v_new])
    scores = q @ keys.T / np.sqrt(q.shape[1])
    return mix(hidden(scores, start + np.arange(len(q))), values)


def keeps_keys_only(q, k_new, v_new, k_cache, v_cache, *, start):
    before = v_cache.copy()
    mixed = solution(q, k_new, v_new, k_cache, v_cache, start=start)
    v_cache[:] = before
    return mixed


def keeps_values_as_keys(q, k_new, v_new, k_cache, v_cache, *, start):
    return solution(q, v_new, k_new, k_cache, v_cache, start=start)


def fills_what_is_behind(q, k_new, v_new, k_cache, v_cache, *, start):
    k_cache[start:], v_cache[start:] = 0, 0
    return solution(q, k_new, v_new, k_cache, v_cache, start=start)


def forgets_the_root(q, k_new, v_new, k_cache, v_cache, *, start):
    end = written(k_new, v_new, k_cache, v_cache, start)
    return mix(hidden(q @ k_cache[:end].T, start + np.arange(len(q))), v_cache[:end])


def sums_along_the_other_axis(q, k_new, v_new, k_cache, v_cache, *, start):
    end = written(k_new, v_new, k_cache, v_cache, start)
    scores = hidden(q @ k_cache[:end].T / np.sqrt(q.shape[1]), start + np.arange(len(q)))
    weights = np.exp(scores)
    return weights / weights.sum(axis=0) @ v_cache[:end]


def squares_the_values(q, k_new, v_new, k_cache, v_cache, *, start):
    mixed = solution(q, k_new, v_new, k_cache, v_cache, start=start)
    scores = q @ k_cache[: start + len(q)].T / np.sqrt(q.shape[1])
    return (
        mix(hidden(scores, start + np.arange(len(q))), v_cache[: start + len(q)] ** 2) + 0 * mixed
    )


def scales_the_queries_in_place(q, k_new, v_new, k_cache, v_cache, *, start):
    end = written(k_new, v_new, k_cache, v_cache, start)
    q /= np.sqrt(q.shape[1])
    return mix(hidden(q @ k_cache[:end].T, start + np.arange(len(q))), v_cache[:end])


def returns_the_last_row(q, k_new, v_new, k_cache, v_cache, *, start):
    return solution(q, k_new, v_new, k_cache, v_cache, start=start)[-1]


def returns_lists(q, k_new, v_new, k_cache, v_cache, *, start):
    return solution(q, k_new, v_new, k_cache, v_cache, start=start).tolist()


def one_at_a_time_without_an_end(q, k_new, v_new, k_cache, v_cache, *, start):
    while start < len(k_cache) + 1:
        k_cache[start % len(k_cache)] = k_cache[0]


def does_not_see_itself(q, k_new, v_new, k_cache, v_cache, *, start):
    end = written(k_new, v_new, k_cache, v_cache, start)
    scores = hidden(q @ k_cache[:end].T / np.sqrt(q.shape[1]), start + np.arange(len(q)) - 1)
    with np.errstate(all="ignore"):
        return mix(scores, v_cache[:end])


def writes_at_the_end_of_the_cache(q, k_new, v_new, k_cache, v_cache, *, start):
    k_cache[-len(q) :], v_cache[-len(q) :] = k_new, v_new
    return v_new


def divides_by_the_tokens(q, k_new, v_new, k_cache, v_cache, *, start):
    end = written(k_new, v_new, k_cache, v_cache, start)
    return mix(
        hidden(q @ k_cache[:end].T / np.sqrt(len(q)), start + np.arange(len(q))), v_cache[:end]
    )


def sees_its_own_chunk_only(q, k_new, v_new, k_cache, v_cache, *, start):
    written(k_new, v_new, k_cache, v_cache, start)
    return mix(hidden(q @ k_new.T / np.sqrt(q.shape[1]), np.arange(len(q))), v_new)


def zero_instead_of_minus_infinity(q, k_new, v_new, k_cache, v_cache, *, start):
    end = written(k_new, v_new, k_cache, v_cache, start)
    scores = hidden(q @ k_cache[:end].T / np.sqrt(q.shape[1]), start + np.arange(len(q)))
    return mix(np.where(np.isinf(scores), 0, scores), v_cache[:end])


def adds_to_the_cache(q, k_new, v_new, k_cache, v_cache, *, start):
    end = start + len(q)
    k_cache[start:end] += k_new
    v_cache[start:end] += v_new
    scores = hidden(q @ k_cache[:end].T / np.sqrt(q.shape[1]), start + np.arange(len(q)))
    return mix(scores, v_cache[:end])


def copied_with_triu_of_one(q, k_new, v_new, k_cache, v_cache, *, start):
    n = len(q)
    k_cache[start : start + n] = k_new
    v_cache[start : start + n] = v_new
    k, v = k_cache[: start + n], v_cache[: start + n]
    scores = q @ k.T / np.sqrt(q.shape[1])
    scores[np.triu_indices(n, 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v


def triu_shifted_one_too_far(q, k_new, v_new, k_cache, v_cache, *, start):
    n = len(q)
    k_cache[start : start + n] = k_new
    v_cache[start : start + n] = v_new
    scores = q @ k_cache[: start + n].T / np.sqrt(q.shape[1])
    scores[np.triu_indices(n, start + 2, start + n)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v_cache[: start + n]


def triu_shifted_one_too_few(q, k_new, v_new, k_cache, v_cache, *, start):
    n = len(q)
    k_cache[start : start + n] = k_new
    v_cache[start : start + n] = v_new
    scores = q @ k_cache[: start + n].T / np.sqrt(q.shape[1])
    scores[np.triu_indices(n, start, start + n)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v_cache[: start + n]


def triu_without_its_width(q, k_new, v_new, k_cache, v_cache, *, start):
    n = len(q)
    k_cache[start : start + n] = k_new
    v_cache[start : start + n] = v_new
    scores = q @ k_cache[: start + n].T / np.sqrt(q.shape[1])
    scores[np.triu_indices(n, start + 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v_cache[: start + n]


def rebinds_the_caches(q, k_new, v_new, k_cache, v_cache, *, start):
    k_cache = np.concatenate([k_cache[:start], k_new])
    v_cache = np.concatenate([v_cache[:start], v_new])
    scores = q @ k_cache.T / np.sqrt(q.shape[1])
    for i in range(len(q)):
        scores[i, start + i + 1 :] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v_cache


def writes_the_first_only(q, k_new, v_new, k_cache, v_cache, *, start):
    k_cache[start] = k_new[0]
    v_cache[start] = v_new[0]
    end = start + len(q)
    scores = q @ k_cache[:end].T / np.sqrt(q.shape[1])
    for i in range(len(q)):
        scores[i, start + i + 1 :] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v_cache[:end]


def writes_one_slot_too_far(q, k_new, v_new, k_cache, v_cache, *, start):
    end = start + 1 + len(q)
    k_cache[start + 1 : end] = k_new
    v_cache[start + 1 : end] = v_new
    scores = q @ k_cache[:end].T / np.sqrt(q.shape[1])
    for i in range(len(q)):
        scores[i, start + i + 2 :] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v_cache[:end]


def reads_up_to_start_after_writing(q, k_new, v_new, k_cache, v_cache, *, start):
    k_cache[start : start + len(q)] = k_new
    v_cache[start : start + len(q)] = v_new
    if start == 0:
        return v_new
    scores = q @ k_cache[:start].T / np.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v_cache[:start]


def masks_after_the_softmax(q, k_new, v_new, k_cache, v_cache, *, start):
    end = start + len(q)
    k_cache[start:end] = k_new
    v_cache[start:end] = v_new
    scores = q @ k_cache[:end].T / np.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    for i in range(len(q)):
        weights[i, start + i + 1 :] = 0
    return weights @ v_cache[:end]


def softmax_over_everything(q, k_new, v_new, k_cache, v_cache, *, start):
    end = start + len(q)
    k_cache[start:end] = k_new
    v_cache[start:end] = v_new
    scores = q @ k_cache[:end].T / np.sqrt(q.shape[1])
    for i in range(len(q)):
        scores[i, start + i + 1 :] = -np.inf
    weights = np.exp(scores - scores.max())
    return weights / weights.sum() @ v_cache[:end]


def forgets_the_softmax(q, k_new, v_new, k_cache, v_cache, *, start):
    end = start + len(q)
    k_cache[start:end] = k_new
    v_cache[start:end] = v_new
    scores = q @ k_cache[:end].T / np.sqrt(q.shape[1])
    for i in range(len(q)):
        scores[i, start + i + 1 :] = 0
    return scores @ v_cache[:end]


def returns_early_in_the_loop(q, k_new, v_new, k_cache, v_cache, *, start):
    out = np.zeros_like(q)
    for i in range(len(q)):
        k_cache[start + i] = k_new[i]
        v_cache[start + i] = v_new[i]
        scores = k_cache[: start + i + 1] @ q[i] / np.sqrt(len(q[i]))
        weights = np.exp(scores - scores.max())
        out[i] = weights / weights.sum() @ v_cache[: start + i + 1]
        return out
    return None


def writes_every_token_at_start(q, k_new, v_new, k_cache, v_cache, *, start):
    out = np.zeros_like(q)
    for i in range(len(q)):
        k_cache[start] = k_new[i]
        v_cache[start] = v_new[i]
        scores = k_cache[: start + 1] @ q[i] / np.sqrt(q.shape[1])
        weights = np.exp(scores - scores.max())
        out[i] = weights / weights.sum() @ v_cache[: start + 1]
    return out


def drops_what_is_nan(q, k_new, v_new, k_cache, v_cache, *, start):
    """All slots, and nan becomes 0: an unwritten slot gets a weight."""
    k_cache[start : start + len(q)] = k_new
    v_cache[start : start + len(q)] = v_new
    scores = q @ np.nan_to_num(k_cache).T / np.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ np.nan_to_num(v_cache)


def the_whole_text_again(q, k_new, v_new, k_cache, v_cache, *, start):
    """Returns a row for each token of the text, not of the chunk."""
    end = start + len(q)
    k_cache[start:end] = k_new
    v_cache[start:end] = v_new
    k, v = k_cache[:end], v_cache[:end]
    scores = k @ k.T / np.sqrt(q.shape[1])
    scores[np.triu_indices(end, 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v


def mixes_keys(q, k_new, v_new, k_cache, v_cache, *, start):
    end = start + len(q)
    k_cache[start:end] = k_new
    v_cache[start:end] = v_new
    scores = q @ k_cache[:end].T / np.sqrt(q.shape[1])
    for i in range(len(q)):
        scores[i, start + i + 1 :] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ k_cache[:end]


def compares_keys_with_queries(q, k_new, v_new, k_cache, v_cache, *, start):
    end = start + len(q)
    k_cache[start:end] = k_new
    v_cache[start:end] = v_new
    scores = k_cache[:end] @ q.T / np.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v_cache[:end]


WRONG = [
    (mask_at_the_top_left, Promise.CAUSAL, [2, 1]),
    (attends_before_it_writes, Promise.CAUSAL, [1, 0]),
    (writes_over_the_beginning, Promise.WRITTEN_ONCE, [0, "k_cache", 1]),
    (no_mask, Promise.CAUSAL, [2, 0, 1]),
    (reads_every_slot, Promise.CAUSAL, [0]),
    (keeps_nothing, Promise.KEPT, [0, "k_cache", "A"]),
    (keeps_keys_only, Promise.KEPT, [0, "v_cache"]),
    (keeps_values_as_keys, Promise.KEPT, [0, "k_cache", "k_new"]),
    (fills_what_is_behind, Promise.WRITTEN_ONCE, [1, "k_cache"]),
    (forgets_the_root, Promise.AS_A_WHOLE, [1]),
    (sums_along_the_other_axis, Promise.WEIGHTS, [0]),
    (squares_the_values, Promise.AS_A_WHOLE, [0]),
    (scales_the_queries_in_place, Promise.UNCHANGED, []),
    (returns_the_last_row, Promise.ARRAY, [8, 1]),
    (returns_lists, Promise.ARRAY, [1, 8]),
    (one_at_a_time_without_an_end, CommonPromise.ENDS, ["100,000"]),
    (does_not_see_itself, Promise.CAUSAL, [0]),
    (writes_at_the_end_of_the_cache, Promise.KEPT, [0, "k_cache"]),
    (divides_by_the_tokens, Promise.AS_A_WHOLE, [1]),
    (sees_its_own_chunk_only, Promise.CAUSAL, [1]),
    (zero_instead_of_minus_infinity, Promise.CAUSAL, [0, 1]),
    (adds_to_the_cache, Promise.KEPT, [0, "k_cache"]),
    (copied_with_triu_of_one, Promise.CAUSAL, []),
    (triu_shifted_one_too_far, Promise.CAUSAL, []),
    (triu_shifted_one_too_few, Promise.CAUSAL, []),
    (triu_without_its_width, Promise.CAUSAL, []),
    (rebinds_the_caches, Promise.KEPT, []),
    (writes_the_first_only, Promise.KEPT, []),
    (writes_one_slot_too_far, Promise.KEPT, []),
    (reads_up_to_start_after_writing, Promise.CAUSAL, []),
    (masks_after_the_softmax, Promise.WEIGHTS, []),
    (softmax_over_everything, Promise.WEIGHTS, []),
    (forgets_the_softmax, Promise.WEIGHTS, [0, "-0.165"]),
    (returns_early_in_the_loop, Promise.KEPT, []),
    (writes_every_token_at_start, Promise.KEPT, []),
    (drops_what_is_nan, Promise.WEIGHTS, []),
    (the_whole_text_again, Promise.AS_A_WHOLE, []),
    (mixes_keys, Promise.AS_A_WHOLE, [0, "1.00"]),
    (compares_keys_with_queries, Promise.CAUSAL, []),
]
