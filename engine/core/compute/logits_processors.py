"""Changes to individual logits before sampling: bias, penalties and forbidden tokens.

Only a few tokens of the vocabulary are affected, so only their logits are read and written; only
`allowed_token_ids` affects nearly all. Each function changes the given rows of `logits`
[positions, vocab] in place, and is called only when a row uses its parameter. The formulas are vLLM's
(`vllm/v1/sample/logits_processor/builtin.py`, `vllm/v1/sample/ops/bad_words.py` and `apply_penalties`
in `vllm/model_executor/layers/utils.py`).

Differs from vLLM: a forbidden token gets the lowest float32 value instead of -inf. A request that
forbids every token therefore still gets one, and does not fail the step for the others.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.core.runner import LogitPosition, TokenMask

_MAX = torch.finfo(torch.float32).max
_LAST_RESORT = -1e38  # below the logits of all models, above a forbidden token's
_MAX_PENALTY = 1e30  # stronger penalties are clamped, because float32 would overflow


def apply_logit_bias(logits: Tensor, positions: list[LogitPosition], rows: list[int]) -> None:
    """Add each request's `logit_bias`."""
    for i in rows:
        bias = positions[i].params.logit_bias
        logits[i, list(bias)] += torch.tensor(list(bias.values()), dtype=torch.float32)


def apply_min_tokens(logits: Tensor, positions: list[LogitPosition], rows: list[int]) -> None:
    """Forbid the end tokens."""
    for i in rows:
        logits[i, list(positions[i].request.end_ids)] = -_MAX


def apply_bad_words(logits: Tensor, positions: list[LogitPosition], rows: list[int]) -> None:
    """Forbid the last token of each bad word whose other tokens end the output."""
    for i in rows:
        output = positions[i].output()
        for *prefix, last in positions[i].request.bad_word_ids:
            if not prefix or output[-len(prefix) :] == prefix:
                logits[i, last] = -_MAX


def apply_allowed_token_ids(
    logits: Tensor, positions: list[LogitPosition], rows: list[int]
) -> None:
    """Forbid all other tokens.

    If the allowed ones are forbidden, too, they stay ahead of the others, so one of them is sampled.
    """
    for i in rows:
        allowed_ids = positions[i].params.allowed_token_ids or ()
        # There may be as many as the vocabulary has, and torch converts a list much more slowly.
        ids = torch.from_numpy(np.fromiter(allowed_ids, np.int64, len(allowed_ids)))
        allowed = logits[i, ids].clamp(min=_LAST_RESORT)
        logits[i] = -_MAX
        logits[i, ids] = allowed


def apply_repetition_penalty(
    logits: Tensor, positions: list[LogitPosition], rows: list[int]
) -> None:
    """Divide positive logits of prompt and output tokens by the penalty; multiply negative ones."""
    index, lengths = _flat_index(rows, [positions[i].text() for i in rows], logits.shape[-1])
    penalties = [positions[i].params.repetition_penalty for i in rows]
    penalty = _repeat(np.clip(penalties, 1 / _MAX_PENALTY, _MAX_PENALTY), lengths)
    flat = logits.view(-1)
    values = flat[index]
    values = torch.where(values > 0, values / penalty, values * penalty)
    flat[index] = values.clamp_(-_MAX, _MAX)


def apply_frequency_and_presence_penalties(
    logits: Tensor, positions: list[LogitPosition], rows: list[int]
) -> None:
    """Subtract `frequency_penalty` per occurrence in the output, and `presence_penalty` once."""
    index, lengths = _flat_index(rows, [positions[i].output() for i in rows], logits.shape[-1])
    frequency = _repeat([positions[i].params.frequency_penalty for i in rows], lengths)
    presence = _repeat([positions[i].params.presence_penalty for i in rows], lengths)
    counts = torch.zeros(logits.numel()).index_add_(0, index, torch.ones(len(index)))[index]
    flat = logits.view(-1)
    flat[index] = flat[index] - (frequency * counts + presence)


def _flat_index(rows: list[int], texts: list[list[int]], vocab: int) -> tuple[Tensor, list[int]]:
    """Return the texts' tokens as indexes into the flattened logits, and the texts' lengths.

    A token that occurs several times is listed several times, but always gets the same value.
    """
    lengths = [len(text) for text in texts]
    ids = np.fromiter(chain.from_iterable(texts), np.int64, sum(lengths))
    return torch.from_numpy(ids + np.repeat(np.array(rows) * vocab, lengths)), lengths


def _repeat(values: Sequence[float] | NDArray[np.float64], lengths: Sequence[int]) -> Tensor:
    """Repeat each row's value for each token of its text."""
    return torch.from_numpy(np.repeat(np.array(values, dtype=np.float32), lengths))


def apply_masks(
    logits: Tensor, positions: list[LogitPosition], logprobs: Tensor
) -> dict[int, TokenMask]:
    """Set the logits of tokens that would break an output's shape to -inf; return what each mask left.

    `logits` and `logprobs` are [positions, vocab]. Positions without a constraint have no entry. Masks
    are applied last: whatever bias, penalties and min_tokens have done to the logits, the sampler
    chooses among the allowed tokens only. The reported log-probabilities were read before, so they
    remain the model's own.

    vLLM's counterpart is `apply_grammar_bitmask` in `vllm/v1/structured_output/utils.py`.

    Differs from vLLM: there, the mask comes first, so the log-probabilities of the allowed tokens may
    add up to 1 (it depends on `logprobs_mode`).
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
