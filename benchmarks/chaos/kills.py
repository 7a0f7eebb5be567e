"""200 streams on three replicas; a replica is killed ten times, each time after the last one is back.

Every stream must be complete. Greedy and seeded tokens must equal those of a server without faults, up
to rounding: a continued stream's KV is computed in other batches, and where two tokens are nearly
equally likely, the other one may win. `Difference` says how
near they were.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tqdm import tqdm

from benchmarks.chaos.cluster import REPLICAS, Listed, alone
from benchmarks.chaos.rounding import Judge, Known, known
from benchmarks.chaos.runs import story
from engine import EventLog
from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog
from server.load.client import Call, Reply, ask, begin

_PATH = "/v1/completions"
_ENOUGH = 0.8  # the share of a round's streams that have tokens when the replica is killed


@dataclass(frozen=True)
class Difference:
    """The first token of a stream that is not as without faults.

    margin  how near the two were; see `rounding.py`
    """

    stream: int
    at: int
    expected: int
    got: int
    margin: float


async def measure(
    cluster: Listed, *, streams: int = 200, kills: int = 10, tokens: int = 400, seed: int = 0
) -> dict[str, Any]:
    """Return how the streams ended. The cluster's servers run; its gateway does not yet."""
    bodies = _bodies(streams, tokens, random.Random(seed))
    with alone() as url:
        asked = (ask(url, _PATH, body, X_Client=str(key)) for key, body in bodies.items())
        wanted = dict(zip(bodies, await asyncio.gather(*asked), strict=True))
        requests = known(EventLog.from_bytes((await ask(url, "/trace")).body))
    await cluster.start_gateway("--trace-file", str(cluster.directory / "cluster.jsonl"))
    calls, keys = list[Call](), list[int]()
    restarted = list[float]()
    for number in tqdm(range(kills), desc="kills", disable=None):
        new = [number + kills * one for one in range(streams // kills)]
        keys += new
        calls += [
            await begin(cluster.url, _PATH, bodies[one % len(bodies)], X_Client=f"stream-{one}")
            for one in new
        ]
        await _until_streaming(calls[-len(new) :])
        victim = cluster.replicas[number % REPLICAS]
        assert victim.server is not None
        os.kill(victim.server.process.pid, signal.SIGKILL)
        at = time.perf_counter()
        await victim.stop()
        await victim.start()
        await cluster.until_status("ok")
        restarted.append(time.perf_counter() - at)
    async with asyncio.timeout(300):
        replies = [await call.ended for call in calls]
    log = ClusterLog.from_bytes(await cluster.trace())
    judge, differences = Judge(), list[Difference]()
    for stream, reply in zip(keys, replies, strict=True):
        key = stream % len(bodies)
        if one := _difference(stream, requests[str(key)], reply, wanted[key], judge):
            differences.append(one)
    left = await cluster.until_freed()
    longest = max(range(len(replies)), key=lambda one: _longest_gap(replies[one]))
    print("\n".join(["The stream with the longest gap:", *story(log, f"stream-{keys[longest]}")]))
    return _figures(replies, differences, log, restarted) | {"left": left}


def _bodies(streams: int, tokens: int, dice: random.Random) -> dict[int, dict[str, Any]]:
    """A quarter as many bodies as streams: half of them greedy, half seeded."""
    bodies = {}
    for key in range(max(1, streams // 4)):
        prompt = f"Once upon a time there was a number {dice.randrange(1000)}. It"
        sampling = {"temperature": 0} if key % 2 else {"temperature": 1.0, "seed": key}
        bodies[key] = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True} | sampling
    return bodies


async def _until_streaming(calls: Sequence[Call]) -> None:
    """Wait until enough of them have tokens, or have ended."""
    async with asyncio.timeout(60):
        while sum(b"token_id" in call.reply.raw for call in calls) < _ENOUGH * len(calls):
            await asyncio.sleep(0.02)


def _difference(
    stream: int, request: Known, reply: Reply, expected: Reply, judge: Judge
) -> Difference | None:
    got = [id_ for _, id_ in reply.tokens()]
    wanted = [id_ for _, id_ in expected.tokens()]
    pairs = enumerate(zip(got, wanted, strict=False))
    at = next((index for index, (one, other) in pairs if one != other), None)
    if at is None:
        return None
    margin = judge.margin(request.prompt, wanted[: at + 1], request.sampling, 0)
    return Difference(stream, at, wanted[at], got[at], margin)


def _longest_gap(reply: Reply) -> float:
    return max((two - one for (one, _), (two, _) in pairwise(reply.tokens())), default=0.0)


def _figures(
    replies: Sequence[Reply],
    differences: Sequence[Difference],
    log: ClusterLog,
    restarted: list[float],
) -> dict[str, Any]:
    routed = [one for one in log if isinstance(one, c.Routed)]
    again = [one for one in routed if one.attempt > 1]
    return {
        "streams": len(replies),
        "kills": len(restarted),
        "complete": sum(reply.complete for reply in replies),
        "errors": [reply.error or reply.status for reply in replies if not reply.complete],
        "continued": len({one.request for one in again if one.output}),
        "retried": len({one.request for one in again if not one.output}),
        "routed_again": len(again),
        "equal": sum(reply.complete for reply in replies) - len(differences),
        "differences": [asdict(one) for one in differences],
        "recomputed_tokens": sum(
            one.prompt + one.output - one.hits.get(one.replica, 0) for one in again
        ),
        "longest_gap_s": round(max(map(_longest_gap, replies)), 2),
        "replaced_after_s": [round(one, 1) for one in restarted],
    }
