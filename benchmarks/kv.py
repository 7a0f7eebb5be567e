"""What KV in int8 changes: perplexity on held-out text, greedy tokens, and answers to questions.

The bundled model reads stories that its training has not seen (another seed of their generator),
continues their beginnings greedily, and answers the questions of its evaluation. The engine reads every
token's KV from the blocks, that of prompts included, so all figures are of stored KV.
"""

import math
from random import Random
from typing import Annotated, Any

import typer

from benchmarks.harness import save
from engine import Engine, EngineConfig, SamplingParams
from engine.models.threads import set_threads
from engine.training import stories
from engine.training.evaluate import answers, held_out_sums, sum_is_right

HELD_OUT_SEED = 987_654_321


def main(
    texts: Annotated[int, typer.Option(help="stories", min=1)] = 200,
    questions: Annotated[int, typer.Option(help="sums to answer", min=1)] = 100,
) -> None:
    """Print perplexity, agreement of tokens and right answers for each `kv_dtype`."""
    set_threads(1)
    figures: dict[str, Any] = {}
    rng = Random(HELD_OUT_SEED)
    read = [stories.plain_story(rng) for _ in range(texts)]
    sums = held_out_sums(questions)
    likely: dict[str, list[list[int]]] = {}
    for kv_dtype in ("auto", "int8"):
        settings = EngineConfig(
            kv_dtype=kv_dtype, max_kv_tokens=16_384, token_budget=256, max_batch_size=16
        )
        engine = Engine.load("bundled", settings)
        ids = [engine.tokenizer.encode(text)[:512] for text in read]
        params = SamplingParams(max_tokens=1, prompt_logprobs=0)
        scored = engine.complete(ids, params, progress=False)
        logprobs = [token.logprob for one in scored for token in one.prompt_scores]
        params = SamplingParams(max_tokens=64, temperature=0, ignore_eos=True)
        openings = [one[:16] for one in ids]
        likely[kv_dtype] = [
            list(one.token_ids) for one in engine.complete(openings, params, progress=False)
        ]
        told = answers(engine, [turn.question for turn in sums])
        right = sum(map(sum_is_right, sums, told))
        pairs = list(zip(likely["auto"], likely[kv_dtype], strict=True))
        same = sum(one == other for one, other in pairs)
        until = sum(
            next((n for n, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))
            for one, other in pairs
        )
        figures[kv_dtype] = {
            "perplexity": math.exp(-sum(logprobs) / len(logprobs)),
            "tokens": len(logprobs),
            "same_continuations": f"{same} of {len(pairs)}",
            "tokens_until_one_differs": until / len(pairs),
            "right_sums": f"{right} of {len(sums)}",
            "kv_bytes_per_token": engine.log[0].model["kv_bytes_per_token"],
        }
        print(kv_dtype, figures[kv_dtype], flush=True)
    save("kv", figures)
