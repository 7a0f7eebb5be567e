"""The runner that runs the model: one forward pass over a step's rows, then sampling.

    block copies -> batch -> decoder (attention reads KV blocks) -> sampler -> verification of drafts

Differs from vLLM (`vllm/v1/worker/gpu_model_runner.py`):

- The batch is rebuilt in every step. vLLM keeps a persistent batch and updates it.
- There are no CUDA graphs and no compilation: the model runs eagerly, on the CPU.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from engine.compute.attention.kv_cache import KVCache
from engine.compute.attention.paged_attention import PagedAttention
from engine.compute.batch import Batch, make_batch
from engine.compute.model.config import ModelConfig
from engine.compute.model.decoder import Attend, Decoder
from engine.compute.model.gpt2 import GPT2
from engine.compute.sampling.prompt_logprobs import score_prompts
from engine.compute.sampling.sampler import SamplerOutput, probabilities, sample
from engine.compute.sampling.truncation import TokenProbs, truncated_probs
from engine.runner import Row, Sampled
from engine.speculation.verification import Verifier, apply_verifier, count_accepted


class TorchRunner:
    """A decoder with a paged KV cache; see `engine.runner.Runner`.

    max_context      longest text (prompt plus output) that the model supports
    vocab_size       token ids are 0 .. vocab_size - 1
    kv_cache         the KV memory; None before `reserve`
    attention        a class like `PagedAttention`: created once per step, called once per layer
    verifier         a learner's own verifier of drafts; None for `count_accepted`
    logits_to_probs  a function like `truncated_probs`, for requests that are not greedy
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
        """Return the model's sizes, its precision, and the bytes of KV memory per token."""
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
        """Allocate the KV cache. Raises ConfigError if it does not fit in memory.

        Each engine calls this once. An earlier engine's KV cache is freed first, so the two never
        exist at the same time.
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
        if copies:
            self.kv_cache.copy(copies)
        if not rows:
            return []
        batch = make_batch(rows, self.kv_cache.block_size)
        attention = self.attention(self._model.config, self.kv_cache, batch)
        logits = self._model.forward(
            batch.token_ids, batch.positions, attention, batch.logits_indices
        )
        positions = batch.logit_positions
        if len(logits) > len(positions):
            score_prompts(logits[len(positions) :], rows)
        if not positions:
            return [[] for _ in rows]
        logits = logits[: len(positions)]
        if self.verifier is None or not any(row.drafts for row in rows):
            return _sampled(rows, sample(logits, positions, self.logits_to_probs))
        results = _sampled(rows, sample(logits.clone(), positions, self.logits_to_probs))
        logprobs, probs = probabilities(logits, positions, self.logits_to_probs)
        apply_verifier(self.verifier, rows, positions, results, logprobs=logprobs, probs=probs)
        return results


def _sampled(rows: Sequence[Row], output: SamplerOutput) -> list[list[Sampled]]:
    """Split the output by row and sample: the accepted drafts and one more token for each."""
    results: list[list[Sampled]] = []
    first = 0  # index of the sample's first entry in the output
    for row in rows:
        samples: list[Sampled] = []
        for _ in row.samples:
            end = first + 1
            if row.drafts:
                end += count_accepted(row.drafts, output.token_ids[first : end + len(row.drafts)])
            top = [output.top_logprobs[i] for i in range(first, end) if i in output.top_logprobs]
            samples.append(Sampled(output.token_ids[first:end], output.logprobs[first:end], top))
            first += len(row.drafts) + 1
        results.append(samples)
    return results
