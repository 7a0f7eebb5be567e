"""Masks of structured output: a token that would break the output's shape gets the logit -inf.

They are applied last. Whatever bias, penalties and min_tokens have done to the logits, the sampler
chooses among the allowed tokens only. The reported log-probabilities were read before, so they remain
the model's own.

vLLM's counterpart is `apply_grammar_bitmask` in `vllm/v1/structured_output/utils.py`.

Differs from vLLM: there, the mask comes first, so the log-probabilities of the allowed tokens may add
up to 1 (it depends on `logprobs_mode`).
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.core.runner import LogitPosition, TokenMask


def apply_masks(
    logits: Tensor, positions: list[LogitPosition], logprobs: Tensor
) -> dict[int, TokenMask]:
    """Set the logits of forbidden tokens to -inf in place; return what each mask left.

    `logits` and `logprobs` are [positions, vocab]. Positions without a constraint have no entry.
    """
    masks: dict[int, TokenMask] = {}
    for i, position in enumerate(positions):
        constraint = position.request.constraint
        if constraint is not None:
            own = logprobs[i].numpy()
            allowed = as_array(constraint.mask(position.output()), len(own))
            logits[i].numpy()[~allowed] = -np.inf
            mass = float(np.exp(own[allowed]).sum(dtype=np.float64))
            best = int(own.argmax())
            wanted = None if allowed[best] else best
            masks[i] = TokenMask(int(allowed.sum()), wanted, mass)
    return masks


def as_array(mask: int, size: int) -> NDArray[np.bool_]:
    """Return the first `size` bits of a mask; ids beyond the tokenizer's are not allowed."""
    data = mask.to_bytes(-(-mask.bit_length() // 8), "little")
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=size, bitorder="little")
    return bits.view(np.bool_)
