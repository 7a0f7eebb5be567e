"""Each row of the table of failures: its fault, how it is noticed, the remedy, what the client sees."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.cluster.events import Hop, HopFailed, Of
from engine.core.log.vocabulary import RequestArrived
from server.core.settings import ServerSettings
from server.gateway import attempts
from server.gateway.app import create_gateway_app
from server.gateway.ejection import Fault
from server.gateway.failures import FAILURES, Deadlines, Failure
from server.gateway.gateway import Gateway
from server.gateway.replica_set import Member
from server.http.access import CLUSTER_KEY_HEADER
from server.process import BackgroundServer
from tests.server.gateway.cluster import Announced
from tests.server.harness import Caller, Serve, engines_of, post, sse_data

BODY = {"model": "m", "prompt": "x", "max_tokens": 9, "stream": True}
HUGE = Deadlines(beat=0.05, silent=600, render=60, first_token=60, stream=60)
# Faults of one replica whose other one, if any, is well; those of moves are in `test_roles.py`, and the
# one of LMTP in `test_log.py`.
ROWS = [
    row
    for row in FAILURES
    if row.hop not in ("prefill", "export", "adopt") and "LMTP" not in row.what
]


class Call:
    """A request to a gateway in this process, and what it answers."""

    def __init__(self, gateway: Gateway, label: str, *, streamed: bool) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.data = b""
        self.changed = asyncio.Event()
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        headers.append((b"x-client", label.encode()))
        path = "/v1/completions"
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
        scope |= {"headers": headers, "query_string": b"", "root_path": "", "scheme": "http"}
        scope |= {"http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("localhost", 80)}
        self._unread = [
            {"type": "http.request", "body": json.dumps(BODY | {"stream": streamed}).encode()}
        ]
        self.task = asyncio.create_task(
            create_gateway_app(gateway)(scope, self._receive, self._send)
        )

    async def _receive(self) -> Any:
        return self._unread.pop() if self._unread else await asyncio.Event().wait()

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        self.data += message.get("body", b"")
        self.changed.set()

    async def until_token(self) -> None:
        while b"data: " not in self.data:
            self.changed.clear()
            await self.changed.wait()

    @property
    def error(self) -> str | None:
        """The code of its error."""
        if self.status != 200:
            return str(json.loads(self.data)["error"]["code"])
        errors = [one["error"] for one in sse_data(self.data.decode()) if "error" in one]
        return errors[0]["code"] if errors else None


class Scene:
    """A gateway over one replica, which fails, or over two, of which the first one does."""

    def __init__(self, gateway: Gateway, servers: list[BackgroundServer]) -> None:
        self.gateway = gateway
        self.failing, *self.others = servers
        self.follower = gateway.followers["0"]

    def hurry(self, **deadlines: float) -> None:
        self.gateway.deadlines = replace(self.gateway.deadlines, **deadlines)
        self.gateway.changes.wake()

    def step(self, steps: int) -> None:
        key = {CLUSTER_KEY_HEADER: "key"}
        post(self.failing.url, "/engine/step", {"steps": steps}, **key)

    def kill(self) -> None:
        self.failing.process.kill()

    def kill_engine(self) -> None:
        [engine] = engines_of(self.failing)
        engine.kill()

    def fail_a_step(self) -> None:
        self.step(1)

    def stop_working(self) -> None:
        """A replica that says that it works, but does not. Only its lateness counts."""
        take, note = self.follower._take, self.gateway.hop_failed

        async def without_status(block: bytes) -> None:
            if not block.startswith(b"event: status"):
                await take(block)

        def noticed(*arguments: Any, **how: Any) -> None:
            self.gateway.deadlines = HUGE
            note(*arguments, **how)

        self.follower._take = without_status  # type: ignore[method-assign]
        self.gateway.hop_failed = noticed  # type: ignore[method-assign]
        self.follower.status["paused"] = False

    def fall_silent(self) -> None:
        """As many beats as are needed count at once."""
        self.failing.process.send_signal(signal.SIGSTOP)
        self.follower.health._silent = 10**6

    async def stop(self) -> None:
        self.failing.process.send_signal(signal.SIGSTOP)
        self.hurry(render=0.01)

    async def vanish(self) -> None:
        """The gateway does not know yet that the replica is gone."""
        self.follower._task.cancel()
        self.kill()

    async def shut_down(self) -> None:
        """The gateway does not know yet that the replica drains, which has a request to finish."""
        self.request = Caller(self.failing.url, "/v1/completions", BODY, X_Client="gate")
        self.request.socket.recv(1)
        self.failing.process.send_signal(signal.SIGTERM)
        while not self.follower.status.get("not_ready"):
            assert await self.gateway.log.changed(60)
        self.follower._task.cancel()
        self.follower.status = {}

    def heal(self) -> None:
        """Let the well replica work, and the other one, if it can."""
        self.hurry(first_token=60, stream=60, render=60)
        if self.others and self.follower.health.ejection is None:
            self.follower.health.eject(Fault("it has failed", "error"))
        self.failing.process.send_signal(signal.SIGCONT)
        for one in self.others or [self.failing]:
            post(one.url, "/engine/resume")


BEFORE: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "a replica does not answer or refuses": Scene.stop,
    "the only replica does not answer": Scene.stop,
    "a replica is stuck, or shuts down": Scene.shut_down,
    "the only replica shuts down": Scene.shut_down,
    "a replica cannot be reached": Scene.vanish,
}
LATER: dict[str, Callable[[Scene], None]] = {
    "a replica dies": Scene.kill,
    "the only replica dies": Scene.kill,
    "no replica has come back": Scene.kill,
    "an engine's process dies": Scene.kill_engine,
    "a step fails": Scene.fail_a_step,
    "five engines fail in a row": Scene.fail_a_step,
    "the gateway has no cluster key": Scene.kill,
    "a replica falls silent": Scene.fall_silent,
    "an engine does nothing": Scene.stop_working,
    "the only engine does nothing": Scene.stop_working,
}


@asynccontextmanager
async def scene(serve: Serve, row: Failure, gate: str) -> AsyncIterator[Scene]:
    two = row.what == "an engine's process dies"
    options = {"server": {"cluster_key": "key"}} if "key" in row.what else {}
    servers = [serve(paused=True, two_processes=two, gate=gate, **options)]
    if "only" not in row.what and row.what != "no replica has come back":
        # Another kind of engine, which does not fail when it is told to.
        servers.append(serve(paused=True, checking="five" not in row.what, **options))
    members: Any = Announced()
    gateway = Gateway(members, "round_robin", ServerSettings(), deadlines=HUGE)
    gateway.start()
    try:
        for number, server in enumerate(servers):  # in turn, so that the first one is asked first
            while not hasattr(members, "add"):
                await asyncio.sleep(0)
            members.add(Member(str(number), server.url))
            while not gateway.ready[number:] or not gateway.followers[str(number)].status:
                assert await gateway.log.changed(60)
        there = Scene(gateway, servers)
        if row.within in (
            "first_token",
            "stream",
        ):  # a replica that says that it is paused is not late
            there.hurry(first_token=0.01, stream=0.01)
        yield there
    finally:
        await gateway.stop()


def has_arrived(event: object) -> bool:
    return isinstance(event, Of) and isinstance(event.event, RequestArrived)


async def failed(gateway: Gateway, hop: Hop, count: int = 1) -> HopFailed:
    """Wait for a failed hop; return the `count`-th one."""
    while True:
        found = [one for one in gateway.log if isinstance(one, HopFailed) and one.hop == hop]
        if len(found) >= count:
            return found[count - 1]
        assert await gateway.log.changed(60)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.hop}: {row.what}")
async def test_a_failure(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, row: Failure
) -> None:
    if "five" in row.what:
        monkeypatch.setattr(attempts, "_AGAIN_SECONDS", 0.0)
    os.mkfifo(gate := tmp_path / "gate")
    async with scene(serve, row, str(gate)) as there:
        gateway = there.gateway
        if row.what in BEFORE:
            await BEFORE[row.what](there)
        tokens = 3 if row.hop == "stream" else 0
        label = f"fail-after-{tokens}" if "fail" in row.what else "x"
        is_whole = row.hop == "first_token" and row.what == "a replica dies"
        call = Call(gateway, label, streamed=not (is_whole or row.client.startswith("504")))
        if row.what in LATER:
            while not any(map(has_arrived, gateway.log)):
                assert await gateway.log.changed(60)
            if tokens:
                there.step(tokens)
                await call.until_token()
            LATER[row.what](there)
        if "five" in row.what:
            for one in (there.failing, *there.others):
                post(one.url, "/engine/resume")
        if row.what == "no replica has come back":
            await failed(gateway, "first_token")
            there.hurry(queue=0.01)
        event = await failed(gateway, row.hop, 5 if "five" in row.what else 1 + ("key" in row.what))
        assert (event.hop, event.noticed, event.remedy) == (row.hop, row.noticed, row.remedy)
        if row.remedy == "waits":
            there.hurry(queue=0.01)
        elif row.remedy != "ended":
            there.heal()
        await call.task
        if row.remedy == "waits":
            assert (call.status, call.error) == (200, "replica_lost")
        elif row.remedy != "ended":
            assert (call.status, call.error) == (200, None)
            assert call.data.endswith(b"}" if is_whole else b"data: [DONE]\n\n")
        elif row.client.startswith("50"):
            assert str(call.status) == row.client[:3]
            assert call.status != 503 or call.headers[b"retry-after"]
        else:
            assert call.error == row.client.strip("`").replace(
                "the last error", "forward_pass_failed"
            )
