"""Flood a server with grammars, and measure how long other clients wait for their first token.

Six clients send schemas of hundreds of optional properties without a pause; no two are the same. A
monitor in a process of its own asks for one token of a plain text, again and again, and another client
asks for an answer with a small schema. The figures are the time until each of them has its answer.
"""

import asyncio
import itertools
import json
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.load.client import ask, quantile

SECONDS = 15.0
FLOODING = 6
PLAIN: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 1}
_HONEST = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "maximum": 9}},
    "required": ["city", "days"],
}
HONEST = {"prompt": "A trip", "max_tokens": 16, "structured_outputs": {"json": _HONEST}}
_numbers = itertools.count()


async def measure(url: str) -> dict[str, Any]:
    """Return milliseconds for a quiet server, and for two floods: one is rejected, one is served."""
    await ask(url, "/v1/completions", HONEST)  # starts the worker
    figures: dict[str, Any] = {"quiet": await _monitored(url)}
    for properties in (900, 400):
        counts: Counter[str] = Counter()
        flooding = [
            asyncio.create_task(_flood(url, f"flood {i}", properties, counts))
            for i in range(FLOODING)
        ]
        waits = await _monitored(url)
        for task in flooding:
            task.cancel()
        await asyncio.wait(flooding)
        figures[f"{properties} optional properties"] = waits | {"answers": dict(counts)}
    return figures


async def _flood(url: str, label: str, properties: int, counts: Counter[str]) -> None:
    while True:
        number = next(_numbers)
        schema = {
            "type": "object",
            "properties": {f"{number}_{i}": {"type": "integer"} for i in range(properties)},
        }
        body = {"prompt": "x", "max_tokens": 2, "structured_outputs": {"json": schema}}
        reply = await ask(url, "/v1/completions", body, X_Client=label)
        counts[str(reply.status)] += 1


async def _monitored(url: str) -> dict[str, float]:
    monitors = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.load.grammars", url, body),
            stdout=asyncio.subprocess.PIPE,
        )
        for body in ("plain", "honest")
    ]
    outputs = await asyncio.gather(*(monitor.communicate() for monitor in monitors))
    return {name: value for out, _ in outputs for name, value in json.loads(out).items()}


async def _monitor(url: str, name: str) -> dict[str, float]:
    body, waits, end = {"plain": PLAIN, "honest": HONEST}[name], [], time.monotonic() + SECONDS
    while time.monotonic() < end:
        began = time.perf_counter()
        reply = await ask(url, "/v1/completions", body, X_Client="monitor")
        waits.append(time.perf_counter() - began)
        assert reply.status == 200, reply.raw
        await asyncio.sleep(0.02)
    return {
        f"{name}_p50_ms": round(quantile(waits, 0.5) * 1000, 1),
        f"{name}_worst_ms": round(max(waits) * 1000, 1),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_monitor(sys.argv[1], sys.argv[2]))))
