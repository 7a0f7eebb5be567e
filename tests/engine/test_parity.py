"""Greedy tokens of the engine equal those of `transformers`, whatever the schedule.

Memory is so small and the budget so tight that prompts are cut, prefixes are found and requests are
preempted all the time. Where the reference's two best logits lie within 1e-4, either token may win;
such ties are counted and shown.
"""

import random
from pathlib import Path

import pytest
import torch

import engine
from engine import Engine, EngineConfig, SamplingParams
from engine.events import vocabulary as v
from tests.engine.bundled import Silent

BUNDLED = Path(engine.__file__).parent / "bundled"
TIE = 1e-4
OUTPUT = 12


def make_prompts(count: int, vocab_size: int) -> list[str | list[int]]:
    """Stories and questions with shared prefixes; every fifth prompt is random tokens."""
    rng = random.Random(5)
    stems = [
        "Once upon a time there was a small {} who lived by the sea. Every morning the {}",
        "What is {} plus {}?",
        "One day a brave {} met a {} in the forest. They",
        "Please explain what a {} is and why a {} matters when a model is served to many people.",
    ]
    words = "fox bear owl token batch cache 12 34 boat king block tree prefix river".split()
    prompts: list[str | list[int]] = []
    for number in range(count):
        if number % 5 == 4:
            prompts.append([rng.randrange(vocab_size) for _ in range(rng.randint(1, 70))])
        else:
            prompts.append(rng.choice(stems).format(rng.choice(words), rng.choice(words)))
    return prompts


@pytest.fixture(scope="module")
def reference():
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(BUNDLED, dtype=torch.float32).eval()


@torch.inference_mode()
def differs(reference, tokens: list[int], prompt_length: int) -> tuple[int, int]:
    """Return (tokens that are not the reference's best, ties among them), from one pass."""
    logits = reference(torch.tensor([tokens])).logits[0, prompt_length - 1 : -1]
    chosen = logits.gather(1, torch.tensor(tokens[prompt_length:])[:, None])[:, 0]
    gap = logits.max(dim=1).values - chosen
    return int((gap > 0).sum()), int(((gap > 0) & (gap <= TIE)).sum())


def test_100_prompts_chunked_cached_and_preempted_equal_transformers(reference) -> None:
    """Check that each token is the reference's best after the tokens before it."""
    config = EngineConfig(token_budget=24, max_batch_size=8, max_kv_tokens=26 * 8, block_size=8)
    tested = Engine.load("bundled", config, tool=Silent)
    prompts = make_prompts(100, tested.tokenizer.vocab_size)
    params = SamplingParams(max_tokens=OUTPUT, ignore_eos=True)
    requests = [tested.submit(prompt, params) for prompt in prompts]
    while tested.has_work():
        tested.step()

    wrong = ties = 0
    for request in requests:
        assert len(request.output_ids) == OUTPUT
        different, tied = differs(reference, request.tokens, request.prompt_length)
        wrong += different - tied
        ties += tied
    log = tested.log
    cut = sum(row.start + row.count < len(prompt) for prompt, row in _rows(log))
    hits = sum(bool(event.blocks) for event in log.of(v.Admitted))
    preempted = len(log.of(v.Preempted))
    print(f"\n100 prompts: {ties} ties, {cut} chunks, {hits} hits, {preempted} preemptions")
    assert wrong == 0
    assert min(cut, hits, preempted) >= 10


def _rows(log):
    """Every scheduled row with the prompt of its request."""
    prompts = {event.request: event.prompt for event in log.of(v.RequestArrived)}
    for event in log.of(v.StepScheduled):
        for row in event.rows:
            yield prompts[row.request], row
