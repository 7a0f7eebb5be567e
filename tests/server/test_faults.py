"""Failures on the server's side: every client learns of them, nothing hangs, the rest goes on."""

import asyncio
import json
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from engine.core.log.vocabulary import RequestArrived, RequestFinished
from server.core.signals import on_signal
from tests.server.harness import Caller, Serve, get, http, post, sse_data, trace, until, watch

BOTH_SHAPES = True


def until_ready_says(url: str, status: int) -> None:
    until(url, "/ready", lambda answer: answer.status_code == status)


# A forward pass that raises


def test_a_failing_forward_pass_ends_its_requests_with_an_error(url: str) -> None:
    body = {"prompt": "x", "max_tokens": 9}
    failing = {"X-Client": "fail-after-3"}
    *tokens, last = sse_data(post(url, "/v1/completions", body, **failing).text)
    assert [event["token"] for event in tokens] == ["a", "b", "c"]
    assert last["error"]["code"] == "forward_pass_failed"
    assert "told to fail" in last["error"]["message"]

    streamed = post(url, "/v1/completions", body | {"stream": True}, **failing)
    *_, error, done = sse_data(streamed.text)
    assert (error["error"]["type"], done) == ("server_error", "[DONE]")

    whole = post(url, "/v1/completions", body | {"stream": False}, **failing)
    assert whole.status_code == 500
    assert whole.json()["error"]["code"] == "forward_pass_failed"

    chat = {"messages": [{"role": "user", "content": "x"}], "n": 2, "stream": True}
    *_, error, done = sse_data(post(url, "/v1/chat/completions", chat, **failing).text)
    assert (error["error"]["code"], done) == ("forward_pass_failed", "[DONE]")


def test_a_chat_stream_that_fails_before_its_first_token_starts_with_the_error(url: str) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "n": 2, "stream": True}
    failing = {"X-Client": "fail-after-0"}
    error, done = sse_data(post(url, "/v1/chat/completions", body, **failing).text)
    assert (error["error"]["code"], done) == ("forward_pass_failed", "[DONE]")


# The engine's own loop raises


def test_a_broken_loop_ends_every_stream_and_is_said_on_ready(serve: Serve) -> None:
    url = serve(paused=True).url
    with watch(url) as feed:
        streams = [
            Caller(url, "/v1/completions", {"prompt": "x", "stream": True}) for _ in range(3)
        ]
        whole = Caller(url, "/v1/completions", {"prompt": "x", "stream": False})
        feed.until_kind(RequestArrived, 4)
        breaking = Caller(url, "/v1/completions", {"prompt": "x"}, X_Client="break")
        until(url, "/health", lambda answer: answer.json()["waiting"] == 5)
        Caller(url, "/engine/resume", None).read_all()
        for stream in streams:
            error, done = sse_data(stream.read_all())[-2:]
            assert (error["error"]["code"], done) == ("engine_failed", "[DONE]")
        assert "503" in whole.read_all().splitlines()[0]
        assert "engine_failed" in breaking.read_all()
        assert feed.until_not_ready() == get(url, "/ready")["error"]["message"]
    ready = http(url).get("/ready")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "not_ready")
    assert "told to break" in ready.json()["error"]["message"]
    health = http(url).get("/health")
    assert (health.status_code, health.json()["status"]) == (503, "failed")
    assert "told to break" in health.json()["failure"]
    for path in ("/v1/completions", "/engine/pause", "/engine/step"):
        refused = post(url, path, {"prompt": "x"} if "v1" in path else None)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_failed")


# A forward pass that hangs


def test_a_hanging_step_ends_what_waits_for_it_and_the_server_recovers(
    serve: Serve, gate: Path
) -> None:
    url = serve(gate=gate, server={"stuck_seconds": 0.3}).url
    body = {"prompt": "x", "max_tokens": 2}
    with watch(url) as feed:
        hanging = Caller(url, "/v1/completions", body, X_Client="gate")
        until(url, "/health", lambda answer: answer.json()["pending_submit"] == 0)
        behind = Caller(url, "/v1/completions", body | {"stream": True})
        whole = Caller(url, "/v1/completions", body | {"stream": False})
        held = Caller(url, "/engine/pause", None)

        *_, told = sse_data(hanging.read_all())
        assert (told["error"]["code"], told["error"]["type"]) == ("engine_stuck", "server_error")
        for caller in (behind, whole, held):
            answer = caller.read_all()
            assert answer.startswith("HTTP/1.1 503"), answer
            assert "engine_stuck" in answer
            assert "retry-after: 1" in answer.lower()
        assert http(url).get("/ready").status_code == 503
        for method in ("GET", "POST"):
            stuck = http(url).request(method, "/ping")
            assert (stuck.status_code, stuck.json()["error"]["code"]) == (503, "engine_stuck")
        feed.until_not_ready()
        refused = post(url, "/v1/completions", body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_stuck")
        assert refused.headers["retry-after"] == "1"
        assert post(url, "/engine/step").status_code == 503

        gate.write_text("open")
        until_ready_says(url, 200)
        feed.until_status(not_ready="")
        after = post(url, "/v1/completions", body)
        assert sse_data(after.text)[-1]["full_text"] == "ab"
        assert after.headers["x-underglass-request"] == "2"  # those behind were never queued
        assert get(url, "/health")["paused"] is False  # nor was the engine held
        assert [event.reason for event in trace(url).of(RequestFinished)] == ["abort", "length"]
        health = get(url, "/health")
        assert health["blocks"]["free"] + health["blocks"]["cached"] == health["blocks"]["total"]


def test_lmtp_streams_behind_a_hanging_step_end_and_the_connection_goes_on(
    serve: Serve, gate: Path
) -> None:
    url = serve(gate=gate, server={"stuck_seconds": 0.3}).url

    def generate(stream: int, user: str) -> str:
        call = {"stream_id": stream, "prompt": [97], "max_tokens": 2, "user": user}
        return f"GENERATE {json.dumps(call)}"

    def items(socket: ClientConnection) -> list[dict[str, Any]]:
        return json.loads(socket.recv(timeout=30).partition(" ")[2])

    with connect(url.replace("http", "ws") + "/lmtp") as socket:
        socket.send(generate(1, "gate"))
        socket.send(generate(2, ""))
        ended: dict[int, str] = {}
        while len(ended) < 2:
            ended |= {one["stream_id"]: one["code"] for one in items(socket) if "error" in one}
        assert ended == {1: "engine_stuck", 2: "engine_stuck"}
        gate.write_text("open")
        until_ready_says(url, 200)
        socket.send(generate(3, ""))
        tokens: list[int] = []
        while len(tokens) < 2:
            tokens += [one["token"] for one in items(socket) if one.get("token") is not None]
        assert tokens == [97, 98]


def test_a_step_that_never_returns_does_not_keep_the_process(serve: Serve, gate: Path) -> None:
    server = serve(gate=gate, server={"stuck_seconds": 0.1, "drain_seconds": 60})
    caller = Caller(server.url, "/v1/completions", {"prompt": "x"}, X_Client="gate")
    assert "engine_stuck" in caller.read_all()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0


# Too many, too slow


def test_a_slow_reader_is_disconnected_without_stalling_others(serve: Serve) -> None:
    url = serve(engine={"max_kv_tokens": 262_144}, server={"buffer_bytes": 100_000}).url
    with watch(url) as feed:
        body = {"prompt": "x", "max_tokens": 50_000}
        slow = feed.queued(body, receive_buffer=4096)
        fast = sse_data(post(url, "/v1/completions", {"prompt": "y", "max_tokens": 500}).text)
        assert len(fast) == 501
        feed.until_kind(RequestFinished, 2)
        ended = [one for one in feed.events if isinstance(one, RequestFinished)]
        assert {(one.request, one.reason) for one in ended} == {(1, "abort"), (2, "length")}
        assert feed.state.step < 50_000
    # Should it read after all, it gets what was on its way, and the reason.
    assert sse_data(slow.read_all())[-1]["error"]["code"] == "slow_reader"


def test_a_reader_that_accepts_nothing_is_cut_off_after_a_while(serve: Serve) -> None:
    url = serve(
        engine={"max_kv_tokens": 262_144}, server={"buffer_bytes": 1 << 30, "stall_seconds": 0.1}
    ).url
    body = {"prompt": "x", "max_tokens": 200_000}
    slow = Caller(url, "/v1/completions", body, receive_buffer=4096)
    until(url, "/health", lambda answer: answer.json()["active"] == 1)
    until(url, "/health", lambda answer: answer.json()["active"] == 0)
    assert [event.reason for event in trace(url).of(RequestFinished)] == ["abort"]
    with suppress(ConnectionResetError):  # the kernel may have hung up already
        assert '"done"' not in slow.read_all()


# The end


@pytest.mark.parametrize("paused", [False, True])
def test_sigterm_lets_running_requests_finish(serve: Serve, gate: Path, paused: bool) -> None:
    """While it drains it still answers: /ready and new requests get 503. Held requests run, too."""
    server = serve(gate=gate, paused=paused)
    url = server.url
    with watch(url) as feed:
        body = {"prompt": "x", "max_tokens": 30}
        callers = [Caller(url, "/v1/completions", body, X_Client="gate")]
        feed.until_kind(RequestArrived)
        callers.append(Caller(url, "/v1/completions", body))
        # While the step hangs, the second may be in the queue or still on its way there.
        places = ("waiting", "prefilling", "active", "pending_submit")
        until(url, "/health", lambda answer: sum(answer.json()[place] for place in places) == 2)
        server.process.send_signal(signal.SIGTERM)
        until_ready_says(url, 503)
        assert get(url, "/health")["status"] == "draining"
        refused = post(url, "/v1/completions", {"prompt": "x"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutdown")
        assert refused.headers["retry-after"] == "1"
        gate.write_text("open")
        texts = [sse_data(caller.read_all())[-1] for caller in callers]
        assert server.process.wait(30) == 0
    assert [text["full_text"] for text in texts] == ["abcdefghijklmnopqrstuvwxyzabcd"] * 2


def test_a_request_that_outlasts_the_shutdown_gets_an_error(serve: Serve, gate: Path) -> None:
    server = serve(gate=gate, server={"drain_seconds": 0.2})
    with watch(server.url) as feed:
        body = {"prompt": "x", "stream": True}
        caller = feed.queued(body, X_Client="gate")
        server.process.send_signal(signal.SIGTERM)
        error, done = sse_data(caller.read_all())
        assert (error["error"]["code"], done) == ("shutdown", "[DONE]")
        assert server.process.wait(30) == 0


def test_a_second_sigterm_stops_at_once(serve: Serve, gate: Path) -> None:
    server = serve(gate=gate)
    caller = Caller(server.url, "/v1/completions", {"prompt": "x"}, X_Client="gate")
    caller.socket.recv(1)
    server.process.send_signal(signal.SIGTERM)
    until_ready_says(server.url, 503)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 128 + signal.SIGTERM


def test_ctrl_c_ends_an_idle_server_and_its_viewers(serve: Serve) -> None:
    server = serve()
    with watch(server.url) as feed:
        server.process.send_signal(signal.SIGINT)
        assert list(feed) == []  # the feed ends on its own, in good order
        assert server.process.wait(30) == 0


def test_silence_is_filled_with_comments(serve: Serve) -> None:
    """A held engine says nothing for as long as the class thinks; proxies must not give up."""
    url = serve(paused=True, server={"keep_alive": 0.01}).url
    chat = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    for caller in (
        Caller(url, "/v1/completions", {"prompt": "x"}),
        Caller(url, "/v1/completions", {"prompt": "x", "stream": True}),
        Caller(url, "/v1/chat/completions", chat),
    ):
        received = b""
        while received.count(b": keep-alive\n\n") < 3:
            received += caller.socket.recv(4096)
        assert received.startswith(b"HTTP/1.1 200 OK")
        assert b"x-underglass-request" in received
        assert b"data:" not in received


# A signal reaches the event loop, also where the loop itself cannot wait for one


@pytest.mark.parametrize("loop_has_handlers", [True, False], ids=["posix", "windows"])
def test_a_signal_calls_the_function_on_the_event_loop(
    loop_has_handlers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_on_windows(self, number, call):
        raise NotImplementedError

    async def wait_for_a_signal() -> bool:
        if not loop_has_handlers:
            kind = type(asyncio.get_running_loop())
            monkeypatch.setattr(kind, "add_signal_handler", not_on_windows)
        came = asyncio.Event()
        on_signal(signal.SIGTERM, came.set)
        signal.raise_signal(signal.SIGTERM)
        return await asyncio.wait_for(came.wait(), 10)

    before = signal.getsignal(signal.SIGTERM)
    try:
        assert asyncio.run(wait_for_a_signal())
    finally:
        signal.signal(signal.SIGTERM, before)
