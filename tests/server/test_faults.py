"""Failures on the server's side: every client learns of them, nothing hangs, the rest goes on."""

import signal
from contextlib import suppress

import pytest

from engine.core.log.vocabulary import RequestArrived, RequestFinished
from tests.server.harness import (
    Caller,
    fetch,
    get,
    post,
    refusal,
    sse_data,
    trace,
    until,
    until_ready,
    watch,
)
from tests.server.lmtp.wire import Wire

BOTH_SHAPES = True


def test_a_failing_forward_pass_ends_its_requests_with_an_error(url):
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
    for tokens in (3, 0):  # without a token, the stream starts with the error
        failing = {"X-Client": f"fail-after-{tokens}"}
        *before, error, done = sse_data(post(url, "/v1/chat/completions", chat, **failing).text)
        assert (error["error"]["code"], done) == ("forward_pass_failed", "[DONE]")
        assert bool(before) == bool(tokens)


def test_a_broken_loop_ends_every_stream_and_is_said_on_ready(serve):
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
    ready = fetch(url, "/ready")
    assert refusal(ready) == (503, "not_ready")
    assert "told to break" in ready.json()["error"]["message"]
    health = fetch(url, "/health")
    assert (health.status_code, health.json()["status"]) == (503, "failed")
    assert "told to break" in health.json()["failure"]
    for path in ("/v1/completions", "/engine/pause", "/engine/step"):
        assert refusal(post(url, path, {"prompt": "x"} if "v1" in path else None)) == (
            503,
            "engine_failed",
        )


def test_a_hanging_step_ends_what_waits_for_it_and_the_server_recovers(serve, gate):
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
        assert fetch(url, "/ready").status_code == 503
        for method in ("GET", "POST"):
            assert refusal(fetch(url, "/ping", method)) == (503, "engine_stuck")
        feed.until_not_ready()
        refused = post(url, "/v1/completions", body)
        assert refusal(refused) == (503, "engine_stuck")
        assert refused.headers["retry-after"] == "1"
        assert post(url, "/engine/step").status_code == 503

        gate.write_text("open")
        until_ready(url, 200)
        feed.until_status(not_ready="")
        after = post(url, "/v1/completions", body)
        assert sse_data(after.text)[-1]["full_text"] == "ab"
        assert after.headers["x-underglass-request"] == "2"  # those behind were never queued
        assert get(url, "/health")["paused"] is False  # nor was the engine held
        assert [event.reason for event in trace(url).of(RequestFinished)] == ["abort", "length"]
        health = get(url, "/health")
        assert health["blocks"]["free"] + health["blocks"]["cached"] == health["blocks"]["total"]


def test_lmtp_streams_behind_a_hanging_step_end_and_the_connection_goes_on(serve, gate):
    url = serve(gate=gate, server={"stuck_seconds": 0.3}).url

    with Wire(url) as wire:
        wire.generate(1, [97], user="gate")
        wire.generate(2, [97])
        assert [wire.error(stream)["code"] for stream in (1, 2)] == ["engine_stuck"] * 2
        gate.write_text("open")
        until_ready(url, 200)
        assert wire.say(3, [97], max_tokens=2) == "ab"


def test_a_step_that_never_returns_does_not_keep_the_process(serve, gate):
    server = serve(gate=gate, server={"stuck_seconds": 0.1, "drain_seconds": 60})
    caller = Caller(server.url, "/v1/completions", {"prompt": "x"}, X_Client="gate")
    assert "engine_stuck" in caller.read_all()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0


def test_a_slow_reader_is_disconnected_without_stalling_others(serve):
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


def test_a_reader_that_accepts_nothing_is_cut_off_after_a_while(serve):
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


@pytest.mark.parametrize("paused", [False, True])
def test_sigterm_lets_running_requests_finish(serve, gate, paused):
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
        until_ready(url, 503)
        assert get(url, "/health")["status"] == "draining"
        refused = post(url, "/v1/completions", {"prompt": "x"})
        assert refusal(refused) == (503, "shutdown")
        assert refused.headers["retry-after"] == "1"
        gate.write_text("open")
        texts = [sse_data(caller.read_all())[-1] for caller in callers]
        assert server.process.wait(30) == 0
    assert [text["full_text"] for text in texts] == ["abcdefghijklmnopqrstuvwxyzabcd"] * 2


def test_a_request_that_outlasts_the_shutdown_gets_an_error(serve, gate):
    server = serve(gate=gate, server={"drain_seconds": 0.2})
    with watch(server.url) as feed:
        body = {"prompt": "x", "stream": True}
        caller = feed.queued(body, X_Client="gate")
        server.process.send_signal(signal.SIGTERM)
        error, done = sse_data(caller.read_all())
        assert (error["error"]["code"], done) == ("shutdown", "[DONE]")
        assert server.process.wait(30) == 0


def test_a_second_sigterm_stops_at_once(serve, gate):
    server = serve(gate=gate)
    caller = Caller(server.url, "/v1/completions", {"prompt": "x"}, X_Client="gate")
    caller.socket.recv(1)
    server.process.send_signal(signal.SIGTERM)
    until_ready(server.url, 503)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 128 + signal.SIGTERM


def test_ctrl_c_ends_an_idle_server_and_its_viewers(serve):
    server = serve()
    with watch(server.url) as feed:
        server.process.send_signal(signal.SIGINT)
        assert list(feed) == []  # the feed ends on its own, in good order
        assert server.process.wait(30) == 0


def test_silence_is_filled_with_comments(serve):
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
