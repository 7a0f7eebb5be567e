"""A plain generation loop for evaluation, without a KV cache or a scheduler.

Every step recomputes the rows in full. Shorter rows are padded on the right, where a causal model
does not look. The calculator works as in the engine: when the model closes an expression, its value is
appended to the row. The lessons show how the engine generates the same text many times faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tokenizers import Tokenizer
from torch import Tensor

from engine.output.calculator import evaluate
from engine.training import documents
from engine.training.documents import SPECIAL_TOKENS
from engine.training.tokenizer import encode_text

_ID = {token: index for index, token in enumerate(SPECIAL_TOKENS)}
_ENDS = {_ID[documents.ASSISTANT_END], _ID[documents.BOS]}


@torch.inference_mode()
def generate(
    forward: Callable[[Tensor], Tensor],
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int = 120,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[list[int]]:
    """Continue each prompt until its end token or ``max_tokens``; return only the new ids.

    ``forward`` maps token ids ``[rows, length]`` to logits ``[rows, length, vocab]``. The result
    includes forced tokens and excludes the end token.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = [list(prompt) for prompt in prompts]
    active = list(range(len(rows)))
    while active:
        length = max(len(rows[row]) for row in active)
        padded = torch.zeros(len(active), length, dtype=torch.long)
        for i, row in enumerate(active):
            padded[i, : len(rows[row])] = torch.tensor(rows[row])
        last = torch.tensor([len(rows[row]) - 1 for row in active])
        logits = forward(padded)[torch.arange(len(active)), last].float()
        if temperature == 0:
            chosen = logits.argmax(-1)
        else:
            chosen = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
        for row, token in zip(list(active), chosen.flatten().tolist(), strict=True):
            new = len(rows[row]) - len(prompts[row])
            if token in _ENDS or new >= max_tokens:
                active.remove(row)
                continue
            rows[row].append(token)
            if token == _ID[documents.PYTHON_END]:
                rows[row] += forced(tokenizer, rows[row])
    return [row[len(prompt) :] for row, prompt in zip(rows, prompts, strict=True)]


def forced(tokenizer: Tokenizer, row: list[int]) -> list[int]:
    """Return the calculator's output for the expression at the end of ``row``, as tokens."""
    start = _ID[documents.PYTHON_START]
    if start not in row:
        return []
    begin = len(row) - 1 - row[::-1].index(start)
    result = evaluate(tokenizer.decode(row[begin + 1 : -1], skip_special_tokens=False))
    if result is None:
        return []
    output = encode_text(tokenizer, result)
    return [_ID[documents.OUTPUT_START], *output, _ID[documents.OUTPUT_END]]
