"""Sampling: from logits to tokens, for all positions of a step; `sampling_reference.py` handles one.

    logit bias -> log-probabilities (reported) -> penalties -> min_tokens
        -> bad_words -> allowed_token_ids -> mask
        -> greedy: the likeliest token | else temperature -> min-p -> top-k -> top-p -> one draw

Stages that no request uses are skipped. All reported log-probabilities are read from one tensor, so a
token's own and its entry among the most likely tokens are the same float. Clients compare them: lm-eval
checks whether a text is the greedy one.

Differs from vLLM (`vllm/v1/sample/sampler.py`):

- The random number is a hash of seed, sample and position (`uniform` of `runner.py`). vLLM draws from a
  `torch.Generator`, one per request with a seed and one for all others.
- The token is looked up in the cumulative probabilities, in order of ids. vLLM divides the
  probabilities by exponential noise and takes the maximum; the distribution is the same. Ordering by
  probability would make the draw fragile: a change in the last bit of a logit may swap two almost
  equally likely tokens.
- Reported log-probabilities include the logit bias. vLLM's default (`raw_logprobs`) leaves it out.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.core.compute.logits_processors import (
    apply_allowed_token_ids,
    apply_bad_words,
    apply_frequency_and_presence_penalties,
    apply_logit_bias,
    apply_masks,
    apply_min_tokens,
    apply_repetition_penalty,
)
from engine.core.request import TokenScore
from engine.core.runner import LogitPosition, Row, SamplerOutput, uniform

# The signature of `truncated_probs`, for learners who write their own.
TokenProbs = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
# Top-p looks at this many of the most likely tokens first, because sorting a whole vocabulary takes
# longer than all the rest of sampling.
_NUM_CANDIDATES = 64
# Temperatures are clamped to this range, because float32 would overflow.
_MIN_TEMPERATURE, _MAX_TEMPERATURE = 1e-30, 1e30
_Processor = Callable[[Tensor, list[LogitPosition], list[int]], None]
# The bans come last, so that no penalty changes the logits of forbidden tokens.
_PENALTIES_AND_BANS: tuple[_Processor, ...] = (
    apply_repetition_penalty,
    apply_frequency_and_presence_penalties,
    apply_min_tokens,
    apply_bad_words,
    apply_allowed_token_ids,
)


def truncated_probs(
    logits: Tensor, temperature: Tensor, min_p: Tensor, top_k: Tensor, top_p: Tensor
) -> Tensor:
    """Return the probabilities to sample with, [rows, vocab]; 0 for tokens that are cut.

    logits       [rows, vocab], finite or -inf
    temperature  [rows], above 0
    min_p        [rows], minimum probability, relative to the most likely token's; 0 keeps all
    top_k        [rows], at most vocab; 0 keeps all
    top_p        [rows] float64, share of the probability left by the other cuts; the smallest set of
                 most likely tokens that reaches it is kept; 1 keeps all

    Tokens tied with the last one kept are kept, too; otherwise a cut would depend on how ties are
    sorted. `sampling_reference.py` has the definition.
    """
    # Relative to the most likely token, whose logit becomes 0 at any temperature.
    logits = logits - logits.amax(dim=-1, keepdim=True)
    logits /= temperature.clamp(_MIN_TEMPERATURE, _MAX_TEMPERATURE)[:, None]
    use_top_p = bool((top_p < 1).any())
    num_candidates = min(_NUM_CANDIDATES, logits.shape[-1]) if use_top_p else 0
    num_candidates = max(num_candidates, int(top_k.max()))
    candidates = _top_values(logits, num_candidates) if num_candidates else logits[:, :0]
    threshold = min_p.log()[:, None]
    if (top_k > 0).any():
        kth = candidates.gather(1, (top_k.clamp(min=1) - 1)[:, None])
        threshold = threshold.maximum(kth.masked_fill((top_k == 0)[:, None], -torch.inf))
    if use_top_p:
        left = logits.masked_fill(logits < threshold, -torch.inf)
        threshold = threshold.maximum(_top_p_threshold(left, candidates, top_p[:, None]))
    if (threshold > -torch.inf).any():
        logits.masked_fill_(logits < threshold, -torch.inf)
    return logits.softmax(dim=-1)


def _top_p_threshold(logits: Tensor, candidates: Tensor, top_p: Tensor) -> Tensor:
    """Return the smallest logit [rows, 1] in the smallest set of tokens that reaches `top_p`.

    logits      [rows, vocab], relative to each row's maximum
    candidates  [rows, some], the largest logits, descending; more are fetched if needed
    top_p       [rows, 1]
    """
    # A token is exp(logit) times as likely as the most likely one, whose logit is 0.
    max_prob = logits.softmax(dim=-1).amax(dim=-1, keepdim=True)
    truncate = top_p < 1
    target = top_p.masked_fill(~truncate, 0.0)
    while True:
        cumulative = (candidates.exp() * max_prob).cumsum(dim=-1, dtype=torch.float64)
        count = candidates.shape[-1]
        if count == logits.shape[-1] or (cumulative[:, -1:] >= target).all():
            break
        candidates = _top_values(logits, min(8 * count, logits.shape[-1]))
    # The first candidate that reaches the target, or the last one if rounding prevents it.
    index = (cumulative < target).sum(dim=-1, keepdim=True).clamp_(max=count - 1)
    return candidates.gather(1, index).masked_fill_(~truncate, -torch.inf)


def _top_values(values: Tensor, count: int) -> Tensor:
    """Return the largest values of each row, [rows, count], descending."""
    # numpy's partition takes a tenth of the time of torch's topk.
    largest = np.partition(values.numpy(), -count, axis=-1)[:, -count:]
    return torch.from_numpy(np.sort(largest, axis=-1)).flip(-1)


def sample(
    logits: Tensor,
    positions: list[LogitPosition],
    logits_to_probs: TokenProbs = truncated_probs,
) -> SamplerOutput:
    """Sample a token for each position from its row of `logits` [positions, vocab].

    `logits` are changed in place. `logits_to_probs` computes the probabilities to draw with, for
    requests that are not greedy. Raises FloatingPointError if the logits are not finite.
    """
    logprobs = process_logits(logits, positions)
    drawn, chosen, numbers = list[int](), list[LogitPosition](), list[float]()
    reported, counts, is_masked = list[int](), list[int](), False
    for i, position in enumerate(positions):
        params = position.params
        if params.temperature > 0:
            drawn.append(i)
            chosen.append(position)
            numbers.append(uniform(position.request.seed, position.sample, position.position))
        if params.logprobs is not None:
            reported.append(i)
            counts.append(params.logprobs)
        is_masked |= position.request.constraint is not None
    masks = apply_masks(logits, positions, logprobs) if is_masked else {}
    # Use numpy's argmax, because torch's takes ten times as long; both return the first maximum.
    ids = torch.from_numpy(logits.numpy().argmax(axis=-1))
    if drawn:
        rows = drawn if len(drawn) < len(positions) else slice(None)
        probs = _probs(logits[rows], chosen, logits_to_probs)
        ids[rows] = draw(probs, torch.tensor(numbers, dtype=torch.float64))
    top: dict[int, list[tuple[int, float]]] = {}
    if reported:
        top = dict(zip(reported, top_logprobs(logprobs[reported], counts), strict=True))
    own = logprobs.gather(1, ids[:, None])[:, 0].tolist()
    return SamplerOutput(ids.tolist(), own, top, masks)


def probabilities(
    logits: Tensor,
    positions: list[LogitPosition],
    logits_to_probs: TokenProbs = truncated_probs,
) -> tuple[Tensor, Tensor]:
    """Return the reported log-probabilities and the probabilities that `sample` draws with.

    Both are [positions, vocab]. A greedy request puts all probability on one token. `logits` are
    changed in place.
    """
    logprobs = process_logits(logits, positions)
    apply_masks(logits, positions, logprobs)
    ids = torch.from_numpy(logits.numpy().argmax(axis=-1))
    probs = torch.nn.functional.one_hot(ids, logits.shape[-1]).to(logits.dtype)
    drawn = [i for i, position in enumerate(positions) if position.params.temperature > 0]
    if drawn:
        probs[drawn] = _probs(logits[drawn], [positions[i] for i in drawn], logits_to_probs)
    return logprobs, probs


def draw(probs: Tensor, numbers: Tensor) -> Tensor:
    """Return the ids [rows] at which the cumulative probability passes `numbers` [rows] in [0, 1).

    `probs` [rows, vocab] need not sum to 1.
    """
    # Use double precision: over a large vocabulary, a float32 sum misses 1 by more than the
    # probability of a rare token.
    cumulative = probs.cumsum(dim=-1, dtype=torch.float64)
    targets = numbers[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, targets, right=True)[:, 0]


def process_logits(logits: Tensor, positions: list[LogitPosition]) -> Tensor:
    """Apply bias, penalties and bans to `logits` in place; return the logprobs to report."""
    used: defaultdict[_Processor, list[int]] = defaultdict(list)  # what is used -> by which rows
    for i, position in enumerate(positions):
        params = position.params
        if params.logit_bias:
            used[apply_logit_bias].append(i)
        if params.repetition_penalty != 1:
            used[apply_repetition_penalty].append(i)
        if params.frequency_penalty or params.presence_penalty:
            used[apply_frequency_and_presence_penalties].append(i)
        if params.min_tokens and params.min_tokens > position.output_length:
            used[apply_min_tokens].append(i)
        if params.bad_words:
            used[apply_bad_words].append(i)
        if params.allowed_token_ids:
            used[apply_allowed_token_ids].append(i)
    if apply_logit_bias in used:
        apply_logit_bias(logits, positions, used[apply_logit_bias])
    logprobs = compute_logprobs(logits)
    for apply in _PENALTIES_AND_BANS:
        if apply in used:
            apply(logits, positions, used[apply])
    return logprobs


def compute_logprobs(logits: Tensor) -> Tensor:
    """Return the natural logarithms of the probabilities, [rows, vocab] like `logits`.

    Raises FloatingPointError if the logits are not finite.
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    if logprobs[:, 0].isnan().any():  # one bad logit makes its whole row NaN
        raise FloatingPointError(
            "the model's logits are not finite: its weights or KV are damaged, or its values exceed "
            "the range of float16, so load it with dtype bfloat16 or float32"
        )
    return logprobs


def top_logprobs(logprobs: Tensor, counts: Sequence[int]) -> list[list[tuple[int, float]]]:
    """Return the `counts[i]` most likely tokens of row i of `logprobs` [rows, vocab].

    The most likely token comes first, and ties are ordered by id. A row's result must not depend on
    how many tokens another row asks for.
    """
    table = logprobs.numpy()
    most = min(max(counts, default=0), table.shape[-1])
    if most == 0:
        return [[] for _ in counts]
    threshold = np.partition(table, -most, axis=-1)[:, -most]
    # This also finds tokens tied with the last one. They are cut off at the end.
    rows, ids = np.divmod(np.flatnonzero(table >= threshold[:, None]), table.shape[-1])
    values = table[rows, ids]
    order = np.lexsort((-values, rows))  # stable, and ids ascend within a row
    pairs = list(zip(ids[order].tolist(), values[order].tolist(), strict=True))
    firsts = np.searchsorted(rows, np.arange(len(counts))).tolist()
    return [
        pairs[first : first + min(count, most)] for first, count in zip(firsts, counts, strict=True)
    ]


def _probs(logits: Tensor, positions: list[LogitPosition], logits_to_probs: TokenProbs) -> Tensor:
    chosen = list[tuple[float, float, int, float]]()
    for position in positions:
        params = position.params
        top_k = min(params.top_k, logits.shape[-1])
        chosen.append((params.temperature, params.min_p, top_k, params.top_p))
    temperature, min_p, top_ks, top_p = torch.tensor(chosen, dtype=torch.float64).unbind(dim=1)
    return logits_to_probs(logits, temperature.float(), min_p.float(), top_ks.long(), top_p)


# Number of prompt positions scored at once. A chunk can have thousands of positions, and each needs
# another float32 per vocabulary entry in addition to its logits.
_CHUNK = 256


def score_prompts(logits: Tensor, rows: Sequence[Row]) -> None:
    """Fill `row.scores` of the rows whose prompts are scored: how likely the model found given tokens.

    `logits` [scored positions, vocab] follow the order of the rows. Raises FloatingPointError if they
    are not finite. vLLM's counterpart is `_get_prompt_logprobs_dict` in
    `vllm/v1/worker/gpu_model_runner.py`.
    """
    first = 0
    for row in rows:
        tokens = row.request.tokens[row.start + 1 : row.start + 1 + row.scored]
        top = row.request.params.prompt_logprobs or 0
        for start in range(0, len(tokens), _CHUNK):
            chunk = torch.tensor(tokens[start : start + _CHUNK])
            logprobs = compute_logprobs(logits[first : first + len(chunk)])
            own = logprobs.gather(1, chunk[:, None])
            ranks = (logprobs >= own).sum(dim=-1).tolist()
            likeliest = top_logprobs(logprobs, [top] * len(chunk))
            row.scores += map(TokenScore, own[:, 0].tolist(), likeliest, ranks)
            first += len(chunk)
