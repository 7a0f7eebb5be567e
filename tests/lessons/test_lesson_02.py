"""Lesson 02's exercise: right attentions are accepted and run in the engine."""

import numpy as np
import pytest

from checks import check
from checks.judging import Verdict, judge
from checks.lesson_02 import attempt, cases
from engine import Engine, EngineConfig, SamplingParams
from engine.compute.attention.paged_attention import PagedAttention
from solutions.lesson_02 import attend as solution
from tests.facts import assert_names
from tests.lessons.wrong.lesson_02 import mask_at_the_top_left, mix, written


def verdict(attend) -> Verdict:
    return judge(attend, cases(), attempt)


def test_a_chunk_in_the_middle_of_a_text_is_named_by_its_positions() -> None:
    def top_left_in_chunks(q, k_new, v_new, k_cache, v_cache, *, start):
        if len(q) < 3 or start < 5:
            return solution(q, k_new, v_new, k_cache, v_cache, start=start)
        return mask_at_the_top_left(q, k_new, v_new, k_cache, v_cache, start=start)

    message = " ".join(str(verdict(top_left_in_chunks)).split())
    assert_names(message, 5, 7, 1, 6)


def token_by_token(q, k_new, v_new, k_cache, v_cache, *, start):
    rows = []
    for i in range(len(q)):
        k_cache[start + i], v_cache[start + i] = k_new[i], v_new[i]
        end = start + i + 1
        rows.append(mix(q[i : i + 1] @ k_cache[:end].T / np.sqrt(q.shape[1]), v_cache[:end])[0])
    return np.array(rows)


def by_concatenation(q, k_new, v_new, k_cache, v_cache, *, start):
    keys = np.concatenate([k_cache[:start], k_new])
    values = np.concatenate([v_cache[:start], v_new])
    scores = q @ keys.T / np.sqrt(q.shape[1])
    mixed = mix(np.where(np.tri(*scores.shape, start, dtype=bool), scores, -1e30), values)
    written(k_new, v_new, k_cache, v_cache, start)
    return mixed


def with_einsum(q, k_new, v_new, k_cache, v_cache, *, start):
    n, d = q.shape
    k_cache[start : start + n], v_cache[start : start + n] = k_new, v_new
    scores = np.einsum("id,jd->ij", q, k_cache[: start + n]) / d**0.5
    scores += np.where(np.arange(start + n)[None] > start + np.arange(n)[:, None], -np.inf, 0)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("ij,jd->id", weights, v_cache[: start + n]) / weights.sum(-1)[:, None]


def the_lessons_attention_with_another_triu(q, k_new, v_new, k_cache, v_cache, *, start):
    end = written(k_new, v_new, k_cache, v_cache, start)
    scores = q @ k_cache[:end].T / np.sqrt(q.shape[1])
    scores[np.triu_indices(len(q), start + 1, end)] = -np.inf
    return mix(scores, v_cache[:end])


def loop_over_rows(q, k_new, v_new, k_cache, v_cache, *, start):
    n, d = q.shape
    for i in range(n):
        k_cache[start + i, :] = k_new[i, :]
        v_cache[start + i, :] = v_new[i, :]
    out = np.empty((n, d))
    for i in range(n):
        seen = start + i + 1
        s = np.array([np.dot(q[i], k_cache[j]) for j in range(seen)]) / np.sqrt(d)
        w = np.exp(s - max(s))
        w = w / sum(w)
        out[i] = sum(w[j] * v_cache[j] for j in range(seen))
    return out


def pads_and_calls_the_lessons_attention(q, k_new, v_new, k_cache, v_cache, *, start):
    """Queries of zeros for the old tokens; their rows are dropped."""
    end = start + q.shape[0]
    k_cache[start:end], v_cache[start:end] = k_new.copy(), v_new.copy()
    whole = np.vstack([np.zeros((start, q.shape[1])), q])
    scores = whole @ k_cache[:end].T / q.shape[1] ** 0.5
    scores[np.triu_indices(end, 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True) @ v_cache[:end])[start:]


def with_tril_and_a_bias(q, k_new, v_new, k_cache, v_cache, *, start):
    n = len(q)
    np.copyto(k_cache[start : start + n], k_new)
    np.copyto(v_cache[start : start + n], v_new)
    see = np.tril(np.ones((n, start + n)), k=start)
    w = np.exp((q @ k_cache[: start + n].T) * q.shape[1] ** -0.5) * see
    return (w / w.sum(1)[:, None]).dot(v_cache[: start + n])


RIGHT = [
    solution,
    token_by_token,
    by_concatenation,
    with_einsum,
    the_lessons_attention_with_another_triu,
    loop_over_rows,
    pads_and_calls_the_lessons_attention,
    with_tril_and_a_bias,
]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_attention_is_accepted_and_runs_in_the_engine(right, capsys) -> None:
    attention = check.lesson_02(right)
    assert f"{right.__name__}() keeps its promises in all" in capsys.readouterr().out
    assert attention.__name__ == "YourAttention"
    prompts = ["Once upon a time, a fox called Theo", "One day Mia", "Once upon a time, a cat"]
    answers = []
    for made in (PagedAttention, attention):
        # Prompts come in chunks beside decodes, out of order in memory, with blocks that are shared.
        config = EngineConfig(token_budget=8, block_size=4, max_kv_tokens=256)
        engine = Engine.load("bundled", config)
        engine.runner.attention = made
        params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True, n=2)
        answers.append([one.token_ids for one in engine.complete(prompts, params, progress=False)])
    assert answers[0] == answers[1]


def test_the_engine_uses_the_learners_part(capsys) -> None:
    asked = []

    def watching(q, k_new, v_new, k_cache, v_cache, *, start):
        asked.append((start, len(q)))
        return solution(q, k_new, v_new, k_cache, v_cache, start=start)

    attention = check.lesson_02(watching)
    asked.clear()  # calls of the check
    engine = Engine.load("bundled", EngineConfig())
    engine.runner.attention = attention
    engine.complete([[1, 2, 3, 4]], SamplingParams(max_tokens=3, ignore_eos=True), progress=False)
    # Each step, for every layer and head: the prompt, then one token after the other.
    each = len(asked) // 3
    assert asked == [(0, 4)] * each + [(4, 1)] * each + [(5, 1)] * each


def stub(q, k_new, v_new, k_cache, v_cache, *, start):
    """What the new tokens read."""
    ...


def later(q, k_new, v_new, k_cache, v_cache, *, start):
    raise NotImplementedError


@pytest.mark.parametrize("untouched", [stub, later])
def test_an_untouched_stub_counts_as_unwritten_and_the_engine_uses_its_own(
    untouched, capsys
) -> None:
    attention = check.lesson_02(untouched)
    assert "not written yet" in capsys.readouterr().out
    assert attention is PagedAttention


def test_cases_come_smallest_first() -> None:
    lengths = [sum(text.chunks) for text in cases()]
    assert lengths == sorted(lengths)
