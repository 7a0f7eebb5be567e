"""Speculative decoding in the engine: its log, and that no drafter changes a token.

That sampled text keeps its distribution is shown in `test_speculation_distribution.py`.
"""

from collections import Counter

import pytest

from engine import Engine, EngineConfig, SamplingParams
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.log import vocabulary as v
from engine.extensions.bad_words import bad_word_ids
from engine.extensions.prompt_lookup import PromptLookup
from engine.simulation.checking_runner import CheckingRunner
from tests.engine.bundled import bundled, token_prompts
from tests.engine.drafters import Guessing, Knowing
from tests.engine.workloads import FailingRunner, finish, play, random_workload

TOKENIZER = ByteTokenizer()
ROOMY = dict(token_budget=64, max_batch_size=4, max_kv_tokens=1024, block_size=4)
TIGHT = ROOMY | dict(max_kv_tokens=72)
WARM = dict(temperature=0.9, max_tokens=20, ignore_eos=True)


def serve(runner, prompts, params, drafter=None, settings=ROOMY):
    """Run everything; return the engine and the requests with all samples."""
    tokenizer = bundled()[1] if runner is bundled()[0] else TOKENIZER
    engine = Engine(runner, EngineConfig(**settings), tokenizer=tokenizer, drafter=drafter)
    for prompt in prompts:
        engine.submit(prompt, params)
    seen = finish(engine)
    assert len(seen) == len(prompts) * params.samples
    return engine, [seen[id_] for id_ in sorted(seen)]


def count(log):
    """Sum over a log; check each row of tokens against the drafts of its scheduled row."""
    total, plan, ahead = Counter(), {}, {}
    for event in log:
        if isinstance(event, v.Preempted):
            ahead.pop(event.request, None)
            total["preempted"] += 1
        if isinstance(event, v.BlocksTrimmed):
            total["trimmed"] += 1
        if isinstance(event, v.StepScheduled):
            total["steps"] += 1
            plan = {row.request: row for row in event.rows}
            for row in event.rows:
                assert row.start == ahead.pop(row.request, row.start), "not where its text ends"
                ahead[row.request] = row.start + row.count - len(row.drafts)
            total["proposed"] += sum(len(row.drafts) for row in event.rows)
        if isinstance(event, v.Forked):
            ahead[event.request] = ahead[event.parent]
        if isinstance(event, v.StepFinished):
            for row in event.tokens:
                drafts = plan[row.request].drafts if row.request in plan else []
                kept = row.ids[: row.accepted]
                sampled = row.ids[row.accepted : len(row.ids) - row.forced]
                assert kept == drafts[: row.accepted]
                assert len(sampled) <= 1
                if sampled and row.accepted < len(drafts):
                    assert sampled[0] != drafts[row.accepted], "rejected, though it was right"
                ahead[row.request] += row.accepted
                total["accepted"] += row.accepted
                total["sampled"] += len(sampled)
                total["forced"] += row.forced
                total["forced behind drafts"] += bool(row.forced and row.accepted)
                total["tokens"] += len(row.ids)
    assert total["tokens"] == total["accepted"] + total["sampled"] + total["forced"]
    return total


class Wrong:
    """Four drafts for every request, which the fake model never generates."""

    def propose(self, request):
        return [0, 0, 0, 0]


def decisions(log):
    """Return the scheduler's decisions without drafts."""
    for event in log:
        if isinstance(event, v.Admitted | v.Preempted | v.RadixEvicted):
            yield type(event), *(getattr(event, n, 0) for n in ("request", "needed_by", "node"))
        if isinstance(event, v.StepScheduled):
            rows = [(row.request, row.start, row.count - len(row.drafts)) for row in event.rows]
            yield rows, event.skipped, event.blocked


def test_wrong_drafts_change_no_decision_of_the_scheduler():
    """They take no budget from decodes and prompts, and preempt and evict nothing."""
    total = Counter()
    for seed in range(80):
        workload = random_workload(seed)
        logs = []
        for drafter in (None, Wrong()):
            runner = FailingRunner(workload.failures)
            engine = Engine(runner, workload.config, tokenizer=TOKENIZER, drafter=drafter)
            play(engine, workload)
            logs.append(engine.log)
        plain, drafted = logs
        assert list(decisions(drafted)) == list(decisions(plain)), f"seed {seed}"
        total += count(drafted)
        total["evicted"] += len(drafted.of(v.RadixEvicted))
    assert total["proposed"] > total["accepted"] == 0
    assert total["trimmed"] and total["preempted"] and total["evicted"]


SAMPLED = {
    "greedy": dict(temperature=0.0),
    "temperature": dict(seed=5),
    "cuts": dict(seed=6, top_k=20, top_p=0.9, min_p=0.01),
    "penalties": dict(seed=7, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.5),
    "bias": dict(seed=8, logit_bias={3: 2.0, 50: -100}),
    "samples": dict(seed=11, n=3),
    "bans": dict(seed=10, allowed_token_ids=[*range(20, 60)], bad_words=["0", "12", "21", "345"]),
}


def breaks_a_ban(request):
    """Whether the output has a token that is not allowed, or a bad word."""
    allowed, output = request.params.allowed_token_ids, tuple(request.output_ids)
    words = bad_word_ids(request.params.bad_words, bundled()[1])
    return bool(allowed and set(output) - set(allowed)) or any(
        output[at : at + len(word)] == word for word in words for at in range(len(output))
    )


@pytest.mark.parametrize("settings", [ROOMY, TIGHT], ids=["roomy", "preempting"])
@pytest.mark.parametrize("sampling", SAMPLED)
def test_equal_seeds_give_the_same_tokens_with_and_without_drafts(sampling, settings):
    params = SamplingParams(**WARM | SAMPLED[sampling])
    prompts = token_prompts(4)
    _, expected = serve(bundled()[0], prompts, params)
    texts = [request.tokens for request in expected]
    assert not any(breaks_a_ban(request) for request in expected)
    drafters = [Knowing(texts, wrong=lambda position: position % 4 == 0)]
    if sampling == "greedy":
        drafters += [PromptLookup(), Guessing(vocab_size=97), Knowing(texts, wrong=bool)]
    for drafter in drafters:
        engine, requests = serve(bundled()[0], prompts, params, drafter, settings)
        assert [request.tokens for request in requests] == texts
        total = count(engine.log)
        assert total["proposed"] > total["accepted"]
        assert total["accepted"] > 0 or drafter is not drafters[0]
        assert bool(total["preempted"]) == (settings is TIGHT)


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_max_tokens_is_reached_and_not_passed(max_tokens):
    text = [97 + i % 3 for i in range(60)]
    runner = CheckingRunner(lambda tokens, seed: text[len(tokens)])
    params = SamplingParams(max_tokens=max_tokens)
    engine, [request] = serve(runner, [text[:7]], params, Knowing([text], length=5))
    assert request.tokens == text[: 7 + max_tokens]
    assert request.finish_reason == "length"
    for event in engine.log.of(v.StepScheduled):
        for row in event.rows:
            assert row.start + row.count < 7 + max_tokens, "computes surplus tokens"
    assert count(engine.log)["steps"] == 1 + -(-(max_tokens - 1) // 6)
