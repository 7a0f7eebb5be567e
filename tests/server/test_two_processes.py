"""The engine in a process of its own: what happens when one of the two processes ends.

What both shapes of the server have in common is tested in the modules with `BOTH_SHAPES`.
"""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.core.log.vocabulary import RequestArrived, RequestFinished, RunStarted, StepFinished
from engine.models.loader import BUNDLED
from server.core.engine_process import LaunchError, launch
from server.process import SWITCHES, BackgroundServer, serve_in_background
from tests.facts import assert_names
from tests.server.harness import (
    Caller,
    completed,
    engines_of,
    fetch,
    get,
    metrics,
    post,
    refusal,
    serve_forked,
    sse_data,
    start,
    trace,
    until,
    until_ready,
    watch,
)
from tests.server.lmtp.wire import Wire

ROOM = {"max_batch_size": 64, "max_kv_tokens": 8192, "token_budget": 512}


def child(server: BackgroundServer) -> psutil.Process:
    [found] = engines_of(server)
    return found


def test_kill_9_of_the_engine_is_told_to_all_clients_and_the_engine_is_started_again(
    serve, tmp_path
):
    trace_file = tmp_path / "class.jsonl"
    server = serve(two_processes=True, paused=True, engine=ROOM, trace_file=str(trace_file))
    url, first = server.url, child(server)
    descriptors = psutil.Process(server.process.pid).num_fds()
    forms: list[dict[str, Any]] = [{}, {"stream": True}, {"stream": False}]
    with watch(url) as feed:
        callers = []
        for number in range(51):
            body = {"prompt": f"x{number}", "max_tokens": 99} | forms[number % 3]
            callers.append(Caller(url, "/v1/completions", body))
        feed.until_kind(RequestArrived, 51)
        post(url, "/engine/step", {"steps": 3})
        feed.until_kind(StepFinished, 3)
        old_run = feed.run

        first.kill()
        for number, caller in enumerate(callers):
            text = caller.read_all()
            if number % 3 == 2:
                assert text.startswith("HTTP/1.1 503"), text
                assert "engine_died" in text
            else:
                errors = [one["error"] for one in sse_data(text) if "error" in one]
                assert [one["code"] for one in errors] == ["engine_died"]
                assert_names(errors[0]["message"], "SIGKILL")

        feed.until_status(previous={"run": old_run, "changed": {}, "prompts": "none"})
        assert feed.run != old_run
        assert feed.status["paused"] is True  # as it was before
    until_ready(url)
    assert child(server).pid != first.pid
    assert get(url, "/health")["status"] == "ok"
    post(url, "/engine/resume")
    assert completed(url) == "abc"
    old, new = trace(url, previous="true"), trace(url)
    assert len(old.of(RequestArrived)) == 51
    assert [one.reason for one in new.of(RequestFinished)] == ["length"]
    assert trace_file.read_bytes() == old.to_bytes()
    assert (tmp_path / "class-2.jsonl").read_bytes() == new.to_bytes()
    while psutil.Process(server.process.pid).num_fds() > descriptors:
        pass  # it notices within its next turn that the last client has disconnected
    assert server.stop() == 0


def test_an_engine_that_dies_again_soon_ends_the_server(serve):
    server = serve(two_processes=True)
    with watch(server.url) as feed:
        child(server).kill()
        feed.until_status(not_ready="", paused=False)
        while not feed.status["previous"]:
            next(feed._read())
        child(server).kill()
        list(feed)  # it ends
    assert server.process.wait(30) == 1
    assert_names(server.output(), "SIGKILL", "second")


def test_while_the_engine_is_gone_new_requests_wait_and_are_answered(serve, gate):
    server = serve(two_processes=True, start_gate=gate)
    url = server.url
    child(server).kill()
    until_ready(url, 503)
    health = fetch(url, "/health")
    assert (health.status_code, health.json()["status"]) == (503, "failed")
    assert_names(health.json()["failure"], "SIGKILL")
    assert metrics(url)[("underglass:engine_failed",)] == 1
    body = {"prompt": "x", "max_tokens": 3}
    waiting = [Caller(url, "/v1/completions", body) for _ in range(3)]
    until_ready(url, 503)  # they have arrived
    gate.write_text("open")
    assert [sse_data(one.read_all())[-1]["full_text"] for one in waiting] == ["abc"] * 3
    assert metrics(url)[("underglass:engine_failed",)] == 0
    assert get(url, "/health")["failure"] == ""


def test_requests_that_wait_for_the_tokenizer_when_the_engine_dies_are_refused(serve, gate):
    server = serve(two_processes=True, gate=gate)
    prompts = ["gate: it is being tokenized", "it is next"]
    first, second = (Caller(server.url, "/v1/completions", {"prompt": one}) for one in prompts)
    until(server.url, "/health", lambda answer: answer.json()["pending_submit"] == 2)
    child(server).kill()
    assert second.read_all().startswith("HTTP/1.1 503")
    gate.write_text("open")
    assert first.read_all().startswith("HTTP/1.1 503")


def test_no_more_requests_wait_for_the_engine_than_for_a_place_in_the_batch(serve, gate):
    server = serve(two_processes=True, start_gate=gate, server={"max_waiting": 1})
    child(server).kill()
    until_ready(server.url, 503)
    callers = [Caller(server.url, "/v1/completions", {"prompt": "x"}) for _ in range(5)]
    until_ready(server.url, 503)
    refused = post(server.url, "/v1/completions", {"prompt": "x"})
    assert refusal(refused) == (429, "queue_full")
    assert refused.headers["retry-after"] == "1"
    gate.write_text("open")
    answers = [caller.read_all().split()[1] for caller in callers]
    assert sorted(answers) == ["200", *["429"] * 4]


def test_an_lmtp_connection_outlives_the_engine_and_its_buffers_do_too(serve):
    server = serve(two_processes=True, engine={"block_size": 4, "max_kv_tokens": 256})
    with Wire(server.url) as wire:
        assert wire.say(1, [120] * 8, max_tokens=4, keep="tale") == "abcd"
        post(server.url, "/engine/pause")
        wire.queued(2, [121], max_tokens=9)
        child(server).kill()
        error = wire.error(2)
        assert (error["code"], error["retry"]) == ("engine_died", True)
        until_ready(server.url)
        post(server.url, "/engine/resume")
        assert wire.say(3, [121], max_tokens=2, **{"from": "tale"}) == "ab"
        wire.send("RELEASE", stream_id=4, buffer="tale")
        assert wire.next("MSG", 4)["status"] == "released"


def test_a_dead_engine_does_not_hold_up_the_servers_end(serve, gate):
    server = serve(two_processes=True, gate=gate)
    caller = Caller(server.url, "/v1/completions", {"prompt": "x"}, X_Client="gate")
    caller.socket.recv(1)
    server.process.send_signal(signal.SIGTERM)
    until_ready(server.url, 503)
    child(server).kill()
    assert "engine_died" in caller.read_all()
    assert server.process.wait(30) == 0


def test_a_model_of_a_directory_that_dies_is_loaded_again_and_the_first_one_serves_on(tmp_path):
    shutil.copytree(BUNDLED, tmp_path / "second")
    body = {"model": "second", "prompt": [5, 6, 7], "max_tokens": 3, "stream": False}
    with serve_forked("auto", model_dir=tmp_path, request_log="off") as server:
        first = child(server)
        before = post(server.url, "/v1/completions", body).json()["choices"]
        [second] = set(engines_of(server)) - {first}
        second.kill()
        until(server.url, "/health?model=second", lambda now: now.json()["status"] == "failed")
        assert post(server.url, "/v1/completions", body | {"model": None}).status_code == 200
        assert post(server.url, "/v1/completions", body).json()["choices"] == before
        assert len(engines_of(server)) == 2
        assert first.is_running()


@pytest.mark.parametrize("trouble", ["gate", "hang"])
def test_the_engine_ends_although_a_step_hangs_or_holds_the_gil(serve, gate, trouble):
    server = serve(two_processes=True, gate=gate)
    caller = Caller(server.url, "/v1/completions", {"prompt": "x"}, X_Client=trouble)
    caller.socket.recv(1)
    if trouble == "hang":
        assert gate.read_bytes() == b"hangs"
    server.process.kill()
    assert server.process.stdout.read() == b""


def test_signals_for_the_whole_group_do_not_end_the_engine():
    """Ctrl-C reaches all processes of a terminal, and systemd signals all of a service."""
    with start(two_processes=True) as server:
        engine = child(server)
        assert os.getsid(engine.pid) == engine.pid  # a session of its own: no terminal signals it
        for number in (signal.SIGINT, signal.SIGTERM):
            engine.send_signal(number)
        assert completed(server.url) == "abc"
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 0
    assert not engine.is_running()


@pytest.mark.parametrize(
    ("factory", "arguments", "words"),
    [
        ("os:_exit", {"status": 3}, ["exit code 3"]),
        ("os:abort", {}, ["SIGABRT"]),
        (
            "server.core.loading:load_with",
            {"start": {"model": "bundled"}, "config": {"block_size": 0}, "texts": True},
            ["block_size"],
        ),
    ],
)
def test_an_engine_that_cannot_start_says_why(factory, arguments, words):
    before, children = psutil.Process().num_fds(), psutil.Process().children()
    with pytest.raises(LaunchError) as failed:
        launch(factory, arguments, lambda _ready: None)  # type: ignore[arg-type, return-value]
    assert_names(str(failed.value), *words)
    assert psutil.Process().num_fds() == before
    assert psutil.Process().children() == children


def test_settings_reach_the_engines_process_which_alone_has_torch():
    """A switch that is False is off, also one without an opposite."""
    off = dict.fromkeys(SWITCHES | {"chunked_prefill"}, False)
    with serve_in_background(request_log="off", policy="sjf", token_budget=48, **off) as server:
        [engine] = psutil.Process(server.process.pid).children()
        pids = server.process.pid, engine.pid
        maps = [Path(f"/proc/{pid}/maps").read_text() for pid in pids]
        assert ["libtorch" in one for one in maps] == [False, True]
        assert get(server.url, "/health")["paused"] is False
        settings = trace(server.url).of(RunStarted)[0].settings
        told = (settings["policy"], settings["token_budget"], settings["chunked_prefill"])
        assert told == ("sjf", 48, False)
        assert post(server.url, "/v1/completions", {"prompt": "x"}).status_code == 200
    assert server.stop() == 0  # twice is harmless
