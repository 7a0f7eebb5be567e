"""A draft model keeps the distribution of sampled text under a verifier of one's own.

The engine's own rule gives the same text for each seed as without drafts (`test_speculation.py`).
A small random model with four tokens, thousands of seeds, temperature 1. The first three tokens of
each output, 64 texts in all, are counted and held against the exact probabilities that transformers'
logits give, by Pearson's chi-square. Seeds are fixed, so the same counts come out every time.
"""

import copy
from collections import Counter
from itertools import product

import pytest
import torch

from engine import Engine, EngineConfig, SamplingParams
from engine.core.compute.torch_runner import TorchRunner
from engine.core.log import vocabulary as v
from engine.extensions.draft_model import DraftModel
from engine.models.config_file import read_config
from engine.models.decoder import Decoder
from engine.models.weights.checkpoint import Checkpoint
from tests.lazy import transformers

VOCAB = 4
PROMPT = [1, 3, 0]
SEEDS = 3000
DRAFTED = 3  # tokens whose joint distribution is tested


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """(TorchRunner, what transformers makes of the same weights)"""
    torch.set_num_threads(1)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(4)
    judge = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in judge.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.25)
    directory = tmp_path_factory.mktemp("four tokens")
    judge.save_pretrained(directory)
    decoder = Decoder(read_config(directory), Checkpoint(directory, torch.float32))
    return TorchRunner(decoder), judge


@torch.inference_mode()
def exact_probabilities(judge, temperature=1.0):
    """Of each text of DRAFTED tokens after the prompt, by the chain rule."""
    texts = list(product(range(VOCAB), repeat=DRAFTED))
    logits = judge(torch.tensor([[*PROMPT, *text] for text in texts])).logits.double()
    steps = (logits / temperature).log_softmax(-1)[:, len(PROMPT) - 1 : -1]
    chosen = steps.gather(2, torch.tensor(texts)[:, :, None])[:, :, 0]
    return dict(zip(texts, chosen.sum(dim=1).exp().tolist(), strict=True))


def noisy(judge, directory):
    """A draft model that agrees partly: the model's own weights and some noise."""
    draft = copy.deepcopy(judge)
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    draft.save_pretrained(directory)
    return TorchRunner(Decoder(read_config(directory), Checkpoint(directory, torch.float32)))


def sample(runner, drafter):
    """Return one text per seed, and the numbers of accepted and rejected drafts."""
    config = EngineConfig(token_budget=4096, max_batch_size=256, max_kv_tokens=4096, block_size=8)
    engine = Engine(runner, config, drafter=drafter)
    # One more than is tested: the sampled token needs a place after the drafts.
    each = [SamplingParams(max_tokens=DRAFTED + 1, temperature=1.0, seed=s) for s in range(SEEDS)]
    done = engine.complete([PROMPT] * SEEDS, each, progress=False)
    accepted = sum(row.accepted for event in engine.log.of(v.StepFinished) for row in event.tokens)
    rows = [row for event in engine.log.of(v.StepScheduled) for row in event.rows]
    rejected = sum(len(row.drafts) for row in rows) - accepted
    return [tuple(one.token_ids[:DRAFTED]) for one in done], accepted, rejected


def p_value(texts, probabilities):
    """How likely counts at least so far from the probabilities are, if these are the true ones."""
    counts = Counter(texts)
    expected = {text: p * len(texts) for text, p in probabilities.items()}
    # Pearson's approximation needs five of a kind; the rare ones are counted together.
    common = [text for text in expected if expected[text] >= 5]
    pairs = [(counts[text], expected[text]) for text in common]
    rest = len(texts) - sum(expected[text] for text in common)
    if rest >= 5:
        pairs.append((len(texts) - sum(counts[text] for text in common), rest))
    statistic = sum((found - wanted) ** 2 / wanted for found, wanted in pairs)
    half = torch.tensor([(len(pairs) - 1) / 2, statistic / 2], dtype=torch.float64)
    return torch.special.gammaincc(half[0], half[1]).item()


class Paper:
    """The rule of the paper for drafts that do not depend on the numbers: as for q = 1."""

    def accept(self, p, drafts, numbers, pick):
        for j, (draft, number) in enumerate(zip(drafts, numbers, strict=True)):
            if number >= p[j][draft]:
                rest = [0.0 if token == draft else w for token, w in enumerate(p[j])]
                return [*drafts[:j], pick(rest)]
        return [*drafts, pick(p[-1])]


class Credulous:
    """A wrong rule, which accepts every draft."""

    def accept(self, p, drafts, numbers, pick):
        return [*drafts, pick(p[-1])]


def test_a_draft_model_keeps_the_distribution_under_a_verifier(model, tmp_path):
    """The numbers that a verifier gets are independent of those that the drafts are drawn with."""
    runner, judge = model
    draft = noisy(judge, tmp_path)
    target = TorchRunner(runner._model)
    target.verifier = Paper()
    texts, accepted, rejected = sample(target, DraftModel(draft, 2))
    assert min(accepted, rejected) > 200
    # The counts fit the truth, and nothing a little beside it.
    assert p_value(texts, exact_probabilities(judge)) > 0.01
    assert p_value(texts, exact_probabilities(judge, temperature=1.15)) < 1e-4
    target.verifier = Credulous()
    assert p_value(sample(target, DraftModel(draft, 2))[0], exact_probabilities(judge)) < 1e-9
