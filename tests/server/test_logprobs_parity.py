"""What an evaluation gets over HTTP is what transformers computes from the same weights.

The requests are lm-eval's: ids, one token, `echo` and `logprobs: 1`. lm-eval itself runs in
`tests/clients`.
"""

from typing import Any

import pytest
import torch

from engine.models.loader import BUNDLED
from tests.lazy import transformers
from tests.server.harness import post

# A budget smaller than the texts: their scores come from several steps.
SERVER = {"model": "bundled", "engine": {"token_budget": 16}}
CLOSE = 1e-4
TEXTS = [
    "Once upon a time there was a fox called Mia, who lived under a hill.",
    "The answer of 17 + 25 is 42, and é is no e.",
    "Continuous batching",
    "xqzj 0x7f zzz <- nothing that the model has seen",
]


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(BUNDLED)
    return [tokenizer(text)["input_ids"] for text in TEXTS]


@pytest.fixture(scope="module")
def expected(prompts: list[list[int]]) -> list[torch.Tensor]:
    """For each prompt and each place in it, the log-probabilities of what comes next."""
    model = transformers.AutoModelForCausalLM.from_pretrained(BUNDLED, dtype=torch.float32)
    with torch.no_grad():
        return [model(torch.tensor([ids])).logits[0].log_softmax(-1) for ids in prompts]


def scored(url: str, prompts: list[list[int]]) -> list[dict[str, Any]]:
    asked = {"max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0, "seed": 1234}
    answer = post(url, "/v1/completions", {"model": "bundled", "prompt": prompts} | asked)
    return [choice["logprobs"] for choice in answer.json()["choices"]]


def test_every_token_of_a_prompt_is_as_probable_as_transformers_has_it(
    url: str, prompts: list[list[int]], expected: list[torch.Tensor]
) -> None:
    for ids, found, logprobs in zip(prompts, scored(url, prompts), expected, strict=True):
        assert found["token_logprobs"][0] is None
        there = torch.tensor(found["token_logprobs"][1:-1])
        here = logprobs[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        assert (there - here).abs().max() < CLOSE
        # The last one is the token that was asked for: the likeliest.
        assert abs(found["token_logprobs"][-1] - logprobs[-1].max().item()) < CLOSE


def test_a_token_counts_as_greedy_exactly_where_it_is_the_likeliest(
    url: str, prompts: list[list[int]], expected: list[torch.Tensor]
) -> None:
    seen = set()
    for ids, found, logprobs in zip(prompts, scored(url, prompts), expected, strict=True):
        for at in range(1, len(ids)):
            # lm-eval's own comparison: equality of floats.
            there = found["token_logprobs"][at] == max(found["top_logprobs"][at].values())
            here = ids[at] == logprobs[at - 1].argmax().item()
            assert there == here
            seen.add(here)
    assert seen == {True, False}
