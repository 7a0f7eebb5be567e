"""Send ten times more requests than fit: admitted ones are served to the end, the others get 429."""

import asyncio
from collections import Counter
from typing import Any

from benchmarks.load.streams import prompts
from server.load.client import ask


async def measure(url: str, count: int = 640, max_tokens: int = 64) -> dict[str, Any]:
    """`other` counts answers that are neither complete nor a 429; it must be 0."""
    replies = await asyncio.gather(
        *(
            ask(url, "/v1/completions", {"prompt": prompt, "max_tokens": max_tokens})
            for prompt in prompts(count)
        )
    )
    complete = [reply for reply in replies if reply.status == 200 and reply.complete]
    refused = [reply for reply in replies if reply.status == 429 and reply.error == "queue_full"]
    return {
        "requests": count,
        "complete": len(complete),
        "refused": len(refused),
        "other": count - len(complete) - len(refused),
        "retry_after_s": dict(Counter(int(reply.header("retry-after")) for reply in refused)),
    }
