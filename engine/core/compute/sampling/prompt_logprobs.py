"""Log-probabilities of prompts: how likely the model found tokens that it did not choose.

vLLM's counterpart is `_get_prompt_logprobs_dict` in `vllm/v1/worker/gpu_model_runner.py`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.core.compute.sampling.sampler import compute_logprobs, top_logprobs
from engine.core.request import TokenScore
from engine.core.runner import Row

# Number of prompt positions scored at once. A chunk can have thousands of positions, and each needs
# another float32 per vocabulary entry in addition to its logits.
_CHUNK = 256


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
            own = logprobs.gather(1, chunk[:, None])
            ranks = (logprobs >= own).sum(dim=-1).tolist()
            likeliest = top_logprobs(logprobs, [top] * len(chunk))
            row.scores += map(TokenScore, own[:, 0].tolist(), likeliest, ranks)
            first += len(chunk)
