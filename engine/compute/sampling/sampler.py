"""From logits to tokens, for all places of a step at once.

    bias -> log-probabilities (reported) -> end tokens forbidden -> penalties
         -> greedy: the likeliest | else temperature -> min-p -> top-k -> top-p -> one draw

The order is vLLM's (`vllm/v1/sample/sampler.py`), but for the bias: it is part of what is reported.
Each stage looks for the places that use it and does nothing when there are none.

The draw goes through the vocabulary in the order of ids and stops where the summed probability passes
a uniform number. In the order of probability it would be fragile: two almost equally likely tokens
may change places with the last bit of a logit, and with it the token drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.compute.sampling.logit_bias import add_bias, forbid_early_ends
from engine.compute.sampling.logit_positions import LogitPosition
from engine.compute.sampling.logprobs import likeliest, log_probabilities
from engine.compute.sampling.penalties import penalize_frequency_and_presence, penalize_repetition
from engine.compute.sampling.randomness import uniforms
from engine.compute.sampling.truncation import TokenProbs, truncated_probs


@dataclass(slots=True)
class Choices:
    """What was chosen: entry i of `ids` and `logprobs` is for place i.

    `top` has the likeliest tokens of the places that ask for them.
    """

    ids: list[int]
    logprobs: list[float]
    top: dict[int, list[tuple[int, float]]]


def choose(
    logits: Tensor, places: Sequence[LogitPosition], logits_to_probs: TokenProbs = truncated_probs
) -> Choices:
    """A token for each place, from its row of `logits` [places, vocab], which may be changed.

    `logits_to_probs` says what tokens are drawn in proportion to, for places that are not greedy.
    Log-probabilities are those of the model's own distribution with the bias added. Raises
    FloatingPointError if the logits are not finite.
    """
    logprobs = _prepare(logits, places)
    # numpy's argmax, because torch's takes ten times as long; both return the first of equals.
    ids = torch.from_numpy(logits.numpy().argmax(axis=-1))
    drawn = [i for i, place in enumerate(places) if place.params.temperature > 0]
    if drawn:
        rows = drawn if len(drawn) < len(places) else slice(None)
        ids[rows] = _draw_all(logits[rows], [places[i] for i in drawn], logits_to_probs)
    chosen = logprobs.gather(1, ids[:, None])[:, 0]
    return Choices(ids.tolist(), chosen.tolist(), _top(logprobs, places))


def probabilities(
    logits: Tensor, places: Sequence[LogitPosition], logits_to_probs: TokenProbs = truncated_probs
) -> tuple[Tensor, Tensor]:
    """What `choose` would draw from, for whoever wants to draw in another way.

    Both [places, vocab]: log-probabilities as they are reported, and probabilities after temperature
    and cuts, all on one token where the request is greedy. `logits` may be changed.
    """
    logprobs = _prepare(logits, places)
    ids = torch.from_numpy(logits.numpy().argmax(axis=-1))
    drawn_from = torch.nn.functional.one_hot(ids, logits.shape[-1]).to(logits.dtype)
    drawn = [i for i, place in enumerate(places) if place.params.temperature > 0]
    if drawn:
        drawn_from[drawn] = _weights(logits[drawn], [places[i] for i in drawn], logits_to_probs)
    return logprobs, drawn_from


def draw(weights: Tensor, numbers: Tensor) -> Tensor:
    """The ids [rows] that uniform numbers [rows] fall on, in the order of ids.

    `weights` [rows, vocab] are in proportion to the probabilities.
    """
    # In double precision, or the sum over a large vocabulary would miss 1 by more than rare tokens.
    summed = weights.cumsum(dim=-1, dtype=torch.float64)
    targets = numbers[:, None] * summed[:, -1:]
    return torch.searchsorted(summed, targets, right=True)[:, 0]


def _prepare(logits: Tensor, places: Sequence[LogitPosition]) -> Tensor:
    """Bias and penalties, in `logits` itself; the log-probabilities that are reported."""
    add_bias(logits, places)
    logprobs = log_probabilities(logits)
    penalize_repetition(logits, places)
    penalize_frequency_and_presence(logits, places)
    # Last, so that no penalty changes it: what is forbidden has no logit to speak of.
    forbid_early_ends(logits, places)
    return logprobs


def _draw_all(
    logits: Tensor, places: Sequence[LogitPosition], logits_to_probs: TokenProbs
) -> Tensor:
    numbers = uniforms(
        [place.request.seed for place in places],
        [place.sample for place in places],
        [place.position for place in places],
    )
    return draw(_weights(logits, places, logits_to_probs), torch.from_numpy(numbers))


def _weights(
    logits: Tensor, places: Sequence[LogitPosition], logits_to_probs: TokenProbs
) -> Tensor:
    params = [place.params for place in places]
    return logits_to_probs(
        logits,
        torch.tensor([p.temperature for p in params], dtype=torch.float32),
        torch.tensor([p.min_p for p in params], dtype=torch.float32),
        torch.tensor([min(p.top_k, logits.shape[-1]) for p in params]),
        torch.tensor([p.top_p for p in params], dtype=torch.float64),
    )


def _top(logprobs: Tensor, places: Sequence[LogitPosition]) -> dict[int, list[tuple[int, float]]]:
    asked = [i for i, place in enumerate(places) if place.params.logprobs is not None]
    if not asked:
        return {}
    counts = [places[i].params.logprobs or 0 for i in asked]
    return dict(zip(asked, likeliest(logprobs[asked], counts), strict=True))
