"""Temperature, and the cuts that keep unlikely tokens from being sampled: min-p, top-k, top-p.

`sampling_reference.py` has the definition. Tokens tied with the last one kept are kept, too; otherwise
a cut would depend on how ties are sorted.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

# The signature of `truncated_probs`, for learners who write their own.
TokenProbs = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
# Top-p looks at this many of the most likely tokens first, because sorting a whole vocabulary takes
# longer than all the rest of sampling.
_NUM_CANDIDATES = 64
# Temperatures are clamped to this range, because float32 would overflow.
_MIN_TEMPERATURE, _MAX_TEMPERATURE = 1e-30, 1e30


def truncated_probs(
    logits: Tensor, temperature: Tensor, min_p: Tensor, top_k: Tensor, top_p: Tensor
) -> Tensor:
    """Return the probabilities to sample with, [rows, vocab]; 0 for tokens that are cut.

    logits       [rows, vocab], finite or -inf
    temperature  [rows], above 0
    min_p        [rows], minimum probability, relative to the most likely token's; 0 keeps all
    top_k        [rows], at most vocab; 0 keeps all
    top_p        [rows] float64, share of the probability left by the other cuts; the smallest set of
                 most likely tokens that reaches it is kept; 1 keeps all
    """
    # Relative to the most likely token, whose logit becomes 0 at any temperature.
    logits = logits - logits.amax(dim=-1, keepdim=True)
    logits /= temperature.clamp(_MIN_TEMPERATURE, _MAX_TEMPERATURE)[:, None]
    use_top_p = bool((top_p < 1).any())
    num_candidates = min(_NUM_CANDIDATES, logits.shape[-1]) if use_top_p else 0
    candidates = _top_values(logits, max(num_candidates, int(top_k.max())))
    threshold = min_p.log()[:, None]
    if (top_k > 0).any():
        kth = candidates.gather(1, (top_k.clamp(min=1) - 1)[:, None])
        threshold = threshold.maximum(kth.masked_fill((top_k == 0)[:, None], -torch.inf))
    if use_top_p:
        left = logits.masked_fill(logits < threshold, -torch.inf)
        threshold = threshold.maximum(_top_p_threshold(left, candidates, top_p[:, None]))
    if (threshold > -torch.inf).any():
        logits.masked_fill_(logits < threshold, -torch.inf)
    return logits.softmax(dim=-1)


def _top_p_threshold(logits: Tensor, candidates: Tensor, top_p: Tensor) -> Tensor:
    """Return the smallest logit [rows, 1] in the smallest set of tokens that reaches `top_p`.

    logits      [rows, vocab], relative to each row's maximum
    candidates  [rows, some], the largest logits, descending; more are fetched if needed
    top_p       [rows, 1]
    """
    # A token is exp(logit) times as likely as the most likely one, whose logit is 0.
    max_prob = logits.softmax(dim=-1).amax(dim=-1, keepdim=True)
    truncate = top_p < 1
    target = top_p.masked_fill(~truncate, 0.0)
    while True:
        cumulative = (candidates.exp() * max_prob).cumsum(dim=-1, dtype=torch.float64)
        count = candidates.shape[-1]
        if count == logits.shape[-1] or (cumulative[:, -1:] >= target).all():
            break
        candidates = _top_values(logits, min(8 * count, logits.shape[-1]))
    # The first candidate that reaches the target, or the last one if rounding prevents it.
    index = (cumulative < target).sum(dim=-1, keepdim=True).clamp_(max=count - 1)
    return candidates.gather(1, index).masked_fill_(~truncate, -torch.inf)


def _top_values(values: Tensor, count: int) -> Tensor:
    """Return the largest values of each row, [rows, count], descending."""
    if count == 0:
        return values[:, :0]
    # numpy's partition takes a tenth of the time of torch's topk.
    largest = np.partition(values.numpy(), -count, axis=-1)[:, -count:]
    return torch.from_numpy(np.sort(largest, axis=-1)).flip(-1)
