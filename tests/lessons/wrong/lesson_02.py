"""Lesson 02: plausible wrong parts and the promises that they break."""

from checks.lesson_02 import Promise
from tests.lessons.wrong import Wrong

KEYS, VALUES = "k_cache[start:end] = k_new", "v_cache[start:end] = v_new"
ROOT = " / np.sqrt(q.shape[1])"
SOFTMAX = "np.exp(scores - scores.max(axis=1, keepdims=True))"
WRONG = [
    Wrong("mask_at_the_top_left", Promise.CAUSAL, {"np.arange(start, end)[": "np.arange(len(q))["}),
    Wrong("no_mask", Promise.CAUSAL, {"> positions": "> end + positions"}),
    Wrong(
        "reads_every_slot",
        Promise.CAUSAL,
        {
            "k_cache[:end].T": "k_cache.T",
            "np.arange(end)": "np.arange(len(k_cache))",
            "@ v_cache[:end]": "@ v_cache",
        },
    ),
    Wrong(
        "sees_its_own_chunk_only",
        Promise.CAUSAL,
        {
            "k_cache[:end].T": "k_new.T",
            "np.arange(end)": "np.arange(start, end)",
            "@ v_cache[:end]": "@ v_new",
        },
    ),
    Wrong(
        "rebinds_the_caches",
        Promise.KEPT,
        {
            KEYS: "k_cache = np.vstack([k_cache[:start], k_new])",
            VALUES: "v_cache = np.vstack([v_cache[:start], v_new])",
        },
    ),
    Wrong(
        "keeps_keys_only", Promise.KEPT, {VALUES: "v_cache = np.vstack([v_cache[:start], v_new])"}
    ),
    Wrong("keeps_values_as_keys", Promise.KEPT, {"= k_new": "= v_new"}),
    Wrong("writes_over_the_beginning", Promise.WRITTEN_ONCE, {KEYS: "k_cache[: len(q)] = k_new"}),
    Wrong("fills_what_is_behind", Promise.WRITTEN_ONCE, {KEYS: f"k_cache[start:] = 0\n    {KEYS}"}),
    Wrong("forgets_the_root", Promise.AS_A_WHOLE, {ROOT: ""}),
    Wrong("squares_the_values", Promise.AS_A_WHOLE, {"@ v_cache[:end]": "@ v_cache[:end] ** 2"}),
    Wrong("mixes_keys", Promise.AS_A_WHOLE, {"@ v_cache[:end]": "@ k_cache[:end]"}),
    Wrong(
        "sums_along_the_other_axis",
        Promise.WEIGHTS,
        {"weights.sum(axis=1, keepdims=True)": "weights.sum(axis=0)"},
    ),
    Wrong(
        "forgets_the_softmax",
        Promise.WEIGHTS,
        {
            SOFTMAX: "np.where(np.isinf(scores), 0, scores)",
            "weights / weights.sum(axis=1, keepdims=True)": "weights",
        },
    ),
    Wrong(
        "scales_the_queries_in_place",
        Promise.UNCHANGED,
        {f"    scores = q @ k_cache[:end].T{ROOT}": "    q /= 2\n    scores = q @ k_cache[:end].T"},
    ),
    Wrong("returns_the_last_row", Promise.ARRAY, {"return mixed": "return mixed[-1]"}),
    Wrong("returns_lists", Promise.ARRAY, {"return mixed": "return mixed.tolist()"}),
]
