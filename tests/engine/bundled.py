"""The bundled model, loaded once in each process that runs tests."""

import functools
import random
from typing import Any

from engine import Engine, EngineConfig


@functools.cache
def bundled() -> tuple[Any, Any]:
    """Return the runner and the tokenizer; a new engine reserves its memory anew."""
    from engine.models.loader import load  # not at the top: Pyodide collects this without torch

    return load("bundled")


def bundled_engine(config: EngineConfig | None = None, **parts: Any) -> Engine:
    """Return a new engine with the bundled model."""
    runner, tokenizer = bundled()
    return Engine(runner, config, tokenizer=tokenizer, **parts)


def token_prompts(count: int) -> list[list[int]]:
    """Return random tokens of ragged lengths behind a common beginning."""
    rng = random.Random(3)
    stem = [rng.randrange(97) for _ in range(9)]
    return [stem + [rng.randrange(97) for _ in range(rng.randint(1, 40))] for _ in range(count)]
