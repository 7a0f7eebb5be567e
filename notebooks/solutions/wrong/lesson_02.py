"""Lesson 02: plausible wrong parts and the promises that they break."""

from checks.lesson_02 import Promise

KEYS, VALUES = "k_cache[start:end] = k_new", "v_cache[start:end] = v_new"
ROOT = " / np.sqrt(q.shape[1])"
SOFTMAX = "np.exp(scores - scores.max(axis=1, keepdims=True))"

WRONG = {
    Promise.CAUSAL: {
        "mask_at_the_top_left": {"np.arange(start, end)[": "np.arange(len(q))["},
        "no_mask": {"> positions": "> end + positions"},
        "reads_every_slot": {
            "k_cache[:end].T": "k_cache.T",
            "np.arange(end)": "np.arange(len(k_cache))",
            "@ v_cache[:end]": "@ v_cache",
        },
    },
    Promise.KEPT: {
        "keeps_keys_only": {VALUES: "v_cache = np.vstack([v_cache[:start], v_new])"},
        "keeps_values_as_keys": {"= k_new": "= v_new"},
    },
    Promise.WRITTEN_ONCE: {
        "writes_over_the_beginning": {KEYS: "k_cache[: len(q)] = k_new"},
        "fills_what_is_behind": {KEYS: f"k_cache[start:] = 0\n    {KEYS}"},
    },
    Promise.AS_A_WHOLE: {
        "forgets_the_root": {ROOT: ""},
        "squares_the_values": {"@ v_cache[:end]": "@ v_cache[:end] ** 2"},
        "mixes_keys": {"@ v_cache[:end]": "@ k_cache[:end]"},
    },
    Promise.WEIGHTS: {
        "sums_along_the_other_axis": {"weights.sum(axis=1, keepdims=True)": "weights.sum(axis=0)"},
        "forgets_the_softmax": {
            SOFTMAX: "np.where(np.isinf(scores), 0, scores)",
            "weights / weights.sum(axis=1, keepdims=True)": "weights",
        },
    },
    Promise.UNCHANGED: {
        "scales_the_queries_in_place": {
            f"    scores = q @ k_cache[:end].T{ROOT}": "    q /= 2\n    scores = q @ k_cache[:end].T"
        }
    },
    Promise.ARRAY: {
        "returns_lists": {"return mixed": "return mixed.tolist()"},
    },
}
