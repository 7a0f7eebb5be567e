"""The engine as the comparisons run it."""

from collections.abc import Sequence

from engine import Engine, EngineConfig, SamplingParams
from engine.models import loader


class Underglass:
    """The engine with its event log and defaults; each run starts with an empty cache."""

    def __init__(self, **settings: object) -> None:
        self.config = EngineConfig(**settings)  # type: ignore[arg-type]
        self.runner, self.tokenizer = loader.load("bundled")
        self.settings = (
            f"continuous batching, {self.config.token_budget} tokens per step, at most "
            f"{self.config.max_batch_size} requests, pages of {self.config.block_size} tokens, prefix "
            f"cache {'on' if self.config.prefix_cache else 'off'}, event log on, fp32, 1 thread"
        )

    def engine(self) -> Engine:
        """A fresh engine over the loaded model."""
        return Engine(self.runner, self.config, tokenizer=self.tokenizer)

    def run(self, prompts: Sequence[list[int]], max_tokens: int) -> list[list[int]]:
        """Output tokens of each prompt: greedy, all of the same length."""
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        return [one.token_ids for one in self.engine().complete(prompts, params, progress=False)]
