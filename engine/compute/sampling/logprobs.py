"""What is told beside the tokens: log-probabilities of chosen ones, of the likeliest, of prompts.

All of them are read from one tensor, so that a token's own log-probability and its entry among the
likeliest are the same float: clients compare them (lm-eval asks whether a text is the greedy one).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.runner import Row
from engine.scheduling.request import TokenScore

# Scored positions per slice. A chunk has thousands, and each needs a float32 for the whole
# vocabulary, beside its logits.
_SLICE = 256


def log_probabilities(logits: Tensor) -> Tensor:
    """The natural logarithms of the probabilities: [rows, vocab], like `logits`.

    Raises FloatingPointError if the logits are not finite.
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    if logprobs[:, 0].isnan().any():  # one bad logit spoils its whole row
        raise FloatingPointError("the model's logits are not finite: its weights or KV are damaged")
    return logprobs


def likeliest(logprobs: Tensor, counts: Sequence[int]) -> list[list[tuple[int, float]]]:
    """The `counts[i]` likeliest tokens of row i of `logprobs` [rows, vocab], with theirs.

    Most probable first, of equally probable ones the smaller id first: what a row gets must not
    depend on how many tokens another row wants.
    """
    table = logprobs.numpy()
    most = min(max(counts, default=0), table.shape[-1])
    if most == 0:
        return [[] for _ in counts]
    least = np.partition(table, -most, axis=-1)[:, -most]
    # Ties with the last one are found as well, and cut off at the end.
    rows, ids = np.divmod(np.flatnonzero(table >= least[:, None]), table.shape[-1])
    values = table[rows, ids]
    order = np.lexsort((-values, rows))  # stable, and ids ascend within a row
    pairs = list(zip(ids[order].tolist(), values[order].tolist(), strict=True))
    firsts = np.searchsorted(rows, np.arange(len(counts))).tolist()
    return [
        pairs[first : first + min(count, most)] for first, count in zip(firsts, counts, strict=True)
    ]


def score_prompts(logits: Tensor, rows: Sequence[Row]) -> None:
    """Fill `row.scores` of the rows whose prompt is scored.

    `logits` [logits, vocab] are all of the step's, in the order of `make_batch`. Raises
    FloatingPointError if they are not finite.
    """
    first = 0
    for row in rows:
        count = row.scored
        if count:
            tokens = row.request.tokens[row.start + 1 : row.start + 1 + count]
            row.scores = _scores(
                logits[first : first + count], tokens, row.request.params.prompt_logprobs or 0
            )
        first += count + (len(row.drafts) + 1 if row.samples else 0)


def _scores(logits: Tensor, tokens: Sequence[int], top: int) -> list[TokenScore]:
    """The score of tokens[i] where the model has said logits[i]."""
    scores: list[TokenScore] = []
    for first in range(0, len(tokens), _SLICE):
        part = torch.tensor(tokens[first : first + _SLICE])
        logprobs = log_probabilities(logits[first : first + _SLICE])
        own = logprobs.gather(1, part[:, None])[:, 0].tolist()
        scores += map(TokenScore, own, likeliest(logprobs, [top] * len(part)))
    return scores
