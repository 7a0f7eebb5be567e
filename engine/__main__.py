"""`python -m engine [MODEL]`: compare the engine with the naive loop on the same prompts.

It prints both times and whether all tokens match. MODEL is a Hugging Face directory; the default is
the bundled model.
"""

import sys
import time

from engine import Engine, EngineConfig, SamplingParams
from engine.core.log.vocabulary import StepFinished
from engine.naive import generate

PROMPTS = [
    "Once upon a time there was a fox who lived by the sea.",
    "Once upon a time there was a bear who lived by the sea.",
    "One day Mia found a golden key under the old oak tree.",
    "Please tell me what a token budget is.",
    "The king had three sons, and the youngest was called Tom.",
    "What does the prefix cache do?",
    "It was a rainy day, and the owl could not sleep.",
    "Once upon a time there was a fox who lived by the sea.",
]
MAX_TOKENS = 64


def main() -> int:
    """Run both, and print their times and whether all tokens match. Return 0 if they do, else 1."""
    model = sys.argv[1] if len(sys.argv) > 1 else "bundled"
    config = EngineConfig(token_budget=256, max_batch_size=len(PROMPTS), max_kv_tokens=4096)
    try:
        engine = Engine.load(model, config)
    except ValueError as error:  # the message says what is wrong with the model
        sys.exit(f"python -m engine: {error}")

    start = time.perf_counter()
    completions = engine.complete(PROMPTS, SamplingParams(max_tokens=MAX_TOKENS), progress=False)
    engine_seconds = time.perf_counter() - start

    # The naive loop has no tools, so requests with forced tokens are left out.
    steps = engine.log.of(StepFinished)
    forced = {row.request for step in steps for row in step.tokens if row.forced}
    compared = [sample for sample in completions if sample.request_id not in forced]
    start = time.perf_counter()
    naive = [
        generate(
            engine.runner,
            engine.tokenizer.encode(PROMPTS[sample.request_id - 1]),
            MAX_TOKENS,
            engine.tokenizer.eos_ids,
        )
        for sample in compared
    ]
    naive_seconds = time.perf_counter() - start

    match = [sample.token_ids for sample in compared] == naive
    tokens = sum(len(sample.token_ids) for sample in completions)
    print(f"{len(PROMPTS)} prompts, {tokens} tokens")
    print(f"naive loop  {naive_seconds:6.2f} s   one prompt at a time, recomputed for each token")
    print(f"engine      {engine_seconds:6.2f} s   {engine.step_count} steps")
    print(f"Match: {match}")
    return 0 if match else 1


if __name__ == "__main__":
    sys.exit(main())
