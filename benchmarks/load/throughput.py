"""Tokens per second over HTTP against the engine in its own process, on the same work, in turns.

Three processes: the engine alone, the server, and this one, the server's client. The work is
the same for both: greedy requests of 64 tokens, all sent at once, in batches of 64.
"""

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

from benchmarks.load.client import quantile
from benchmarks.load.streams import fire, prompts


def engine_alone() -> None:
    """The other process: for each line on stdin, do the work and print its duration."""
    from engine import Engine, EngineConfig, SamplingParams
    from engine.events.log import EventLog

    class Forgetful(EventLog):
        """A log that keeps nothing, so that later runs are no slower than the first."""

        def append(self, event: object) -> None:
            pass

    settings, count, max_tokens = json.loads(sys.argv[1])
    engine = Engine.load("bundled", EngineConfig(**settings), log=Forgetful())
    params = SamplingParams(max_tokens=max_tokens)
    for _ in sys.stdin:
        began = time.perf_counter()
        for prompt in prompts(count):
            engine.submit(prompt, params)
        tokens = 0
        while engine.has_work():
            tokens += sum(len(gained.ids) for gained in engine.step().tokens)
        print(json.dumps([tokens, time.perf_counter() - began]), flush=True)


async def _over_http(url: str, count: int, max_tokens: int) -> tuple[int, float]:
    began = time.perf_counter()
    replies = await fire(url, count, max_tokens)
    seconds = time.perf_counter() - began
    return sum(len(reply.tokens()) for reply in replies), seconds


async def measure(
    url: str, settings: dict[str, Any], count: int = 64, max_tokens: int = 64, pairs: int = 15
) -> dict[str, Any]:
    """The median over pairs of the server's speed over the engine's, and the middle half."""
    arguments = json.dumps([settings, count, max_tokens])
    alone = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.load.throughput", arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert alone.stdin is not None
    assert alone.stdout is not None
    ratios, speeds = [], {"engine": 0.0, "server": 0.0}
    try:
        for number in range(pairs + 1):
            alone.stdin.write("go\n")
            alone.stdin.flush()
            tokens, seconds = json.loads(await asyncio.to_thread(alone.stdout.readline))
            served, took = await _over_http(url, count, max_tokens)
            assert served == tokens, (served, tokens)
            if number:  # the first pair warms both
                ratios.append((served / took) / (tokens / seconds))
                speeds["engine"] = max(speeds["engine"], tokens / seconds)
                speeds["server"] = max(speeds["server"], served / took)
    finally:
        alone.stdin.close()
        alone.wait()
        alone.stdout.close()
    return {
        "streams": count,
        "server_over_engine": round(quantile(ratios, 0.5), 3),
        "middle_half": [round(quantile(ratios, share), 3) for share in (0.25, 0.75)],
        "pairs": pairs,
        "best_tokens_per_second": {name: round(speed) for name, speed in speeds.items()},
    }


if __name__ == "__main__":
    engine_alone()
