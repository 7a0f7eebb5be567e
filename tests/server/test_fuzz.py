"""Whatever is sent: an answer in order or a refusal in OpenAI's words, and nothing stays of it."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.load import leavers, streams
from benchmarks.load.leavers import open_sockets
from server.api.lmtp.session import Session
from server.core.bridge import Bridge
from server.core.models import Models
from server.core.settings import ServerSettings
from server.load.client import Reply, ask, send
from tests.server import fuzz
from tests.server.bridges import alphabet

AT_ONCE = 16
FRAMES_PER_SESSION = 500
ENGINE = {"max_kv_tokens": 512, "max_batch_size": 16, "token_budget": 256}
LOG_WINDOW = 2_000  # or memory grows until the window is full


def judge(path: str, body: bytes, reply: Reply) -> None:
    """Raise AssertionError for an answer that is no answer."""
    told = f"{path} {body!r} was answered with {reply.raw[:500]!r}"
    if reply.status == 200:
        if reply.header("content-type").startswith("text/event-stream"):
            assert reply.complete or b"data: [DONE]" in reply.raw, told
        else:
            reply.json()
        assert b'"error":{' not in reply.raw, told
    else:
        assert reply.status in {400, 404, 409, 413, 422, 429}, told
        assert reply.json()["error"].keys() == {"message", "type", "param", "code"}, told


def megabytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20


async def live_and_held(url: str) -> tuple[int, int]:
    health = (await ask(url, "/health")).json()
    live = sum(health[state] for state in ("waiting", "prefilling", "active", "pending_submit"))
    blocks = health["blocks"]
    return live, blocks["total"] - blocks["free"] - blocks["cached"]


async def test_http_bodies(serve, soak, first_seed):
    count = 50_000 if soak else 150
    server = serve(engine=ENGINE, server={"log_window": LOG_WINDOW}, paused=False)
    print(f"{count} HTTP bodies, seed {first_seed}")

    sockets, memory = open_sockets(server.process.pid), []
    numbers = iter(range(first_seed, first_seed + count))

    async def worker() -> None:
        for number in numbers:
            path, body = fuzz.body(random.Random(number))
            try:
                judge(path, body, await (await send(server.url, path, body)).ended)
            except Exception as error:
                raise AssertionError(f"seed {number}") from error
            if number % (count // 10) == 0:
                memory.append(megabytes(server.process.pid))

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    assert await live_and_held(server.url) == (0, 0)
    assert open_sockets(server.process.pid) == sockets
    print("resident memory of the server, MiB, after each tenth:", [round(one) for one in memory])
    if soak:
        assert memory[-1] < memory[2] + 50


async def _frames(dice: random.Random, count: int) -> AsyncIterator[str]:
    for _ in range(count):
        yield fuzz.frame(dice)
        await asyncio.sleep(0)


async def test_lmtp_frames(soak, first_seed):
    count = 50_000 if soak else 500
    print(f"{count} LMTP frames, seed {first_seed}")

    bridge = Bridge(alphabet(**ENGINE), ServerSettings(log_window=LOG_WINDOW))
    bridge.start()
    models = Models(bridge)
    for seed in range(first_seed, first_seed + count // FRAMES_PER_SESSION):
        sent: list[str] = []

        async def send(text: str, sent: list[str] = sent) -> None:
            sent.append(text)

        tasks = asyncio.all_tasks()
        await Session(models, send).serve(_frames(random.Random(seed), FRAMES_PER_SESSION))
        assert sent, f"seed {seed}"
        for text in sent:
            word, _, items = text.partition(" ")
            assert word in {"TOKEN", "MSG"}, f"seed {seed}"
            codes = {item.get("code") for item in json.loads(items)}
            assert "internal_error" not in codes, f"seed {seed}: {text}"
        assert asyncio.all_tasks() == tasks, f"seed {seed}"
        async with asyncio.timeout(60):
            while bridge.window.state.requests or bridge.window.state.holds:
                await bridge.window.changed(1)
    assert not bridge.failure
    assert not bridge.live
    state = bridge.window.state
    assert len(state.free) + sum(len(node.blocks) for node in state.nodes.values()) == len(
        state.refs
    )
    assert all(node.lock_ref == 0 for node in state.nodes.values())
    await bridge.stop()


# `benchmarks/load` on small counts: whatever happens, nothing is lost and nothing stays


ROOM = {"max_kv_tokens": 16_384, "token_budget": 512}


def test_many_streams_are_complete_and_have_the_tokens_they_have_alone(serve):
    url = serve(engine=ROOM | {"max_batch_size": 16}).url
    figures = asyncio.run(streams.measure(url, count=60, max_tokens=24))
    assert (figures["complete"], figures["differ"]) == (60, 0)


def test_of_clients_that_leave_at_random_moments_nothing_stays(serve):
    server = serve(engine=ROOM | {"max_batch_size": 8})
    figures = asyncio.run(
        leavers.measure(server.url, server.process.pid, count=90, at_once=30, seconds=0.05)
    )
    assert (figures["held"], figures["live"], figures["sockets"]) == (0, 0, 0)
    assert figures["next_is_unaffected"]
