"""The sampler as one would write it down: one place at a time, plain floats, from the definitions."""

import math
import random
from collections import Counter

import torch

from engine.compute.sampling.logit_positions import LogitPosition
from engine.scheduling.request import Request
from engine.scheduling.sampling_params import SamplingParams


def place(
    prompt=(0,), output=(), drafts=(), end_ids=(), seed=0, sample=0, **params
) -> LogitPosition:
    """A place behind the text prompt + output + drafts."""
    params = SamplingParams(**{"max_tokens": 1000} | params)
    request = Request(
        id=1,
        tokens=[*prompt, *output],
        texts=[],
        params=params,
        root=seed,
        prompt_length=len(prompt),
        end_ids=frozenset(end_ids),
    )
    return LogitPosition(request, params, sample, list(drafts))


def random_logits(seed, rows, vocab, spread=3.0, ties=False):
    """[rows, vocab] float32; with `ties`, whole numbers, many of them equal."""
    logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * spread
    return logits.round() if ties else logits


def log_softmax(logits):
    top = max(logits)
    total = top + math.log(sum(math.exp(x - top) for x in logits))
    return [x - total for x in logits]


def biased(logits, place):
    return [x + place.params.logit_bias.get(token, 0.0) for token, x in enumerate(logits)]


def top(logits, place, count):
    """The likeliest tokens of the distribution that is reported, of equals the smaller id first."""
    told = log_softmax(biased(logits, place))
    return sorted(enumerate(told), key=lambda pair: (-pair[1], pair[0]))[:count]


def penalised(logits, place):
    """After the bias, forbidden end tokens and penalties; None for a forbidden token."""
    params, request = place.params, place.request
    prompt = request.tokens[: request.prompt_length]
    output = request.tokens[request.prompt_length :] + list(place.drafts)
    forbidden = request.end_ids if len(output) < params.min_tokens else frozenset()
    counts = Counter(output)
    result = []
    for token, x in enumerate(biased(logits, place)):
        if token in forbidden:
            result.append(None)
            continue
        if token in prompt or token in output:
            penalty = params.repetition_penalty
            x = x / penalty if x > 0 else x * penalty
        x -= params.frequency_penalty * counts[token]
        if counts[token]:
            x -= params.presence_penalty
        result.append(x)
    return result


def probabilities(logits, params):
    """What a token is drawn with, each cut among those that the one before has left."""
    allowed = [x for x in logits if x is not None]
    scaled = {
        token: (x - max(allowed)) / params.temperature
        for token, x in enumerate(logits)
        if x is not None
    }
    # Relative to the likeliest token, which now has weight 1.
    kept = {token: x for token, x in scaled.items() if math.exp(x) >= params.min_p}
    order = sorted(kept, key=lambda token: -kept[token])
    if params.top_k:
        last = kept[order[min(params.top_k, len(order)) - 1]]
        order = [token for token in order if kept[token] >= last]
    weights = {token: math.exp(kept[token]) for token in order}
    total = sum(weights.values())
    if params.top_p < 1:
        nucleus, mass = [], 0.0
        for token in order:
            if mass >= params.top_p and kept[token] < kept[nucleus[-1]]:
                break
            nucleus.append(token)
            mass += weights[token] / total
        weights = {token: weights[token] for token in nucleus}
        total = sum(weights.values())
    return [weights.get(token, 0.0) / total for token in range(len(logits))]


def random_place(rng: random.Random, vocab: int) -> LogitPosition:
    """Every feature on or off by chance: texts share tokens with prompts, outputs and end tokens."""

    def ids(most):
        return [rng.randrange(vocab) for _ in range(rng.randint(0, most))]

    def maybe(*values):
        return rng.choice(values) if rng.random() < 0.5 else None

    wanted = dict(
        temperature=maybe(1e-5, 0.3, 1.0, 2.5),
        top_k=maybe(1, 2, 7, vocab, 10**30),
        top_p=maybe(1e-9, 0.2, 0.9, 0.999),
        min_p=maybe(0.01, 0.3, 1.0),
        repetition_penalty=maybe(0.5, 1.3, 5.0),
        frequency_penalty=maybe(-2.0, 0.3, 2.0),
        presence_penalty=maybe(-1.5, 0.7),
        min_tokens=maybe(1, 3, 9),
        logprobs=maybe(0, 1, 5, 2 * vocab),
        logit_bias=maybe({t: rng.choice([-100.0, -0.5, 2.0, 100.0]) for t in ids(4)}),
    )
    return place(
        prompt=[0, *ids(6)],
        output=ids(8),
        drafts=ids(2),
        end_ids=ids(2),
        seed=rng.randrange(1000),
        sample=rng.randrange(4),
        **{name: value for name, value in wanted.items() if value is not None},
    )
