"""Reported log-probabilities of sampled tokens, of the most likely tokens, and of prompts.

They are all read from one tensor, so a token's own log-probability and its entry among the most
likely tokens are the same float. Clients compare them: lm-eval checks whether a text is the greedy one.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.runner import Row
from engine.scheduling.request import TokenScore

# Number of prompt positions scored at once. A chunk can have thousands of positions, and each needs
# another float32 per vocabulary entry in addition to its logits.
_CHUNK = 256


def compute_logprobs(logits: Tensor) -> Tensor:
    """Return the natural logarithms of the probabilities, [rows, vocab] like `logits`.

    Raises FloatingPointError if the logits are not finite.
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    if logprobs[:, 0].isnan().any():  # one bad logit makes its whole row NaN
        raise FloatingPointError("the model's logits are not finite: its weights or KV are damaged")
    return logprobs


def top_logprobs(logprobs: Tensor, counts: Sequence[int]) -> list[list[tuple[int, float]]]:
    """Return the `counts[i]` most likely tokens of row i of `logprobs` [rows, vocab].

    The most likely token comes first, and ties are ordered by id. A row's result must not depend on
    how many tokens another row asks for.
    """
    table = logprobs.numpy()
    most = min(max(counts, default=0), table.shape[-1])
    if most == 0:
        return [[] for _ in counts]
    threshold = np.partition(table, -most, axis=-1)[:, -most]
    # This also finds tokens tied with the last one. They are cut off at the end.
    rows, ids = np.divmod(np.flatnonzero(table >= threshold[:, None]), table.shape[-1])
    values = table[rows, ids]
    order = np.lexsort((-values, rows))  # stable, and ids ascend within a row
    pairs = list(zip(ids[order].tolist(), values[order].tolist(), strict=True))
    firsts = np.searchsorted(rows, np.arange(len(counts))).tolist()
    return [
        pairs[first : first + min(count, most)] for first, count in zip(firsts, counts, strict=True)
    ]


def score_prompts(logits: Tensor, rows: Sequence[Row]) -> None:
    """Fill `row.scores` of the rows whose prompts are scored.

    `logits` [scored positions, vocab] follow the order of the rows. Raises FloatingPointError if they
    are not finite.
    """
    first = 0
    for row in rows:
        tokens = row.request.tokens[row.start + 1 : row.start + 1 + row.scored]
        top = row.request.params.prompt_logprobs or 0
        for start in range(0, len(tokens), _CHUNK):
            chunk = torch.tensor(tokens[start : start + _CHUNK])
            logprobs = compute_logprobs(logits[first : first + len(chunk)])
            own = logprobs.gather(1, chunk[:, None])[:, 0].tolist()
            row.scores += map(TokenScore, own, top_logprobs(logprobs, [top] * len(chunk)))
            first += len(chunk)
