"""Lesson 02's exercise: right attentions are accepted and run in the engine."""

import numpy as np
import pytest

from checks import check
from checks.judging import judge
from checks.lesson_02 import attempt, cases
from engine import Engine, EngineConfig, SamplingParams
from engine.core.compute.paged_attention import PagedAttention
from solutions.lesson_02 import attend as solution
from tests.facts import assert_names

OWN = PagedAttention


def size(one):
    return sum(one.chunks)


def test_a_chunk_in_the_middle_of_a_text_is_named_by_its_positions() -> None:
    def top_left_in_chunks(q, k_new, v_new, k_cache, v_cache, *, start):
        mixed = solution(q, k_new, v_new, k_cache, v_cache, start=start)
        if len(q) < 3 or start < 5:
            return mixed
        return np.vstack([v_cache[:1], mixed[1:]])

    message = " ".join(str(judge(top_left_in_chunks, cases(), attempt)).split())
    assert_names(message, 5, 7, 1, 6)


def token_by_token(q, k_new, v_new, k_cache, v_cache, *, start):
    rows = []
    for i in range(len(q)):
        k_cache[start + i], v_cache[start + i] = k_new[i], v_new[i]
        scores = k_cache[: start + i + 1] @ q[i] / np.sqrt(q.shape[1])
        weights = np.exp(scores - scores.max())
        rows.append(weights / weights.sum() @ v_cache[: start + i + 1])
    return np.array(rows)


def by_concatenation(q, k_new, v_new, k_cache, v_cache, *, start):
    """Writes at the end; a large negative number hides, and no maximum is subtracted."""
    keys = np.concatenate([k_cache[:start], k_new])
    values = np.concatenate([v_cache[:start], v_new])
    scores = q @ keys.T * q.shape[1] ** -0.5
    weights = np.exp(np.where(np.tri(*scores.shape, start, dtype=bool), scores, -1e30))
    end = start + len(q)
    k_cache[start:end], v_cache[start:end] = k_new, v_new
    return (weights / weights.sum(1)[:, None]).dot(values)


@pytest.mark.parametrize("right", [solution, token_by_token, by_concatenation])
def test_every_right_attention_is_accepted_and_runs_in_the_engine(right) -> None:
    attention = check.lesson_02(right)
    assert attention.__name__ == "YourAttention"
    prompts = ["Once upon a time, a fox called Theo", "One day Mia", "Once upon a time, a cat"]
    answers = []
    for made in (PagedAttention, attention):
        # Prompts come in chunks beside decodes, out of order in memory, with blocks that are shared.
        config = EngineConfig(token_budget=8, block_size=4, max_kv_tokens=256)
        engine = Engine.load("bundled", config)
        engine.runner.attention = made
        params = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True, n=2)
        answers.append([one.token_ids for one in engine.complete(prompts, params, progress=False)])
    assert answers[0] == answers[1]


def test_the_engine_uses_the_learners_part() -> None:
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
