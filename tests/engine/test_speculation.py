"""Speculative decoding in the engine: its log, and that no drafter changes a token.

That sampled text keeps its distribution is shown in `test_speculation_distribution.py`.
"""

from collections import Counter

import pytest

from engine import Engine, EngineConfig, SamplingParams
from engine.events import vocabulary as v
from engine.simulation.checking_runner import CheckingRunner
from engine.speculation.prompt_lookup import PromptLookup
from engine.text.byte_tokenizer import ByteTokenizer
from tests.engine.bundled import bundled, token_prompts
from tests.engine.drafters import Guessing, Knowing
from tests.engine.workloads import FailingRunner, play, random_workload

TOKENIZER = ByteTokenizer()
EOS = min(TOKENIZER.eos_ids)
CALL_START = TOKENIZER.token_id("<|python_start|>")
CALL_END = TOKENIZER.token_id("<|python_end|>")
OUTPUT_START = TOKENIZER.token_id("<|output_start|>")
ROOMY = dict(token_budget=64, max_batch_size=4, max_kv_tokens=1024, block_size=4)
TIGHT = ROOMY | dict(max_kv_tokens=72)
GREEDY = SamplingParams(max_tokens=20, ignore_eos=True)
WARM = dict(temperature=0.9, max_tokens=20, ignore_eos=True)


def serve(runner, prompts, params, drafter=None, settings=ROOMY):
    """Run everything; return the engine and the requests with all samples."""
    tokenizer = bundled()[1] if runner is bundled()[0] else TOKENIZER
    engine = Engine(runner, EngineConfig(**settings), tokenizer=tokenizer, drafter=drafter)
    for prompt in prompts:
        engine.submit(prompt, params)
    seen = dict(engine.requests)
    while engine.has_work():
        engine.step()
        seen |= engine.requests
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


DRAFTERS = {
    "perfect": lambda texts: Knowing(texts),
    "always wrong": lambda texts: Knowing(texts, wrong=lambda position: True),
    "wrong now and then": lambda texts: Knowing(texts, wrong=lambda position: position % 3 == 0),
    "prompt lookup": lambda texts: PromptLookup(),
    "random": lambda texts: Guessing(vocab_size=97),
}


@pytest.mark.parametrize("settings", [ROOMY, TIGHT], ids=["roomy", "preempting"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_output_is_the_same_with_every_drafter(drafter, settings):
    """With each family of models: `compute/parity.py`."""
    prompts = token_prompts(6)
    plain, expected = serve(bundled()[0], prompts, GREEDY)
    drafts = DRAFTERS[drafter]([request.tokens for request in expected])
    engine, requests = serve(bundled()[0], prompts, GREEDY, drafts, settings)
    assert [r.output_ids for r in requests] == [r.output_ids for r in expected]

    total, without = count(engine.log), count(plain.log)
    assert total["tokens"] == 6 * 20
    assert bool(total["preempted"]) == (settings is TIGHT)
    assert total["proposed"] > 0
    assert (total["accepted"] == total["proposed"]) == (drafter == "perfect")
    assert total["accepted"] > 0 or drafter not in ("perfect", "wrong now and then")
    if drafter == "always wrong":
        assert total["accepted"] == 0
        assert total["trimmed"] > 0, "blocks that only held wrong drafts are given back"
    if settings is ROOMY and drafter in ("perfect", "wrong now and then"):
        assert total["steps"] < without["steps"]


def calls_the_calculator(tokens, seed):
    """A fake model that writes a call of `7` now and then, and letters in between."""
    if tokens[-1] == CALL_START:
        return ord("7")
    if tokens[-2] == CALL_START:
        return CALL_END
    return CALL_START if len(tokens) % 7 == 3 else 97 + len(tokens) % 3


@pytest.mark.parametrize("settings", [ROOMY, TIGHT], ids=["roomy", "preempting"])
def test_tokens_that_a_tool_forces_among_drafts(settings):
    """The drafter knows the forced tokens, too; the model does not generate them."""
    prompts = [[97] * (5 + i) for i in range(8)]
    params = SamplingParams(max_tokens=40)
    runner = CheckingRunner(calls_the_calculator)
    plain, expected = serve(runner, prompts, params)
    texts = [request.tokens for request in expected]
    answers = sum(text.count(OUTPUT_START) for text in texts)
    for drafter in (Knowing(texts, length=6), PromptLookup(), Guessing(vocab_size=256)):
        engine, requests = serve(runner, prompts, params, drafter, settings)
        assert [request.tokens for request in requests] == texts
        total = count(engine.log)
        assert total["forced"] == count(plain.log)["forced"]
        assert 2 * answers < total["forced"] <= 3 * answers, "but where max_tokens cuts one"
        assert total["forced behind drafts"] > 0 or isinstance(drafter, Guessing)
        assert bool(total["preempted"]) == (settings is TIGHT)


@pytest.mark.parametrize(
    "ends",
    [dict(), dict(stop_token_ids=[100]), dict(stop=["d"])],
    ids=["end token", "stop token", "stop string"],
)
@pytest.mark.parametrize("behind", [1, 2, 3, 4])
def test_an_end_inside_accepted_drafts_is_the_end(ends, behind):
    """`behind` tokens before the drafts are over; the model would agree with all of them."""
    end = 10
    text = [97 + i % 3 for i in range(40)]
    text[end] = 100 if ends else EOS
    runner = CheckingRunner(lambda tokens, seed: text[len(tokens)])
    # The first step drafts nothing, so the second begins at 5 tokens.
    drafter = Knowing([text], length=end - 5 + behind)
    engine, [request] = serve(runner, [text[:4]], SamplingParams(max_tokens=30, **ends), drafter)
    assert request.tokens == text[: end + 1]
    assert request.finish_reason == "stop"
    last = engine.log.of(v.StepFinished)[-1].tokens[0]
    assert last.accepted == len(last.ids) == end - 4
    assert count(engine.log)["proposed"] == end - 5 + behind
    assert request.output_text == bytes(text[4:end]).decode()
    engine.clear_prefix_cache()
    assert len(engine.pool.free) == engine.config.num_blocks


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
    "temperature": dict(seed=5),
    "cuts": dict(seed=6, top_k=20, top_p=0.9, min_p=0.01),
    "penalties": dict(seed=7, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.5),
    "bias": dict(seed=8, logit_bias={3: 2.0, 50: -100}),
    "samples": dict(seed=9, n=3),
    "bans": dict(seed=10, allowed_token_ids=[*range(20, 60)], bad_words=["0", "12", "21", "345"]),
}


@pytest.mark.parametrize("settings", [ROOMY, TIGHT], ids=["roomy", "preempting"])
@pytest.mark.parametrize("sampling", SAMPLED)
def test_equal_seeds_give_the_same_tokens_with_and_without_drafts(sampling, settings):
    params = SamplingParams(**WARM | SAMPLED[sampling])
    prompts = token_prompts(4)
    _, expected = serve(bundled()[0], prompts, params)
    texts = [request.tokens for request in expected]
    drafter = Knowing(texts, wrong=lambda position: position % 4 == 0)
    engine, requests = serve(bundled()[0], prompts, params, drafter, settings)
    assert [request.tokens for request in requests] == texts
    total = count(engine.log)
    assert total["proposed"] > total["accepted"] > 0
    assert bool(total["preempted"]) == (settings is TIGHT)
