"""Speculative decoding: how many drafted tokens does the model agree with?

A drafter guesses the next tokens, and one forward pass gives the model's own distribution at each of
these positions. The general rule (Leviathan et al., arXiv:2211.17192; vLLM's
`vllm/v1/sample/rejection_sampler.py`) accepts a draft x, drawn with probability q(x), with probability
min(1, p(x) / q(x)). At the first rejection it draws from the part of p that exceeds q.

Our drafters are deterministic, so q(x) = 1, and the rule becomes: accept x with probability p(x), or
else draw from p without x, renormalised. There is a shorter way to do exactly that: draw a token from
p, and accept the draft if it is that token. The token is x with probability p(x), and if it is not x,
it is distributed as p without x. A token's random number depends only on the seed, the sample and the
position (`uniform`), so this draws the same tokens that would have been drawn without drafts:
speculation changes no output, greedy or not, up to the rounding that `uniform` explains.

A learner can implement the general rule as a `Verifier`, which replaces `count_accepted`.

Differs from vLLM, whose rejection sampler draws separate random numbers for accepting and for the token
after a rejection. The distribution of the output is the same, but with a seed the tokens may differ
from those without drafts.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from engine.core.compute.sampling_reference import draw
from engine.core.runner import LogitPosition, Row, Sampled, SamplerOutput, uniform

Pick = Callable[[Sequence[float]], int]


class Verifier(Protocol):
    """Decides which drafts a request keeps, and which token follows them."""

    def accept(
        self, p: list[list[float]], drafts: list[int], numbers: list[float], pick: Pick
    ) -> list[int]:
        """Return the leading drafts to keep, and one more token.

        p        the model's distribution at the position of each draft and after the last one
        numbers  uniform in [0, 1), one for each draft
        pick     draws a token with the given weights, one for each token of the vocabulary
        """


def count_accepted(drafts: Sequence[int], sampled: Sequence[int]) -> int:
    """Return how many leading drafts are accepted.

    `sampled[j]` is the token sampled after `drafts[:j]`, so `sampled` is one longer than `drafts`.
    Tokens after the first disagreement continue a rejected text, so they are dropped. The request gains
    `sampled[: accepted + 1]`: the accepted drafts and one more token.
    """
    for accepted, (draft, token) in enumerate(zip(drafts, sampled, strict=False)):
        if draft != token:
            return accepted
    return len(drafts)


def apply_verifier(
    verifier: Verifier,
    rows: Sequence[Row],
    positions: Sequence[LogitPosition],
    results: list[list[Sampled]],
    *,
    probs: Sequence[Sequence[float]],
    report: Callable[[int, list[int]], Sampled],
) -> None:
    """Replace the results of rows with drafts by the verifier's answers.

    Rows with drafts have one sample each. `probs` is [positions, vocab]. `report` builds the result
    from the index of the first token's position and the tokens.
    """
    first = 0
    for row, samples in zip(rows, results, strict=True):
        end = first + len(row.samples) * (len(row.drafts) + 1)
        if row.drafts and samples:
            ids = ask_verifier(verifier, positions[first:end], probs[first:end])
            samples[:] = [report(first, ids)]
        first = end


def ask_verifier(
    verifier: Verifier, positions: Sequence[LogitPosition], p: Sequence[Sequence[float]]
) -> list[int]:
    """Ask a verifier about the drafts at a row's positions; p is [positions, vocab].

    As everywhere, the random numbers depend only on the seed, sample and position. They differ from the
    sampler's numbers, because a draft model draws its drafts with those (`draft_model.py`), and the
    number that decides on a draft must be independent of it. Raises ValueError unless the answer is
    some leading drafts, possibly none, and one more token.
    """
    drafts = list(positions[-1].drafts)
    # No sample has a negative index, so the sampler never draws these numbers.
    seed, sample, first = positions[0].request.seed, positions[0].sample, positions[0].position
    numbers = [uniform(seed, -1 - 2 * sample, first + index) for index in range(len(drafts))]
    pick = partial(draw, number=uniform(seed, -2 - 2 * sample, first))
    ids = list(verifier.accept(list(map(list, p)), list(drafts), numbers, pick))
    if not 1 <= len(ids) <= len(positions) or ids[:-1] != drafts[: len(ids) - 1]:
        raise ValueError(
            f"{type(verifier).__name__}.accept must return leading drafts of {drafts} and one more "
            f"token, got {ids}"
        )
    return ids


def split_output(rows: Sequence[Row], output: SamplerOutput) -> list[list[Sampled]]:
    """Split a step's tokens by row and sample: the accepted drafts and one more token for each."""
    results: list[list[Sampled]] = []
    first = 0  # index of the sample's first entry in the output
    for row in rows:
        samples: list[Sampled] = []
        for _ in row.samples:
            end = first + 1
            if row.drafts:
                end += count_accepted(row.drafts, output.token_ids[first : end + len(row.drafts)])
            samples.append(output.sampled(first, end))
            first += len(row.drafts) + 1
        results.append(samples)
    return results
