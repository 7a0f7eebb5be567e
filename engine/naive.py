"""The naive loop: one prompt at a time, and for every new token the whole text once more.

No cache, no batch, no scheduler: what everything else in this project is an improvement on. It is
kept because it is obviously right, so `python -m engine` holds the engine against it.
"""

from collections.abc import Sequence

from engine.runner import Row, Runner
from engine.scheduling.request import Request
from engine.scheduling.sampling_params import SamplingParams


def generate(
    runner: Runner, prompt: Sequence[int], max_tokens: int, eos_ids: frozenset[int]
) -> list[int]:
    """The greedy continuation of `prompt`, at most `max_tokens` ids, the end token included.

    `n` tokens of output over a prompt of `p` cost p + (p + 1) + ... + (p + n - 1) computed tokens;
    the engine computes p + n - 1.
    """
    tokens = list(prompt)
    block_size = 16
    num_blocks = -(-(len(tokens) + max_tokens) // block_size)
    runner.reserve(num_blocks, block_size)  # somewhere to write what is thrown away after each step
    while len(tokens) < len(prompt) + max_tokens:
        request = Request(
            1, tokens, [""] * len(tokens), SamplingParams(), block_table=list(range(num_blocks))
        )
        [[sampled]] = runner.run([Row(request, start=0, count=len(tokens), samples=[0])], [])
        tokens.append(sampled.ids[0])
        if sampled.ids[0] in eos_ids:
            break
    return tokens[len(prompt) :]
