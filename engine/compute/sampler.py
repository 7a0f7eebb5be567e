"""From logits to tokens, for all requests of a step at once.

The order is vLLM's (`vllm/v1/sample/sampler.py`): temperature, then top-k, then top-p, then one draw.
The draw goes through the vocabulary in the order of ids and stops where the summed probability passes
a uniform number. In the order of probability it would be fragile: two almost equally likely tokens
may change places with the last bit of a logit, and with it the token drawn.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.compute.randomness import uniforms
from engine.scheduling.sampling_params import SamplingParams

# Top-p looks at this many of the likeliest tokens first; sorting a whole vocabulary takes longer
# than the rest of sampling together.
_FIRST_LOOK = 64
_COOLEST = 1e-30  # what smaller temperatures count as, or float32 would overflow


@dataclass(slots=True)
class Draws:
    """The tokens to choose: entry i goes with row i of the logits."""

    params: list[SamplingParams] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    def add(self, params: SamplingParams, seed: int, sample: int, position: int) -> None:
        """One more token to choose, for `position` of the text of sample `sample`."""
        self.params.append(params)
        self.seeds.append(seed)
        self.samples.append(sample)
        self.positions.append(position)


def choose(logits: Tensor, draws: Draws) -> tuple[list[int], list[float]]:
    """A token for each row of `logits` [draws, vocab], and its log-probability.

    Log-probabilities are those of the model's own distribution, before temperature and cuts. Raises
    FloatingPointError if the logits are not finite.
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    if logprobs[:, 0].isnan().any():  # one bad logit spoils its whole row
        raise FloatingPointError("the model's logits are not finite: its weights or KV are damaged")
    ids = logits.argmax(dim=-1)
    drawn = [i for i, params in enumerate(draws.params) if params.temperature > 0]
    if drawn:
        params = [draws.params[i] for i in drawn]
        rows = drawn if len(drawn) < len(logits) else slice(None)
        probabilities = distribution(
            logits[rows],
            torch.tensor([p.temperature for p in params]),
            torch.tensor([min(p.top_k, logits.shape[-1]) for p in params]),
            torch.tensor([p.top_p for p in params], dtype=torch.float64),
        )
        numbers = uniforms(
            [draws.seeds[i] for i in drawn],
            [draws.samples[i] for i in drawn],
            [draws.positions[i] for i in drawn],
        )
        ids[rows] = draw(probabilities, torch.from_numpy(numbers))
    chosen = logprobs.gather(1, ids[:, None])[:, 0]
    return ids.tolist(), chosen.tolist()


def distribution(logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """The probabilities that tokens are drawn with: [rows, vocab], each row sums to 1.

    logits       [rows, vocab]
    temperature  [rows], above 0
    top_k        [rows], at most vocab; 0 keeps all
    top_p        [rows], 1 keeps all; otherwise the smallest set whose probability reaches it

    Tokens tied with the last one kept are kept too, or the cut would depend on how ties are sorted.
    """
    logits = logits / temperature.clamp(min=_COOLEST)[:, None]
    if (top_k > 0).any() or (top_p < 1).any():
        logits = logits.masked_fill(logits < _least_kept(logits, top_k, top_p), -torch.inf)
    return logits.softmax(dim=-1)


def draw(probabilities: Tensor, numbers: Tensor) -> Tensor:
    """The ids [rows] that uniform numbers [rows] fall on, in the order of ids."""
    # In double precision, or the sum over a large vocabulary would miss 1 by more than rare tokens.
    summed = probabilities.cumsum(dim=-1, dtype=torch.float64)
    targets = numbers[:, None] * summed[:, -1:]
    return torch.searchsorted(summed, targets, right=True)[:, 0]


def _least_kept(logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """[rows, 1]: the smallest logit that top-k and then top-p keep; -inf where nothing is cut."""
    vocab = logits.shape[-1]
    look = max(min(_FIRST_LOOK, vocab), int(top_k.max()))
    likeliest = logits.topk(look).values
    kth = likeliest.gather(1, (top_k.clamp(min=1) - 1)[:, None])
    least = kth.masked_fill((top_k == 0)[:, None], -torch.inf)
    cut = (top_p < 1)[:, None]
    if not cut.any():
        return least
    # Top-p counts the probability among those that top-k has left.
    total = logits.masked_fill(logits < least, -torch.inf).logsumexp(dim=-1, keepdim=True)
    goal = top_p[:, None].masked_fill(~cut, 0.0)
    while True:
        summed = (likeliest - total).exp().cumsum(dim=-1, dtype=torch.float64)
        if look == vocab or (summed[:, -1:] >= goal).all():
            break
        look = min(8 * look, vocab)
        likeliest = logits.topk(look).values
    # The first place where the goal is reached; the last one if rounding keeps it out of reach.
    place = (summed < goal).sum(dim=-1, keepdim=True).clamp(max=look - 1)
    return least.maximum(likeliest.gather(1, place).masked_fill(~cut, -torch.inf))
