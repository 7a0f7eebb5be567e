"""The event log over HTTP: what a viewer folds is what the engine did."""

from collections.abc import Callable

import pytest

from engine.engine import Engine
from engine.events.fold import State
from engine.events.log import EventLog
from engine.events.vocabulary import Keyframe, RequestFinished, RunStarted
from server.process import BackgroundServer
from server.window import Outbox, Window
from tests.engine.workloads import make_engine, play, random_workload
from tests.server.harness import Feed, get, post, trace

BODY = {"prompt": "Once upon a time", "max_tokens": 5}


def test_a_viewer_from_the_start_sees_what_the_trace_has(
    serve: Callable[..., BackgroundServer],
) -> None:
    url = serve().url
    with Feed(url) as feed:
        assert feed.keyframe().seq == 0  # run_started is event 0
        for _ in range(3):
            post(url, "/v1/completions", BODY)
        feed.until_kind(RequestFinished, 3)
    log = trace(url)
    assert isinstance(log[0], RunStarted)
    assert feed.events[1:] == log.since(1)
    assert feed.seq == log.next_seq - 1
    assert feed.state.core() == log.state().core()


def test_a_viewer_that_joins_late_has_the_same_state(url: str) -> None:
    post(url, "/v1/completions", BODY)
    with Feed(url) as feed:
        keyframe = feed.keyframe()
        assert feed.state.core() == trace(url).state(keyframe.seq).core()
        post(url, "/v1/completions", BODY)
        feed.until_kind(RequestFinished)
    assert feed.state.core() == trace(url).state().core()


def test_a_viewer_that_comes_back_gets_what_it_missed_and_no_keyframe(url: str) -> None:
    post(url, "/v1/completions", BODY)
    with Feed(url) as feed:
        last = feed.keyframe().seq
    post(url, "/v1/completions", BODY)
    with Feed(url, last_event_id=last) as again:
        again.state = feed.state
        again.until_kind(RequestFinished)
    assert not any(isinstance(event, Keyframe) for event in again.events)
    assert again.events == trace(url).since(last + 1)
    assert again.dropped == []


@pytest.mark.parametrize("last", [0, 3])
def test_a_viewer_that_missed_too_much_is_told_and_starts_over(
    serve: Callable[..., BackgroundServer], last: int
) -> None:
    url = serve(server={"log_window": 20}).url
    for _ in range(5):
        post(url, "/v1/completions", BODY)
    with Feed(url, last_event_id=last) as feed:
        keyframe = feed.keyframe()
    assert feed.dropped == [keyframe.seq - last]
    log = trace(url)
    assert isinstance(log[0], Keyframe)
    assert len(log) == 21
    assert feed.state.core() == log.state().core()


@pytest.mark.parametrize("last", [10**9, -7, "x", "9" * 5000])
def test_a_number_that_is_none_of_this_runs_starts_over(url: str, last: object) -> None:
    with Feed(url, last_event_id=last) as feed:
        feed.keyframe()
    assert feed.dropped == []


def test_the_trace_on_disk_is_the_log(serve: Callable[..., BackgroundServer], tmp_path) -> None:
    """Also when the server is killed: every finished step is in the file."""
    path = tmp_path / "trace.jsonl"
    server = serve(trace_file=str(path), server={"log_window": 20})
    for _ in range(3):
        post(server.url, "/v1/completions", BODY)
    expected = trace(server.url).state().core()
    server.process.kill()
    server.process.wait()
    log = EventLog.load(path)
    assert isinstance(log[0], RunStarted)
    assert log.state().core() == expected


def test_health_is_the_folded_log(url: str) -> None:
    post(url, "/v1/completions", BODY)
    health, state = get(url, "/health"), trace(url).state()
    assert health["step"] == state.step
    assert health["blocks"]["free"] == len(state.free)


@pytest.mark.parametrize("seed", range(30))
def test_a_window_is_a_log_that_folds_to_the_whole_logs_state(seed: int) -> None:
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
