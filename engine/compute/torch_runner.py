"""The Runner that computes: one forward pass over a step's rows, then a token for each that is due.

    copies  -> batch -> decoder (attention reads pages) -> sampler -> verification of drafts

vLLM's counterpart is `vllm/v1/worker/gpu_model_runner.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.compute.attention.kv_cache import KVCache
from engine.compute.attention.paged_attention import PagedAttention
from engine.compute.batch import Batch, make_batch
from engine.compute.model.config import ModelConfig
from engine.compute.model.decoder import Attend, Decoder
from engine.compute.model.gpt2 import GPT2
from engine.compute.sampling.logit_positions import LogitPosition, logit_positions
from engine.compute.sampling.logprobs import likeliest, score_prompts
from engine.compute.sampling.sampler import Choices, choose, probabilities
from engine.compute.sampling.truncation import TokenProbs, truncated_probs
from engine.runner import Row, Sampled
from engine.speculation.verification import Verifier, ask_verifier, count_accepted


class TorchRunner:
    """A decoder over paged KV memory; see `engine.runner.Runner`.

    max_context  longest text, prompt and output, that the model was made for
    vocab_size   token ids are 0 .. vocab_size - 1
    kv_cache     the KV memory, for whoever wants to look at keys and values; None before `reserve`
    attention    made once per step, called once per layer: a class like `PagedAttention`
    verifier     a learner's own way to verify drafts; None: `count_accepted`
    weigh        what tokens are drawn in proportion to: a function like `truncated_probs`
    """

    def __init__(self, model: Decoder | GPT2, name: str = "") -> None:
        self._model = model
        self._name = name
        self.kv_cache: KVCache | None = None
        self.attention: Callable[[ModelConfig, KVCache, Batch], Attend] = PagedAttention
        self.verifier: Verifier | None = None
        self.logits_to_probs: TokenProbs = truncated_probs
        self.max_context: int | None = model.config.max_context
        self.vocab_size = model.config.vocab_size

    def describe(self) -> dict[str, Any]:
        """Sizes of the model, its precision, and bytes of KV memory a token takes."""
        config = self._model.config
        kv_values = 2 * config.num_layers * config.num_kv_heads * config.head_dim
        return {
            "name": self._name,
            "architecture": config.architecture,
            "parameters": self._model.num_parameters,
            "layers": config.num_layers,
            "hidden_size": config.hidden_size,
            "heads": config.num_heads,
            "kv_heads": config.num_kv_heads,
            "head_dim": config.head_dim,
            "vocab_size": config.vocab_size,
            "max_context": config.max_context,
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "kv_bytes_per_token": kv_values * self._model.dtype.itemsize,
        }

    def reserve(self, num_blocks: int, block_size: int) -> None:
        """Make room for the KV cache. Raises ConfigError if memory does not suffice.

        Every engine calls it once. What an earlier engine had in memory is freed first, so that both
        never exist together.
        """
        config = self._model.config
        self.kv_cache = None
        self.kv_cache = KVCache(config, num_blocks, block_size, self._model.dtype)
        self._model.prepare(min(config.max_context, num_blocks * block_size))

    @torch.inference_mode()
    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:
        """Copy blocks (source, destination), then compute all rows in one forward pass.

        Returns, for each row, one `Sampled` per entry of `row.samples`, and fills `row.scores`.
        """
        if self.kv_cache is None:
            raise RuntimeError("reserve(num_blocks, block_size) must be called before run()")
        self.kv_cache.copy(copies)
        if not rows:
            return []
        batch = make_batch(rows, self.kv_cache.block_size)
        attention = self.attention(self._model.config, self.kv_cache, batch)
        logits = self._model.forward(batch.token_ids, batch.positions, attention, batch.logit_rows)

        score_prompts(logits, rows)
        places, logit_of = logit_positions(rows)
        if not places:
            return [[] for _ in rows]
        if logit_of != list(range(len(logits))):  # scored prompts; samples that share a prompt
            logits = logits[logit_of]
        if self.verifier is None:
            return _collect(rows, choose(logits, places, self.logits_to_probs))
        results = _collect(rows, choose(logits.clone(), places, self.logits_to_probs))
        return _verify(
            self.verifier,
            rows,
            places,
            results,
            probabilities(logits, places, self.logits_to_probs),
        )


def _verify(
    verifier: Verifier,
    rows: Sequence[Row],
    places: Sequence[LogitPosition],
    results: list[list[Sampled]],
    probable: tuple[Tensor, Tensor],
) -> list[list[Sampled]]:
    """`results`, with the verifier's answer for each row with drafts, which has one sample."""
    logprobs, p = probable
    first = 0
    for row, samples in zip(rows, results, strict=True):
        end = first + len(row.samples) * (len(row.drafts) + 1)
        if row.drafts and samples:
            ids = ask_verifier(verifier, places[first:end], p[first:end])
            chosen = logprobs[range(first, first + len(ids)), ids].tolist()
            most = row.request.params.logprobs
            each = logprobs[first : first + len(ids)]
            top = [] if most is None else likeliest(each, [most] * len(ids))
            samples[:] = [Sampled(ids, chosen, top)]
        first = end
    return results


def _collect(rows: Sequence[Row], choices: Choices) -> list[list[Sampled]]:
    """Each sample's tokens, in the order of `logit_positions`: accepted drafts and one more."""
    results: list[list[Sampled]] = []
    first = 0
    for row in rows:
        samples: list[Sampled] = []
        for _ in row.samples:
            end = first + len(row.drafts) + 1
            kept = first + 1
            if row.drafts:
                kept += count_accepted(row.drafts, choices.ids[first:end])
            top = [choices.top[i] for i in range(first, kept)] if first in choices.top else []
            samples.append(Sampled(choices.ids[first:kept], choices.logprobs[first:kept], top))
            first = end
        results.append(samples)
    return results
