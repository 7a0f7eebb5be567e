"""Server faults: what each client sees, and how soon the next request works.

The first two servers run the tests' fake model (`tests/server/app_under_test.py`), which fails and
hangs on request; SIGTERM and kill -9 are sent to a server with the bundled model under load.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, cast

from benchmarks.load.streams import fire
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import StepFinished
from server.load.client import Reply, ask, begin
from server.process import BackgroundServer, serve_in_background

FORMS: dict[str, dict[str, Any]] = {
    "teaching stream": {},
    "stream": {"stream": True},
    "whole": {"stream": False},
}


def under_test(**options: Any) -> BackgroundServer:
    """Start a server that fails on request."""
    return BackgroundServer([sys.executable, "tests/server/app_under_test.py", json.dumps(options)])


def _seen(reply: Reply) -> str:
    done = ", then [DONE]" if b"data: [DONE]" in reply.raw else ""
    tokens = f"{len(reply.tokens())} tokens, " if reply.tokens() else ""
    return f"{reply.status}: {tokens}{reply.error or 'complete'}{done}"


async def _after(url: str) -> dict[str, Any]:
    """How long the next request takes, in ms, and the blocks that are still held."""
    began = time.perf_counter()
    reply = await ask(url, "/v1/completions", {"prompt": "x", "max_tokens": 3})
    took = time.perf_counter() - began
    blocks = (await ask(url, "/health")).json()["blocks"]
    held = blocks["total"] - blocks["free"] - blocks["cached"]
    return {"next_ms": round(took * 1000, 1), "next_complete": reply.complete, "held": held}


async def raising(url: str) -> dict[str, Any]:
    """A forward pass raises in the middle of each form of answer."""
    seen = {}
    for name, form in FORMS.items():
        body = {"prompt": "x", "max_tokens": 9} | form
        seen[name] = _seen(await ask(url, "/v1/completions", body, X_Client="fail-after-3"))
    return seen | await _after(url)


async def hanging(url: str, gate: Path, returns_after: float) -> dict[str, Any]:
    """A forward pass hangs, and returns after a while."""
    body = {"prompt": "x", "max_tokens": 9}
    began = time.perf_counter()
    calls = {"in it": await begin(url, "/v1/completions", body, X_Client="gate")}
    while (await ask(url, "/health")).json()["pending_submit"]:
        pass
    for name, form in FORMS.items():
        calls[f"behind it, {name}"] = await begin(url, "/v1/completions", body | form)
    seen = {name: _seen(await call.ended) for name, call in calls.items()}
    told = time.perf_counter() - began
    seen["meanwhile"] = _seen(await ask(url, "/v1/completions", body))
    seen["/ready"] = str((await ask(url, "/ready")).status)
    await asyncio.sleep(max(0.0, returns_after - (time.perf_counter() - began)))
    threading.Thread(target=gate.write_text, args=["open"]).start()
    returned = time.perf_counter()
    while (await ask(url, "/ready")).status != 200:
        pass
    recovered = time.perf_counter() - returned
    figures = {"told_after_s": round(told, 2), "recovered_after_ms": round(recovered * 1000, 1)}
    return seen | figures | await _after(url)


async def sigterm(server: BackgroundServer, count: int, max_tokens: int) -> dict[str, Any]:
    """SIGTERM while many streams run: all complete, and later requests get 503."""
    streams = asyncio.create_task(fire(server.url, count, max_tokens))
    while not (await ask(server.url, "/health")).json()["active"]:
        pass
    while (await ask(server.url, "/health")).json()["pending_submit"]:
        pass
    began = time.perf_counter()
    server.process.send_signal(signal.SIGTERM)
    while (await ask(server.url, "/ready")).status != 503:
        pass
    refused = await ask(server.url, "/v1/completions", {"prompt": "too late"})
    replies = await streams
    code = await asyncio.to_thread(server.process.wait, 60)
    return {
        "streams": count,
        "complete": sum(reply.complete for reply in replies),
        "refused_meanwhile": _seen(refused),
        "ended_after_s": round(time.perf_counter() - began, 2),
        "exit_code": code,
    }


async def killed(server: BackgroundServer, trace: Path, count: int) -> dict[str, Any]:
    """kill -9 under load: the trace loads, folds, and has every token that a client has seen."""
    body = {"max_tokens": 500, "ignore_eos": True}
    calls = [
        await begin(server.url, "/v1/completions", body | {"prompt": f"Killed {number}"})
        for number in range(count)
    ]
    # A read may bring several tokens, so count tokens: there may be fewer reads than tokens.
    while min(len(call.reply.tokens()) for call in calls) < 10:
        await asyncio.sleep(0.01)
    os.kill(server.process.pid, signal.SIGKILL)
    replies = [await call.ended for call in calls]
    await asyncio.to_thread(server.process.wait)
    log = EventLog.load(trace)
    log.state()  # raises where an event does not follow from those before it
    written: defaultdict[int, list[int]] = defaultdict(list)
    for step in log.of(StepFinished):
        for row in cast(StepFinished, step).tokens:
            written[row.request] += row.ids
    missing = 0
    for reply in replies:
        seen = [id_ for _, id_ in reply.tokens()]
        missing += written[int(reply.header("x-underglass-request"))][: len(seen)] != seen
    return {"streams": count, "events": len(log), "seen_but_not_in_trace": missing}


def measure(count: int = 100) -> dict[str, Any]:
    """Run all faults, each against a server of its own."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        gate, trace = Path(folder) / "gate", Path(folder) / "trace.jsonl"
        os.mkfifo(gate)
        server = servers.enter_context(under_test())
        figures["raising"] = asyncio.run(raising(server.url))
        server = servers.enter_context(under_test(gate=str(gate), server={"stuck_seconds": 1.0}))
        figures["hanging"] = asyncio.run(hanging(server.url, gate, returns_after=2.0))
        options = {"max_batch_size": 64, "max_kv_tokens": 65_536}
        server = servers.enter_context(serve_in_background(**options))
        figures["sigterm"] = asyncio.run(sigterm(server, count, 64))
        server = servers.enter_context(serve_in_background(**options, trace_file=trace))
        figures["killed"] = asyncio.run(killed(server, trace, min(count, 64)))
    return figures
