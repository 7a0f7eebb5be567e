"""Many streams at once: each completes with the same tokens as alone."""

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from engine.simulation.quantile import quantile
from server.load.client import Reply, ask

OPENINGS = (
    "Once upon a time there was a",
    "The little fox looked at the",
    "One day a bear came to",
    "In the garden behind the house",
)


def prompts(count: int) -> list[str]:
    """Return that many different prompts."""
    return [f"{OPENINGS[number % len(OPENINGS)]} {number}" for number in range(count)]


async def fire(url: str, count: int, max_tokens: int) -> list[Reply]:
    """Start all at the same moment; return when all are complete."""
    return list(
        await asyncio.gather(
            *(
                ask(url, "/v1/completions", {"prompt": prompt, "max_tokens": max_tokens})
                for prompt in prompts(count)
            )
        )
    )


async def measure(url: str, count: int = 500, max_tokens: int = 64) -> dict[str, Any]:
    """`differ` counts streams whose tokens are not those of the run without load."""
    began = time.perf_counter()
    replies = await fire(url, count, max_tokens)
    seconds = time.perf_counter() - began
    differ = 0
    for prompt, reply in zip(prompts(count), replies, strict=True):
        body = {"prompt": prompt, "max_tokens": max_tokens}
        alone = await ask(url, "/v1/completions", body)
        differ += [id_ for _, id_ in alone.tokens()] != [id_ for _, id_ in reply.tokens()]
    tokens = sum(len(reply.tokens()) for reply in replies)
    return {
        "streams": count,
        "complete": sum(reply.complete for reply in replies),
        "differ": differ,
        "tokens_per_second": round(tokens / seconds),
        **latencies(replies),
    }


def latencies(replies: Sequence[Reply]) -> dict[str, float]:
    """Milliseconds: TTFT and ITL of teaching streams, as their clients saw them."""
    ttft, itl = [], []
    for reply in replies:
        times = [at for at, _ in reply.tokens()]
        ttft.append(times[0] - reply.began)
        itl += [later - earlier for earlier, later in pairwise(times)]
    return {
        f"{name}_{label}_ms": round(quantile(values, share) * 1000, 2)
        for name, values in (("ttft", ttft), ("itl", itl))
        for label, share in (("p50", 0.5), ("p99", 0.99))
    }
