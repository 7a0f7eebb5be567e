"""Workloads: the first lesson's, and stories cut to length for comparisons with other systems."""

from random import Random

from engine import Engine, EngineConfig, EventLog, SamplingParams
from engine.models import loader
from engine.models.text.hf_tokenizer import HFTokenizer
from engine.training import stories

PROMPTS = [
    "Once upon a time there was a fox who lived by the sea.",
    "Once upon a time there was a bear who lived by the sea.",
    "One day Mia found a golden key under the old oak tree.",
    "What is 17 + 25?",
    "Once upon a time there was an owl who lived by the sea.",
    "What is a token budget?",
    "The king had three sons, and the youngest was called Tom.",
    "Once upon a time there was a fox who lived by the sea.",
]
LENGTHS = [48, 8, 24, 12, 32, 8, 40, 16]


class Bench:
    """Serves the workload repeatedly with one loaded model."""

    def __init__(self, **settings: object) -> None:
        self.config = EngineConfig(**{"max_batch_size": 4, "block_size": 8} | settings)  # type: ignore[arg-type]
        self.runner, self.tokenizer = loader.load("bundled")

    def engine(self, log: EventLog | None = None) -> Engine:
        """A fresh engine: empty cache, empty log."""
        return Engine(self.runner, self.config, tokenizer=self.tokenizer, log=log)

    def run(self, engine: Engine | None = None) -> Engine:
        """The whole workload, four times over; every request takes exactly its length."""
        engine = engine or self.engine()
        each = [SamplingParams(max_tokens=length, ignore_eos=True) for length in LENGTHS]
        engine.complete(PROMPTS * 4, each * 4, progress=False)
        return engine


def story_tokens(tokenizer: HFTokenizer, count: int, seed: int = 0) -> list[int]:
    """Return `length` tokens of generated stories, without a beginning-of-text token."""
    rng = Random(seed)
    tokens: list[int] = []
    while len(tokens) < count:
        tokens += tokenizer.encode_ordinary(stories.plain_story(rng) + " ")
    return tokens[:count]


def story_prompts(tokenizer: HFTokenizer, count: int, length: int) -> list[list[int]]:
    """Prompts that share only their first token, each `length` tokens."""
    bos = tokenizer.bos_id
    text = story_tokens(tokenizer, count * (length - 1))
    return [[bos, *text[at : at + length - 1]] for at in range(0, len(text), length - 1)]
