"""Logits and positions to sample at, and log-probabilities by plain floats."""

import math
import random

import torch

from engine.core.request import Request
from engine.core.runner import LogitPosition
from engine.core.sampling_params import SamplingParams


def logit_position(
    prompt=(0,), output=(), drafts=(), end_ids=(), bad_words=(), seed=0, sample=0, **params
) -> LogitPosition:
    """The position after the text prompt + output + drafts."""
    texts = [f"word {ids}" for ids in bad_words]
    params = SamplingParams(**{"max_tokens": 1000, "bad_words": texts} | params)
    request = Request(
        id=1,
        tokens=[*prompt, *output],
        texts=[],
        params=params,
        seed=seed,
        prompt_length=len(prompt),
        end_ids=frozenset(end_ids),
        bad_word_ids=tuple(map(tuple, bad_words)),
    )
    return LogitPosition(request, params, sample, list(drafts), len(request.tokens) + len(drafts))


def random_logits(seed, rows, vocab, spread=3.0, ties=False):
    """[rows, vocab] float32; with `ties`, whole numbers, many of them equal."""
    logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * spread
    return logits.round() if ties else logits


def log_softmax(logits):
    top = max(logits)
    total = top + math.log(sum(math.exp(x - top) for x in logits))
    return [x - total for x in logits]


def reported(logits, position):
    """The log-probabilities that are reported: the model's own, with the bias."""
    bias = position.params.logit_bias
    return log_softmax([x + bias.get(token, 0.0) for token, x in enumerate(logits)])


def most_likely(logits, position, count):
    """The most likely tokens of the reported distribution, of equals the smaller id first."""
    pairs = enumerate(reported(logits, position))
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:count]


def random_position(rng: random.Random, vocab: int) -> LogitPosition:
    """Every feature on or off by chance: texts share tokens with prompts, outputs and end tokens.

    Numbers may be whole ones, of any size.
    """

    def ids(most):
        return [rng.randrange(vocab) for _ in range(rng.randint(0, most))]

    def maybe(*values):
        return rng.choice(values) if rng.random() < 0.5 else None

    options = dict(
        temperature=maybe(1e-5, 0.3, 1, 2.5, 10**30),
        top_k=maybe(1, 2, 7, vocab, 10**30),
        top_p=maybe(1e-9, 0.2, 0.9, 0.999, 1),
        min_p=maybe(0.01, 0.3, 1),
        repetition_penalty=maybe(0.5, 1.3, 5),
        frequency_penalty=maybe(-2, 0.3, 2.0),
        presence_penalty=maybe(-1.5, 0.7, 1),
        min_tokens=maybe(1, 3, 9),
        logprobs=maybe(0, 1, 5, 2 * vocab),
        allowed_token_ids=maybe([rng.randrange(vocab)], [rng.randrange(vocab), *ids(6)]),
        logit_bias=maybe({t: rng.choice([-100, -0.5, 2.0, 100.0]) for t in ids(4)}),
    )
    output, drafts = ids(8), ids(2)
    text = [*output, *drafts]
    return logit_position(
        prompt=[0, *ids(6)],
        output=output,
        drafts=drafts,
        end_ids=ids(2),
        # Some begin as the text ends, so that their last token is forbidden here.
        bad_words=[
            [*text[len(text) - rng.randint(0, len(text)) :], *ids(1), rng.randrange(vocab)]
            for _ in range(rng.choice([0, 0, 3]))
        ],
        seed=rng.randrange(1000),
        sample=rng.randrange(4),
        **{name: value for name, value in options.items() if value is not None},
    )
