"""The event log over HTTP: what a viewer folds is what the engine did."""

import asyncio
import errno
import os

import pytest
from starlette.types import Message

from engine.core.engine import Engine
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.log import EventLog
from server.api import live
from server.core.event_log import Outbox, Window
from tests.engine.workloads import make_engine, play, random_workload
from tests.facts import assert_names
from tests.server.bridges import running
from tests.server.harness import (
    Caller,
    Feed,
    fetch,
    get,
    limit_files,
    metrics,
    post,
    sse_data,
    trace,
    watch,
)

BODY = {"prompt": "Once upon a time", "max_tokens": 5}


def test_a_viewer_that_comes_back_gets_what_it_missed_and_no_keyframe(url):
    post(url, "/v1/completions", BODY)
    with Feed(url) as feed:
        last = feed.keyframe().seq
    post(url, "/v1/completions", BODY)
    with Feed(url, last_event_id=f"{feed.run}:{last}") as again:
        again.state = feed.state
        again.until_kind(v.RequestFinished)
    assert not any(isinstance(event, v.Keyframe) for event in again.events)
    assert again.events == trace(url).since(last + 1)
    assert again.dropped == []


@pytest.mark.parametrize("last", [0, 3])
def test_a_viewer_that_missed_too_much_learns_the_count_and_starts_over(serve, last):
    url = serve(server={"log_window": 20}).url
    for _ in range(5):
        post(url, "/v1/completions", BODY)
    with watch(url) as feed:
        pass
    with Feed(url, last_event_id=f"{feed.run}:{last}") as feed:
        keyframe = feed.keyframe()
    assert feed.dropped == [keyframe.seq - last]
    log = trace(url)
    assert isinstance(log[0], v.Keyframe)
    assert len(log) == 21
    assert feed.state.core() == log.state().core()


@pytest.mark.parametrize("number", [10**9, -7, "x", "9" * 5000, "²", ""])
def test_a_number_that_is_none_of_this_runs_starts_over(url, number):
    with watch(url) as feed:
        pass
    for last in (f"{feed.run}:{number}", number, "another-run:3"):
        with Feed(url, last_event_id=str(last).encode()) as again:
            again.keyframe()
        assert again.dropped == []


def test_a_full_disk_is_told_wherever_the_server_is_watched(serve, tmp_path):
    path = tmp_path / "class.jsonl"
    server = serve(trace_file=str(path))
    url = server.url
    assert get(url, "/health")["trace_error"] == get(url, "/ready")["trace_error"] == ""
    limit_files(server, path.stat().st_size)  # the disk is full now
    with watch(url) as feed:
        assert sse_data(post(url, "/v1/completions", BODY).text)[-1]["full_text"] == "abcde"
        while not feed.status.get("trace_error"):
            next(feed._read())
    reason = feed.status["trace_error"]
    assert_names(reason, "class.jsonl", os.strerror(errno.EFBIG))
    for route in ("/health", "/ready"):
        answer = fetch(url, route)
        assert (answer.status_code, answer.json()["trace_error"]) == (200, reason)
    assert metrics(url)[("underglass:trace_failed",)] == 1
    limit_files(server, -1)
    assert post(url, "/engine/restart", {}).status_code == 200  # the next run has a file of its own
    assert get(url, "/health")["trace_error"] == ""


def test_the_trace_on_disk_is_the_log(serve, tmp_path):
    """Also when the server is killed: every finished step is in the file."""
    path = tmp_path / "trace.jsonl"
    server = serve(trace_file=str(path), server={"log_window": 20})
    for _ in range(3):
        post(server.url, "/v1/completions", BODY)
    expected = trace(server.url).state().core()
    server.process.kill()
    server.process.wait()
    log = EventLog.load(path)
    assert isinstance(log[0], v.RunStarted)
    assert log.state().core() == expected


@pytest.mark.parametrize("seed", range(30))
def test_a_window_is_a_log_that_folds_to_the_whole_logs_state(seed):
    workload, outbox = random_workload(seed), Outbox()
    engine = make_engine(workload, log=outbox)
    window, whole = Window(size=1 + seed), []

    def check(engine: Engine) -> None:
        events = outbox.take()
        whole.extend(events)
        window.extend(events)
        assert window.state.core() == engine.snapshot()
        folded = State()
        for event in window.trace():
            folded.apply(event)
        assert folded.core() == engine.snapshot()
        assert window.since(window.first_seq) == whole[window.first_seq :]
        assert len(window.since(0)) <= 1 + seed

    play(engine, workload, check)


async def test_a_feed_that_fails_says_so_and_does_not_end_in_silence():
    async def stays() -> Message:
        return await asyncio.Future()

    async def fails(message: Message) -> None:
        if message.get("body"):
            raise ZeroDivisionError

    async with running() as bridge:
        with pytest.raises(ZeroDivisionError):
            await live.Feed(bridge.settings, lambda: bridge.window, dict)(
                {"type": "http"}, stays, fails
            )


@pytest.mark.parametrize("window", [50, 50_000])
def test_a_late_viewer_that_asks_for_the_past_gets_the_window_and_then_what_follows(serve, window):
    url = serve(paused=True, engine={"max_kv_tokens": 4096}, server={"log_window": window}).url
    with Feed(url) as first:
        first.keyframe()
        caller = Caller(url, "/v1/completions", {"prompt": "A", "max_tokens": 60})
        first.until_kind(v.RequestArrived)
        post(url, "/engine/step", {"steps": 30})
        # `first` may fall behind the small window and never see the step's end.
        while not any(
            isinstance(event, v.StepFinished) and event.step == 30 for event in trace(url)
        ):
            pass
        kept = list(trace(url))
        with Feed(url, past=True) as late:
            late.until(lambda _event: len(late.events) == len(kept))
            assert late.events == kept
            assert isinstance(kept[0], v.Keyframe if window == 50 else v.RunStarted)
            assert len(kept) == (51 if window == 50 else late.seq + 1)
            post(url, "/engine/step", {"steps": 2})
            late.until(lambda event: isinstance(event, v.StepFinished) and event.step == 32)
        assert late.state.core() == trace(url).state(late.seq).core()
        with Feed(url, last_event_id=f"{late.run}:{late.seq}", past=True) as returned:
            returned.state = late.state
            post(url, "/engine/step")
            next(iter(returned))
            assert returned.seq == late.seq + 1
    caller.close()
