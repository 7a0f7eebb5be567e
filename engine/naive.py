"""The naive loop: serve one prompt at a time and recompute the whole text for each new token.

It has no cache, no batch and no scheduler. It is obviously correct, so `python -m engine` checks
the engine against it.
"""

from collections.abc import Sequence

from engine.core.request import Request
from engine.core.runner import Row, Runner
from engine.core.sampling_params import SamplingParams


def generate(
    runner: Runner, prompt: Sequence[int], max_tokens: int, eos_ids: frozenset[int]
) -> list[int]:
    """Return the greedy continuation of `prompt`, at most `max_tokens` ids including the end token.

    For n output tokens after a prompt of p tokens, it computes p + (p + 1) + ... + (p + n - 1)
    tokens; the engine computes p + n - 1.
    """
    tokens = list(prompt)
    block_size = 16
    num_blocks = -(-(len(tokens) + max_tokens) // block_size)
    runner.reserve(num_blocks, block_size)  # run() needs slots to write to
    while len(tokens) < len(prompt) + max_tokens:
        request = Request(
            1, tokens, [""] * len(tokens), SamplingParams(), block_table=list(range(num_blocks))
        )
        [[sampled]] = runner.run([Row(request, start=0, count=len(tokens), samples=[0])], [])
        tokens.append(sampled.ids[0])
        if sampled.ids[0] in eos_ids:
            break
    return tokens[len(prompt) :]
