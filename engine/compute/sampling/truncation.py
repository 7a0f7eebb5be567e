"""Temperature, and the cuts that keep unlikely tokens from being drawn: min-p, top-k, top-p.

Tokens tied with the last one kept are kept too, or a cut would depend on how ties are sorted.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

# What `truncated_probs` is; a learner may write another.
TokenProbs = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
# Top-p looks at this many of the likeliest tokens first; sorting a whole vocabulary takes longer
# than the rest of sampling together.
_FIRST_LOOK = 64
# What temperatures outside count as, or float32 would overflow.
_COOLEST, _HOTTEST = 1e-30, 1e30


def truncated_probs(
    logits: Tensor, temperature: Tensor, min_p: Tensor, top_k: Tensor, top_p: Tensor
) -> Tensor:
    """What tokens are drawn in proportion to: [rows, vocab], 0 for those that are cut.

    logits       [rows, vocab], finite or -inf
    temperature  [rows], above 0
    min_p        [rows], least probability relative to the likeliest token's; 0 keeps all
    top_k        [rows], at most vocab; 0 keeps all
    top_p        [rows] float64, 1 keeps all; otherwise the smallest set that reaches this share of
                 what the other cuts have left
    """
    # Relative to the likeliest: it stays at 0, whatever the temperature does to the others.
    logits = logits - logits.amax(dim=-1, keepdim=True)
    logits /= temperature.clamp(_COOLEST, _HOTTEST)[:, None]
    nucleus = bool((top_p < 1).any())
    look = min(_FIRST_LOOK, logits.shape[-1]) if nucleus else 0
    best = _greatest(logits, max(look, int(top_k.max())))
    least = min_p.log()[:, None]
    if (top_k > 0).any():
        kth = best.gather(1, (top_k.clamp(min=1) - 1)[:, None])
        least = least.maximum(kth.masked_fill((top_k == 0)[:, None], -torch.inf))
    if nucleus:
        left = logits.masked_fill(logits < least, -torch.inf)
        least = least.maximum(_least_of_nucleus(left, best, top_p[:, None]))
    if (least > -torch.inf).any():
        logits.masked_fill_(logits < least, -torch.inf)
    return logits.softmax(dim=-1)


def _least_of_nucleus(logits: Tensor, best: Tensor, top_p: Tensor) -> Tensor:
    """[rows, 1]: the smallest logit in the smallest set of tokens that reaches `top_p` [rows, 1].

    logits  [rows, vocab], relative to each row's greatest
    best    [rows, some], the greatest of them, descending; more are fetched if these do not do
    """
    # A token is exp(logit) times as likely as the likeliest, whose logit is 0.
    greatest = logits.softmax(dim=-1).amax(dim=-1, keepdim=True)
    cut = top_p < 1
    goal = top_p.masked_fill(~cut, 0.0)
    while True:
        summed = (best.exp() * greatest).cumsum(dim=-1, dtype=torch.float64)
        look = best.shape[-1]
        if look == logits.shape[-1] or (summed[:, -1:] >= goal).all():
            break
        best = _greatest(logits, min(8 * look, logits.shape[-1]))
    # The first place where the goal is reached; the last one if rounding keeps it out of reach.
    place = (summed < goal).sum(dim=-1, keepdim=True).clamp_(max=look - 1)
    return best.gather(1, place).masked_fill_(~cut, -torch.inf)


def _greatest(values: Tensor, count: int) -> Tensor:
    """[rows, count]: the greatest of each row of `values`, descending."""
    if count == 0:
        return values[:, :0]
    # numpy's partition takes a tenth of the time of torch's topk.
    greatest = np.partition(values.numpy(), -count, axis=-1)[:, -count:]
    return torch.from_numpy(np.sort(greatest, axis=-1)).flip(-1)
