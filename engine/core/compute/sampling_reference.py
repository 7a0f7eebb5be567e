"""The sampler, straight from its definition: one row of logits, plain floats. See `sampler.py`."""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

from engine.core.runner import LogitPosition
from engine.core.sampling_params import SamplingParams


def process_logits(logits: Sequence[float], position: LogitPosition) -> list[float]:
    """Apply logit bias, penalties, bans and the mask; a forbidden token gets -inf.

    With `allowed_token_ids`, an allowed token that is forbidden stays ahead of the others. Where the
    bans leave nothing that the mask allows, they do not apply: all that it allows is equal.
    """
    params, output, text = position.params, position.output(), {*position.text()}
    counts = Counter(output)
    early = position.output_length < params.min_tokens
    forbidden = set(position.request.end_ids) if early else set()
    for *prefix, last in position.request.bad_word_ids:
        if output[max(0, len(output) - len(prefix)) :] == prefix:
            forbidden.add(last)
    processed: list[float] = []
    for token, logit in enumerate(logits):
        x = logit + params.logit_bias.get(token, 0.0)
        if token in text:
            x = x / params.repetition_penalty if x > 0 else x * params.repetition_penalty
        x -= counts[token] * params.frequency_penalty + (token in counts) * params.presence_penalty
        x = -math.inf if token in forbidden else x
        if params.allowed_token_ids is not None:
            x = max(x, -1e38) if token in params.allowed_token_ids else -math.inf
        processed.append(x)
    constraint = position.request.constraint
    if constraint is None:
        return processed
    mask = constraint.mask(output)
    masked = [x if mask >> token & 1 else -math.inf for token, x in enumerate(processed)]
    if max(masked) > -math.inf:
        return masked
    return [0.0 if mask >> token & 1 else -math.inf for token in range(len(logits))]


def probabilities(logits: Sequence[float], params: SamplingParams) -> list[float]:
    """Apply temperature, min-p, top-k and top-p, each to the tokens kept by the one before."""
    best = max(logits)
    relative = [math.exp((x - best) / params.temperature) for x in logits]  # 1 for the likeliest
    if params.min_p == params.top_k == 0 and params.top_p == 1:
        total = sum(relative)
        return [p / total for p in relative]
    kept = sorted(range(len(logits)), key=logits.__getitem__, reverse=True)
    kept = [token for token in kept if relative[token] >= params.min_p]
    if params.top_k:
        last = kept[: params.top_k][-1]
        kept = [token for token in kept if logits[token] >= logits[last]]  # ties stay
    if params.top_p < 1:
        sums = list(accumulate(relative[token] for token in kept))
        last = kept[bisect_left(sums, params.top_p * sums[-1])]
        kept = [token for token in kept if logits[token] >= logits[last]]
    total, members = sum(relative[token] for token in kept), set(kept)
    return [p / total if token in members else 0.0 for token, p in enumerate(relative)]


def sample(logits: Sequence[float], position: LogitPosition, number: float) -> int:
    """Return the token that the uniform `number` in [0, 1) falls on; greedy at temperature 0."""
    processed = process_logits(logits, position)
    if position.params.temperature == 0:
        return processed.index(max(processed))
    return draw(probabilities(processed, position.params), number)


def draw(weights: Iterable[float], number: float) -> int:
    """Return the token at which the cumulative weights pass the share `number` of their sum."""
    cumulative = list(accumulate(weights))
    return bisect_right(cumulative, number * cumulative[-1])
