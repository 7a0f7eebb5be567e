"""Speculative decoding: how many drafted tokens does the model agree with?

A drafter guesses the next tokens, and one forward pass gives the model's own distribution at every
one of these places. The general rule (Leviathan et al., arXiv:2211.17192; vLLM's
`vllm/v1/sample/rejection_sampler.py`) takes a draft x, drawn with probability q(x), with probability
min(1, p(x) / q(x)), and at the first rejection draws from what p has more than q.

Our drafters are deterministic, q(x) = 1: accept with probability p(x), else draw from p without x,
renormalised. There is a shorter way to do exactly that: draw a token from p, and accept the draft if
it is that token. It is x with probability p(x), and given that it is not, it follows p without x.
Since a token's random number depends on its position alone (`randomness.py`), this draws the very
tokens that would have been drawn without drafts: speculation changes no output, greedy or not.

A learner may write the general rule: a Verifier is asked in the place of `count_accepted`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.compute.sampling.logit_positions import LogitPosition
from engine.compute.sampling.randomness import uniforms
from engine.compute.sampling.sampler import draw

Pick = Callable[[Sequence[float]], int]


class Verifier(Protocol):
    """Decides which drafts a request keeps, and which token follows them."""

    def accept(
        self, p: list[list[float]], drafts: list[int], numbers: list[float], pick: Pick
    ) -> list[int]:
        """The leading drafts that are kept, and one token more.

        p        the model's distribution in the place of each draft and behind the last one
        numbers  uniform in [0, 1), one for each draft
        pick     draws a token in proportion to weights, one for each token of the vocabulary
        """
        ...


def count_accepted(drafts: Sequence[int], chosen: Sequence[int]) -> int:
    """How many leading drafts are kept.

    `chosen[j]` is the model's choice after `drafts[:j]`, so it is one longer than `drafts`. Behind the
    first disagreement the choices follow a text that does not exist. What the request gains is
    `chosen[: accepted + 1]`: the accepted drafts and one token more.
    """
    for accepted, (draft, choice) in enumerate(zip(drafts, chosen, strict=False)):
        if draft != choice:
            return accepted
    return len(drafts)


def ask_verifier(verifier: Verifier, places: Sequence[LogitPosition], p: Tensor) -> list[int]:
    """What a verifier makes of the drafts in a row's places; p [places, vocab].

    Its random numbers depend on seed, sample and position alone, as all are. Raises ValueError for
    an answer that is not some leading drafts and one token more.
    """
    drafts = list(places[-1].drafts)
    seeds = [place.request.seed for place in places]
    samples = [place.sample for place in places]
    positions = [place.position for place in places]
    numbers = uniforms(seeds, samples, positions)[:-1].tolist()
    # A stream of its own: no sample has a negative index.
    other = torch.from_numpy(uniforms(seeds[:1], [-1 - samples[0]], positions[:1]))

    def pick(weights: Sequence[float]) -> int:
        return int(draw(torch.tensor([list(weights)], dtype=torch.float64), other)[0])

    ids = list(verifier.accept(p.tolist(), list(drafts), numbers, pick))
    if not 1 <= len(ids) <= len(places) or ids[:-1] != drafts[: len(ids) - 1]:
        raise ValueError(
            f"{type(verifier).__name__}.accept must return leading drafts of {drafts} and one token "
            f"more, got {ids}"
        )
    return ids
