"""Lesson 02's exercise: wrong attention is refused helpfully, right ones run in the engine."""

import numpy as np
import pytest

from checks import check
from checks.judging import Verdict, judge
from checks.lesson_02 import attempt, cases
from engine import Engine, EngineConfig, SamplingParams
from engine.compute.attention.paged_attention import PagedAttention
from solutions.lesson_02 import attend as solution


def verdict(attend) -> Verdict:
    return judge(attend, cases(), attempt)


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


# Wrong


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


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            mask_at_the_top_left,
            [
                "2 tokens in chunks: 1, then 1.",
                "Token 1 came, with start = 1. Token 1 saw 1 position, should see 2.",
                "a token sees itself and what came before it, and nothing else",
                "It did not see itself.",
            ],
        ),
        (
            attends_before_it_writes,
            ["1 token at once", "Token 0 saw 0 positions, should see 1.", "It did not see itself."],
        ),
        (
            writes_over_the_beginning,
            [
                "Position 0 of k_cache was written twice.",
                "each position is written once, by its own token",
                "1 slot was filled before. Where does the first new key go?",
            ],
        ),
        (no_mask, ["2 tokens at once", "Token 0 saw position 1.", "Position 1 comes later."]),
        (reads_every_slot, ["Token 0 read nan.", "Slots that nobody has written hold nan"]),
        (keeps_nothing, ["Nobody wrote position 0 of k_cache.", "A later token will look for"]),
        (keeps_keys_only, ["Nobody wrote position 0 of v_cache.", "the value of token 0"]),
        (
            keeps_values_as_keys,
            ["Position 0 of k_cache holds something else than its key.", "Which row of k_new"],
        ),
        (fills_what_is_behind, ["You wrote into position 1 of k_cache.", "has not come yet"]),
        (forgets_the_root, ["The weights of token 1 are [", "How are scores made"]),
        (sums_along_the_other_axis, ["The weights of token 0 add up to", "along which axis"]),
        (squares_the_values, ["Token 0 read [", "Which values are mixed?"]),
        (scales_the_queries_in_place, ["You changed q."]),
        (returns_the_last_row, ["an array of shape (8,)", "numpy array of shape (1, 8)."]),
        (returns_lists, ["the answer is an array", "numpy array of shape (1, 8)."]),
        (one_at_a_time_without_an_end, ["still running after 100,000 lines"]),
    ],
)
def test_a_wrong_attention_is_refused_with_the_case_and_the_promise(wrong, said: list[str]) -> None:
    found = verdict(wrong)
    assert not found.passed
    message = " ".join(str(found).split())
    for words in said:
        assert words in message


def test_a_chunk_in_the_middle_of_a_text_is_told_by_its_positions() -> None:
    def top_left_in_chunks(q, k_new, v_new, k_cache, v_cache, *, start):
        if len(q) < 3 or start < 5:
            return solution(q, k_new, v_new, k_cache, v_cache, start=start)
        return mask_at_the_top_left(q, k_new, v_new, k_cache, v_cache, start=start)

    message = " ".join(str(verdict(top_left_in_chunks)).split())
    assert "Tokens 5 to 7 came, with start = 5. Token 5 saw 1 position, should see 6." in message


# Right


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


@pytest.mark.parametrize("right", [solution, token_by_token, by_concatenation])
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


def test_the_engine_asks_the_learners_part_and_not_its_own(capsys) -> None:
    asked = []

    def watching(q, k_new, v_new, k_cache, v_cache, *, start):
        asked.append((start, len(q)))
        return solution(q, k_new, v_new, k_cache, v_cache, start=start)

    attention = check.lesson_02(watching)
    asked.clear()  # what the check asked
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
def test_an_untouched_stub_is_not_written_yet_and_the_engine_runs_its_own(
    untouched, capsys
) -> None:
    attention = check.lesson_02(untouched)
    assert "not written yet" in capsys.readouterr().out
    assert attention is PagedAttention


def test_cases_come_smallest_first() -> None:
    lengths = [sum(text.chunks) for text in cases()]
    assert lengths == sorted(lengths)
