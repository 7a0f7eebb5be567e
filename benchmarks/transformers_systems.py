"""transformers' two ways of serving: `generate` on whole batches, and continuous batching.

Both compute in fp32 on one thread, greedily, and ignore end tokens, as the engine does here.
"""

import time
from collections.abc import Sequence

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from transformers.generation import BaseStreamer, ContinuousBatchingConfig

from engine.models.loader import BUNDLED

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def load(attention: str) -> PreTrainedModel:
    """The bundled model in fp32."""
    return AutoModelForCausalLM.from_pretrained(
        BUNDLED, dtype=torch.float32, attn_implementation=attention
    ).eval()


class Generate:
    """`model.generate` on a batch: left padded, finished when its longest member is.

    attention  "sdpa" or "eager"
    cache      "dynamic" (grows by concatenation) or "static" (allocated at once)
    """

    def __init__(self, attention: str, cache: str) -> None:
        self.model = load(attention)
        self.cache = cache
        self.settings = f"static batches, {attention} attention, {cache} cache, fp32, 1 thread"

    @torch.inference_mode()
    def run(
        self, prompts: Sequence[list[int]], max_tokens: int, streamer: BaseStreamer | None = None
    ) -> list[list[int]]:
        """Output tokens of each prompt, all of the same length."""
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(one)) + one for one in prompts])
        mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in prompts])
        output = self.model.generate(
            ids,
            attention_mask=mask,
            generation_config=greedy(max_tokens, cache_implementation=self.cache),
            streamer=streamer,
        )
        return output[:, longest:].tolist()


class FirstToken(BaseStreamer):
    """Records the time of a batch's first output tokens."""

    def __init__(self) -> None:
        self.puts = 0
        self.at = 0.0

    def put(self, value: torch.Tensor) -> None:
        """Called with the prompts, then with each step's tokens."""
        del value
        self.puts += 1
        if self.puts == 2:
            self.at = time.perf_counter()

    def end(self) -> None:
        """Nothing to close."""


class GenerateBatch:
    """transformers' continuous batching over a paged cache.

    attention  "sdpa" or "paged|eager"; flash attention, which it prefers, needs a GPU
    settings   fields of ContinuousBatchingConfig
    """

    def __init__(self, attention: str, **settings: object) -> None:
        self.model = load(attention)
        self.config = ContinuousBatchingConfig(**settings)
        given = ", ".join(f"{name}={value}" for name, value in settings.items())
        self.settings = f"continuous batching, {attention} attention, {given}, fp32, 1 thread"

    def run(self, prompts: Sequence[list[int]], max_tokens: int) -> list[list[int]]:
        """Output tokens of each prompt, all of the same length."""
        outputs = self.model.generate_batch(
            list(prompts),
            generation_config=greedy(max_tokens),
            continuous_batching_config=self.config,
            persistent_manager=True,  # its pages are allocated once, not in each call
            warmup=False,  # that is for CUDA graphs
        )
        return [output.generated_tokens for output in outputs.values()]


def greedy(max_tokens: int, **more: object) -> GenerationConfig:
    """Return settings for greedy decoding that ignores end tokens."""
    return GenerationConfig(
        max_new_tokens=max_tokens, do_sample=False, pad_token_id=0, eos_token_id=-1, **more
    )
