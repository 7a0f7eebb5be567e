"""Tokens per second over HTTP against the engine in its own process, on the same work, in turns.

The engine alone, one or more servers, and this process, their client. The work is the same for all:
greedy requests, all sent at once, in batches of 64. In each round each of them does it once.
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
    from engine.core.log.log import EventLog

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
    urls: dict[str, str],
    settings: dict[str, Any],
    count: int = 64,
    max_tokens: int = 64,
    rounds: int = 15,
) -> dict[str, Any]:
    """For each server: its speed over the engine's in the same round, and over the best fifths.

    urls  the servers, by name
    """
    arguments = json.dumps([settings, count, max_tokens])
    alone = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.load.throughput", arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert alone.stdin is not None
    assert alone.stdout is not None
    speeds: dict[str, list[float]] = {name: [] for name in ("engine", *urls)}
    try:
        for number in range(rounds + 1):
            alone.stdin.write("go\n")
            alone.stdin.flush()
            tokens, seconds = json.loads(await asyncio.to_thread(alone.stdout.readline))
            speed = {"engine": tokens / seconds}
            for name, url in urls.items():
                served, took = await _over_http(url, count, max_tokens)
                assert served == tokens, (served, tokens)
                speed[name] = served / took
            if number:  # the first round warms all
                for name, all_ in speeds.items():
                    all_.append(speed[name])
    finally:
        alone.stdin.close()
        alone.wait()
        alone.stdout.close()
    figures: dict[str, Any] = {"streams": count, "max_tokens": max_tokens, "rounds": rounds}
    for name in urls:
        ratios = [one / alone for one, alone in zip(speeds[name], speeds["engine"], strict=True)]
        figures[name] = {
            "server_over_engine": round(quantile(ratios, 0.5), 3),
            "middle_half": [round(quantile(ratios, share), 3) for share in (0.25, 0.75)],
            "best_fifths": round(_best(speeds[name]) / _best(speeds["engine"]), 3),
            "medians": round(quantile(speeds[name], 0.5) / quantile(speeds["engine"], 0.5), 3),
        }
    figures["tokens_per_second"] = {name: round(_best(all_)) for name, all_ in speeds.items()}
    return figures


def _best(speeds: list[float]) -> float:
    """Return the mean of the best fifth: other work on the machine only ever makes a run slower."""
    best = sorted(speeds, reverse=True)[: max(1, len(speeds) // 5)]
    return sum(best) / len(best)


if __name__ == "__main__":
    engine_alone()
