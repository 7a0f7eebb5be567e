"""Routers in front of the same servers: prefix-cache hits and TTFT, at two rates, for text and chat.

The routers are Underglass's gateway with each of its policies, and, if the environment variables
VLLM_ROUTER and SGLANG_ROUTER name their programs, `vllm-router` and `sglang-router`. Each run starts
new servers, so that every cache is empty, and sends the same requests at the same times.

    python -m benchmarks.load.routers --replicas 2 --kind text --rate 6 [ROUTER ...]
"""

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.load.client import Reply, ask, quantile
from benchmarks.load.gateway import serve_over
from server.process import BackgroundServer, serve_in_background

OURS = ("random", "round_robin", "power_of_two", "prefix_tree", "prefix_events")
OTHERS = {
    "vllm-router power_of_two": ("VLLM_ROUTER", "power_of_two"),
    "vllm-router cache_aware": ("VLLM_ROUTER", "cache_aware"),
    "sglang-router cache_aware": ("SGLANG_ROUTER", "cache_aware"),
}
# A cache that holds four of the six prefixes of the text workload.
SETTINGS = {
    "max_kv_tokens": 4096,
    "block_size": 16,
    "max_batch_size": 16,
    "token_budget": 128,
    "max_waiting": 1000,
}
WORDS = (
    "the fox ran home and saw one red bird by a tall tree near water when rain fell down on old stones"
).split()


@dataclass(slots=True)
class Talk:
    """A conversation: it begins at `at` seconds, and each turn is sent when the last is answered."""

    at: float
    system: str
    turns: list[str]


@dataclass(slots=True)
class Seen:
    """What the clients saw: seconds to the first token, tokens of prompts, and how many were cached."""

    ttft: list[float] = field(default_factory=list)
    prompt: int = 0
    cached: int = 0
    failed: int = 0
    replicas: Counter[str] = field(default_factory=Counter)


def text_workload(rate: float, each: int, seed: int) -> list[Talk]:
    """Six prefixes of about 850 tokens, `each` requests per prefix, at Poisson times."""
    rng = random.Random(seed)
    prefixes = [f"Story {number}. {_words(rng, 800)}" for number in range(6)]
    order = [prefix for prefix in prefixes for _ in range(each)]
    rng.shuffle(order)
    at, talks = 0.0, list[Talk]()
    for prefix in order:
        at += rng.expovariate(rate)
        talks.append(Talk(at, prefix, [f" number {rng.randrange(10**6)} and then"]))
    return talks


def chat_workload(rate: float, count: int, seed: int) -> list[Talk]:
    """`count` conversations of four turns; three system prompts of about 300 tokens."""
    rng = random.Random(seed)
    systems = [f"You are guide {number}. {_words(rng, 300)}" for number in range(3)]
    at, talks = 0.0, list[Talk]()
    for _ in range(count):
        at += rng.expovariate(rate / 4)
        turns = [f"{_words(rng, 25)}?" for _ in range(4)]
        talks.append(Talk(at, rng.choice(systems), turns))
    return talks


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(count))


async def play(url: str, talks: list[Talk], kind: str) -> Seen:
    """Send a workload and return what its clients saw."""
    seen, began = Seen(), time.perf_counter()

    async def one(talk: Talk) -> None:
        await asyncio.sleep(max(0.0, talk.at - (time.perf_counter() - began)))
        messages = [{"role": "system", "content": talk.system}]
        for turn in talk.turns:
            body: dict[str, Any] = {"model": "bundled", "max_tokens": 8, "temperature": 0}
            body |= {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
            if kind == "text":
                body["prompt"] = talk.system + turn
                reply = await ask(url, "/v1/completions", body)
            else:
                messages.append({"role": "user", "content": turn})
                body["messages"] = messages
                reply = await ask(url, "/v1/chat/completions", body)
            said = _note(reply, seen)
            messages.append({"role": "assistant", "content": said})

    await asyncio.gather(*map(one, talks))
    return seen


def _note(reply: Reply, seen: Seen) -> str:
    """Add a reply to what was seen; return its text."""
    said, usage, first = "", dict[str, Any](), None
    for at, data in reply.events():
        if data == "[DONE]" or "error" in data:
            continue
        usage = data.get("usage") or usage
        for choice in data["choices"]:
            piece = choice.get("text") or choice.get("delta", {}).get("content") or ""
            if piece and first is None:
                first = at
            said += piece
    if first is None or not usage:
        seen.failed += 1
        return said
    seen.ttft.append(first - reply.began)
    seen.prompt += usage["prompt_tokens"]
    seen.cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    seen.replicas[reply.header("x-underglass-replica") or "unknown"] += 1
    return said


@contextmanager
def router(name: str, servers: list[BackgroundServer]) -> Iterator[str]:
    """Run a router before the servers; yield its address."""
    urls = [server.url for server in servers]
    if name in OURS:
        with serve_over(servers, "--router", name) as gateway:
            yield gateway.url
        return
    program, policy = OTHERS[name]
    port, metrics = _free_port(), _free_port()
    command = [os.environ[program], "--host", "127.0.0.1", "--port", str(port)]
    if program == "SGLANG_ROUTER":
        command.insert(1, "launch")
    command += ["--policy", policy, "--worker-startup-timeout-secs", "30", "--worker-urls", *urls]
    command += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        asyncio.run(_wait_until_ready(url))
        yield url
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def _wait_until_ready(url: str) -> None:
    body = {"model": "bundled", "prompt": "Hi", "max_tokens": 1}
    async with asyncio.timeout(60):
        while True:
            try:
                if (await ask(url, "/v1/completions", body)).status == 200:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.2)


def measure(name: str, asked: argparse.Namespace) -> None:
    """Run one router and print what its clients saw as a JSON line."""
    make = text_workload if asked.kind == "text" else chat_workload
    talks = make(asked.rate, asked.count, asked.seed)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(serve_in_background(threads=1, **SETTINGS))
            for _ in range(asked.replicas)
        ]
        url = stack.enter_context(router(name, servers))
        began = time.perf_counter()
        seen = asyncio.run(play(url, talks, asked.kind))
    result = {
        "router": name,
        "replicas": asked.replicas,
        "kind": asked.kind,
        "rate": asked.rate,
        "requests": len(seen.ttft),
        "failed": seen.failed,
        "hit_rate": round(seen.cached / max(1, seen.prompt), 3),
        "ttft_mean_ms": round(1000 * statistics.mean(seen.ttft)),
        "ttft_p95_ms": round(1000 * quantile(seen.ttft, 0.95)),
        "per_replica": dict(seen.replicas),
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(result), flush=True)


def main() -> None:
    """Measure the named routers, or all routers if none is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("routers", nargs="*", help="names; without one, all")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--kind", choices=("text", "chat"), default="text")
    parser.add_argument("--rate", type=float, default=6.0, help="requests per second")
    parser.add_argument(
        "--count", type=int, default=20, help="requests per prefix, or conversations"
    )
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    there = [*OURS, *(name for name, (program, _) in OTHERS.items() if program in os.environ)]
    unknown = [name for name in asked.routers if name not in there]
    if unknown:
        sys.exit(f"unknown, or not installed: {', '.join(unknown)}; there are {', '.join(there)}")
    for name in asked.routers or there:
        measure(name, asked)


if __name__ == "__main__":
    main()
