"""Prefill here, decode there: equal tokens, bytes and time per move, and whether moving was right.

UNDERGLASS_MOVING_REQUESTS requests go, one after the other, through a gateway with one prefill and one
decode replica of the bundled model, and to one server that computes everything itself. Prompts have 8
to 800 tokens, and half of them continue an earlier prompt; half are greedy, half sampled with a seed.

A decision was right if it took less time: with a move, the copy and the decode replica's own work up to
the first token, against the work of the lone server; without one, the other way round, with the copy as
the gateway expected it. What the prefill replica does is not counted: it delays no stream.
"""

import os
import random
import statistics
import sys
import time
from dataclasses import asdict
from typing import Any

import httpx

from benchmarks.report import save
from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog
from engine.cluster.transfer import TransferCosts
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from server.process import BackgroundServer, serve_in_background
from visualizer import read
from visualizer.reading.rows import RequestRow

REQUESTS = int(os.environ.get("UNDERGLASS_MOVING_REQUESTS", "300"))
KEY = "benchmark"
BLOCK = 16
WINDOW = 2_000_000


def bodies(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Return random requests."""
    rng, prompts, made = random.Random(seed), list[list[int]](), list[dict[str, Any]]()
    for number in range(count):
        prompt = [
            rng.randrange(256, 1400) for _ in range(rng.choice([8, 30, 60, 120, 250, 500, 800]))
        ]
        if prompts and rng.random() < 0.5:
            stem = rng.choice(prompts)
            prompt = [*stem[: rng.randint(1, len(stem))], *prompt][:800]
        prompts.append(prompt)
        body = {"prompt": prompt, "max_tokens": 4, "stream": False, "ignore_eos": True}
        made.append(body | {"temperature": float(number % 2), "seed": number, "logprobs": 0})
    return made


def answer(client: httpx.Client, body: dict[str, Any]) -> list[str]:
    """Return the output's tokens."""
    response = client.post("/v1/completions", json=body).raise_for_status()
    return list(response.json()["choices"][0]["logprobs"]["tokens"])


def work_ms(row: RequestRow) -> float:
    """Return how long a request ran until its first token."""
    assert row.ttft_ms is not None
    assert row.queue_ms is not None
    return row.ttft_ms - row.queue_ms


def run(gateway: BackgroundServer, alone: BackgroundServer) -> dict[str, Any]:
    """Send all requests, and return the figures."""
    options: dict[str, Any] = dict(timeout=120, trust_env=False)
    with (
        httpx.Client(base_url=gateway.url, **options) as through,
        httpx.Client(base_url=alone.url, **options) as direct,
    ):
        while (health := through.get("/health").json())["moving"] is None:
            time.sleep(0.1)
        costs = TransferCosts(**health["moving"])
        asked = bodies(REQUESTS)
        equal = [answer(through, body) == answer(direct, body) for body in asked]
        log = ClusterLog.from_bytes(through.get("/trace").content)
        lone = EventLog.from_bytes(direct.get("/trace").content)
    moved = {event.request: event for event in log if isinstance(event, c.Moved)}
    replicas = log.replicas
    decode = replicas["1"]
    placed = {e.request: e.its_request for e in log if isinstance(e, c.Placed) and e.replica == "1"}
    work = {row.request: row for row in read(decode).request_rows}
    lone_rows = read(lone).request_rows
    right = {True: 0, False: 0}
    gains = list[float]()
    for number, body in enumerate(asked, start=1):
        there = lone_rows[number - 1]
        here = work[placed[number]]
        computed, own = work_ms(there), work_ms(here)
        blocks = (len(body["prompt"]) - 1) // BLOCK - (there.cached_tokens or 0) // BLOCK
        if event := moved.get(number):
            cost = event.t["us"] / 1000 + own
            right[True] += cost < computed
            gains.append(computed - cost)
        else:
            right[False] += computed <= costs.move_ms(max(blocks, 0)) + min(own, computed)
    us = sorted(event.t["us"] for event in moved.values())
    return {
        "requests": len(asked),
        "equal": sum(equal),
        "costs": asdict(costs),
        "moved": len(moved),
        "moved_right": right[True],
        "stayed": len(asked) - len(moved),
        "stayed_right": right[False],
        "mib": sum(event.bytes for event in moved.values()) / 2**20,
        "blocks": sum(event.blocks for event in moved.values()),
        "move_ms_median": statistics.median(us) / 1000,
        "move_ms_p90": us[len(us) * 9 // 10] / 1000,
        "saved_ms_median": statistics.median(gains),
        "adopted_events": len(decode.of(v.PrefixAdopted)),
    }


def main() -> None:
    """Print and save the figures."""
    engine: dict[str, Any] = dict(
        max_kv_tokens=8192, token_budget=256, request_log="off", log_window=WINDOW
    )
    with (
        serve_in_background(cluster_key=KEY, **engine) as prefill,
        serve_in_background(cluster_key=KEY, **engine) as decode,
        serve_in_background(**engine) as alone,
    ):
        command = [
            sys.executable,
            "-m",
            "server.cli",
            "serve",
            "--port",
            "0",
            "--until-stdin-closes",
        ]
        command += ["--replica", prefill.url, "--replica", decode.url, "--cluster-key", KEY]
        command += ["--roles", "prefill=1,decode=1", "--log-window", str(WINDOW)]
        with BackgroundServer([*command, "--request-log", "off"]) as gateway:
            found = run(gateway, alone)
    for key, value in found.items():
        print(f"{key:16} {value}")
    save("moving", found)


if __name__ == "__main__":
    main()
