"""A gateway under load: what it costs, what a second replica gains, and what a death loses.

The replicas are servers of this machine, one engine thread each; the gateway is over their addresses.
"""

import asyncio
import os
import signal
import statistics
import sys
import time
from contextlib import ExitStack
from typing import Any

import psutil

from benchmarks.load.client import Reply, ask, begin, quantile
from benchmarks.load.streams import fire, prompts
from server.process import BackgroundServer, serve_in_background

ROOM = {"max_kv_tokens": 65_536, "token_budget": 512, "max_waiting": 1000, "max_batch_size": 64}


def serve_over(servers: list[BackgroundServer], *options: str) -> BackgroundServer:
    """Start a gateway over servers, and wait until it has reached all of them."""
    command = [sys.executable, "-m", "server.cli", "serve", "--port", "0", "--until-stdin-closes"]
    command += [*options, *(part for one in servers for part in ("--replica", one.url))]
    gateway = BackgroundServer(command)
    asyncio.run(_wait_for_all(gateway.url, len(servers)))
    return gateway


async def _wait_for_all(url: str, count: int) -> None:
    async with asyncio.timeout(30):
        while len((await ask(url, "/health")).json()["replicas"]) < count:
            await asyncio.sleep(0.05)


def _start(stack: ExitStack, count: int) -> tuple[list[BackgroundServer], BackgroundServer]:
    servers = [stack.enter_context(serve_in_background(threads=1, **ROOM)) for _ in range(count)]
    return servers, stack.enter_context(serve_over(servers))


async def _speed(url: str, count: int, max_tokens: int) -> float:
    """Tokens per second of `count` streams that start together."""
    began = time.perf_counter()
    replies = await fire(url, count, max_tokens)
    seconds = time.perf_counter() - began
    assert all(reply.complete for reply in replies)
    return sum(len(reply.tokens()) for reply in replies) / seconds


async def _first_token(url: str, number: int) -> float:
    """Milliseconds to the first token of one stream that is alone."""
    reply = await ask(url, "/v1/completions", {"prompt": f"Alone {number}", "max_tokens": 2})
    return 1000 * (reply.tokens()[0][0] - reply.began)


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process and its children."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)


async def _overhead(direct: str, gateway: BackgroundServer, pairs: int) -> dict[str, Any]:
    ratios, cpu, tokens = [], 0.0, 0
    for number in range(pairs + 1):
        alone = await _speed(direct, 32, 64)
        before = _cpu_seconds(gateway.process.pid)
        replies = await fire(gateway.url, 32, 64)
        through_cpu = _cpu_seconds(gateway.process.pid) - before
        count = sum(len(reply.tokens()) for reply in replies)
        through = await _speed(gateway.url, 32, 64)
        if number:
            ratios.append(through / alone)
            cpu, tokens = cpu + through_cpu, tokens + count
    first: dict[str, list[float]] = {"direct": [], "gateway": []}
    for number in range(40):
        first["direct"].append(await _first_token(direct, number))
        first["gateway"].append(await _first_token(gateway.url, number + 1000))
    return {
        "gateway_over_direct": round(statistics.median(ratios), 3),
        "middle_half": [round(quantile(ratios, share), 3) for share in (0.25, 0.75)],
        "gateway_cpu_us_per_token": round(1e6 * cpu / tokens),
        "ttft_ms": {name: round(statistics.median(times), 2) for name, times in first.items()},
    }


def overhead(pairs: int = 7) -> dict[str, Any]:
    """Throughput of 32 streams and TTFT through the gateway against the same server directly."""
    with ExitStack() as stack:
        servers, gateway = _start(stack, 1)
        return asyncio.run(_overhead(servers[0].url, gateway, pairs))


async def _scaling(one: str, two: str, pairs: int) -> dict[str, Any]:
    ratios = []
    for number in range(pairs + 1):
        single = await _speed(one, 64, 64)
        double = await _speed(two, 64, 64)
        if number:
            ratios.append(double / single)
    return {
        "two_over_one": round(statistics.median(ratios), 3),
        "middle_half": [round(quantile(ratios, share), 3) for share in (0.25, 0.75)],
    }


def scaling(pairs: int = 7) -> dict[str, Any]:
    """Throughput of 64 streams over two replicas against one, each behind a gateway."""
    with ExitStack() as stack:
        _, one = _start(stack, 1)
        _, two = _start(stack, 2)
        return asyncio.run(_scaling(one.url, two.url, pairs))


async def _equal(gateway: str, alone: str, count: int) -> dict[str, Any]:
    replies = await fire(gateway, count, 64)
    differ = 0
    for prompt, reply in zip(prompts(count), replies, strict=True):
        body = {"prompt": prompt, "max_tokens": 64}
        expected = await ask(alone, "/v1/completions", body)
        differ += [id_ for _, id_ in expected.tokens()] != [id_ for _, id_ in reply.tokens()]
    complete = sum(reply.complete for reply in replies)
    return {"streams": count, "complete": complete, "differ": differ}


def equal(count: int = 500) -> dict[str, Any]:
    """Streams over two replicas: all complete, with the tokens of one engine."""
    with ExitStack() as stack:
        _, gateway = _start(stack, 2)
        alone = stack.enter_context(serve_in_background(threads=1, **ROOM))
        return asyncio.run(_equal(gateway.url, alone.url, count))


def ended(replies: list[Reply]) -> dict[str, Any]:
    """How streams ended."""
    lost = [reply for reply in replies if reply.error == "replica_lost"]
    return {
        "streams": len(replies),
        "complete": sum(reply.complete for reply in replies),
        "replica_lost": len(lost),
        "other": sum(not reply.complete and reply.error != "replica_lost" for reply in replies),
    }


async def _killed(gateway: str, victim: int, count: int) -> dict[str, Any]:
    body = {"max_tokens": 200, "ignore_eos": True}
    calls = [
        await begin(gateway, "/v1/completions", body | {"prompt": f"Killed {number}"})
        for number in range(count)
    ]
    while sum(bool(call.reply.tokens()) for call in calls) < count // 4:
        await asyncio.sleep(0.01)
    os.kill(victim, signal.SIGKILL)
    began = time.perf_counter()
    later = [
        asyncio.create_task(ask(gateway, "/v1/completions", {"prompt": "New", "max_tokens": 8}))
        for _ in range(10)
    ]
    async with asyncio.timeout(120):
        replies = [await call.ended for call in calls]
        new = await asyncio.gather(*later)
    trace = (await ask(gateway, "/trace")).raw
    return ended(replies) | {
        "moved": trace.count(b'"attempt":2'),
        "new_complete": sum(reply.complete for reply in new),
        "all_ended_after_s": round(time.perf_counter() - began, 1),
    }


def killed(count: int = 100) -> dict[str, Any]:
    """kill -9 of one of two replicas under streams: how each ended. None may hang."""
    with ExitStack() as stack:
        servers = [serve_in_background(threads=1, **ROOM) for _ in range(2)]
        for server in servers:
            stack.callback(server.stop)
        gateway = stack.enter_context(serve_over(servers))
        return asyncio.run(_killed(gateway.url, servers[0].process.pid, count))


async def _drained(gateway: BackgroundServer, count: int) -> dict[str, Any]:
    streams = asyncio.create_task(fire(gateway.url, count, 64))
    while True:
        replicas = (await ask(gateway.url, "/health")).json()["replicas"].values()
        if sum(one["in_flight"] for one in replicas) == count:
            break
    began = time.perf_counter()
    gateway.process.send_signal(signal.SIGTERM)
    replies = await streams
    code = await asyncio.to_thread(gateway.process.wait, 60)
    return ended(replies) | {
        "exit_code": code,
        "ended_after_s": round(time.perf_counter() - began, 2),
    }


def drained(count: int = 100) -> dict[str, Any]:
    """SIGTERM to the gateway while streams run: all complete."""
    with ExitStack() as stack:
        _, gateway = _start(stack, 2)
        return asyncio.run(_drained(gateway, count))


async def _until_aborted(url: str, replica: str, count: int) -> list[float]:
    """Milliseconds from each client's disconnect to the abort in the replica's event feed."""
    feed, found = await begin(replica, "/events", None), []
    body = {"max_tokens": 1000, "ignore_eos": True}
    async with asyncio.timeout(120):
        for number in range(count):
            call = await begin(url, "/v1/completions", body | {"prompt": f"Leaves {number}"})
            while len(call.reply.tokens()) < 4:  # it streams
                await asyncio.sleep(0.005)
            seen, left = len(feed.reply.pieces), time.perf_counter()
            call.leave("close")
            while not any(b'"reason":"abort"' in data for _, data in feed.reply.pieces[seen:]):
                await asyncio.sleep(0.001)
            found.append(1000 * (feed.reply.pieces[-1][0] - left))
    feed.leave("close")
    return found


def leaving(count: int = 40) -> dict[str, Any]:
    """Time from a client's disconnect to the abort of its request, directly and through a gateway."""
    with ExitStack() as stack:
        servers, gateway = _start(stack, 1)
        times = {
            name: asyncio.run(_until_aborted(url, servers[0].url, count))
            for name, url in (("direct", servers[0].url), ("gateway", gateway.url))
        }
    return {
        f"{name}_aborted_after_ms": {
            "p50": round(statistics.median(one), 1),
            "max": round(max(one), 1),
        }
        for name, one in times.items()
    }
