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
"""

from collections.abc import Sequence


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
