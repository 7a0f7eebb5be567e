"""A draft model keeps the distribution of sampled text under a verifier of one's own.

The engine's own rule gives the same text for each seed as without drafts (`test_speculation.py`).
A small random model with four tokens, thousands of seeds, temperature 1. The first three tokens of
each output, 64 texts in all, are counted and held against the exact probabilities that transformers'
logits give, by Pearson's chi-square. Seeds are fixed, so the same counts come out every time.
"""

import copy
from collections import Counter
from itertools import product

import torch

from engine import Engine, EngineConfig, SamplingParams
from engine.core.compute.torch_runner import TorchRunner
from engine.extensions.draft_model import DraftModel
from engine.models.config_file import read_config
from engine.models.decoder import Decoder
from engine.models.weights.checkpoint import Checkpoint
from tests.engine.compute.models import SIZES, random_model, spread_out
from tests.engine.compute.test_verifier import Paper
from tests.engine.drafters import drafted

VOCAB = 4
PROMPT = [1, 3, 0]
SEEDS = 3000
DRAFTED = 3  # tokens whose joint distribution is tested


ENTRIES = SIZES | dict(
    vocab_size=4,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=8,
)


def runner_of(model, directory):
    """A runner of what transformers has in memory."""
    model.save_pretrained(directory)
    return TorchRunner(Decoder(read_config(directory), Checkpoint(directory, torch.float32)))


@torch.inference_mode()
def exact_probabilities(judge, temperature=1.0):
    """Of each text of DRAFTED tokens after the prompt, by the chain rule."""
    texts = list(product(range(VOCAB), repeat=DRAFTED))
    logits = judge(torch.tensor([[*PROMPT, *text] for text in texts])).logits.double()
    steps = (logits / temperature).log_softmax(-1)[:, len(PROMPT) - 1 : -1]
    chosen = steps.gather(2, torch.tensor(texts)[:, :, None])[:, :, 0]
    return dict(zip(texts, chosen.sum(dim=1).exp().tolist(), strict=True))


def sample(runner, drafter):
    """Return one text per seed, and the numbers of accepted and rejected drafts."""
    config = EngineConfig(token_budget=4096, max_batch_size=256, max_kv_tokens=4096, block_size=8)
    engine = Engine(runner, config, drafter=drafter)
    # One more than is tested: the sampled token needs a place after the drafts.
    each = [SamplingParams(max_tokens=DRAFTED + 1, temperature=1.0, seed=s) for s in range(SEEDS)]
    done = engine.complete([PROMPT] * SEEDS, each, progress=False)
    proposed, accepted = drafted(engine.log)
    return [tuple(one.token_ids[:DRAFTED]) for one in done], accepted, proposed - accepted


def chi_square(texts, probabilities):
    """Pearson's statistic, which is about 63 for 64 texts if the probabilities are the true ones."""
    counts = Counter(texts)
    expected = {text: p * len(texts) for text, p in probabilities.items()}
    return sum((counts[text] - wanted) ** 2 / wanted for text, wanted in expected.items())


class Credulous:
    """A wrong rule, which accepts every draft."""

    def accept(self, p, drafts, numbers, pick):
        return [*drafts, pick(p[-1])]


def test_a_draft_model_keeps_the_distribution_under_a_verifier(tmp_path):
    """The numbers that a verifier gets are independent of those that the drafts are drawn with."""
    torch.set_num_threads(1)
    judge = random_model("LlamaForCausalLM", ENTRIES, matrices=0.25)
    target = runner_of(judge, tmp_path / "target")
    # It agrees partly, because it has some noise more.
    draft = runner_of(spread_out(copy.deepcopy(judge), 0.2), tmp_path / "draft")
    target.verifier = Paper()
    texts, accepted, rejected = sample(target, DraftModel(draft, 2))
    assert min(accepted, rejected) > 200
    # The counts fit the truth, and nothing a little beside it.
    assert chi_square(texts, exact_probabilities(judge)) < 90
    assert chi_square(texts, exact_probabilities(judge, temperature=1.15)) > 120
    target.verifier = Credulous()
    assert chi_square(sample(target, DraftModel(draft, 2))[0], exact_probabilities(judge)) > 200
