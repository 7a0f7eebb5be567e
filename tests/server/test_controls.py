"""Pause, step, resume; health; which clients may do it."""

import sys
from collections.abc import Callable

import httpx
import pytest

from engine.events.vocabulary import RequestArrived, RequestFinished, StepFinished
from server.process import BackgroundServer
from tests.server.harness import Caller, Feed, get, post, sse_data, trace


def test_thirty_students_queue_up_while_the_engine_is_held(
    serve: Callable[..., BackgroundServer],
) -> None:
    url = serve(paused=True, engine={"max_batch_size": 4, "max_kv_tokens": 4096}).url
    with Feed(url) as feed:
        feed.keyframe()
        callers = []
        for number in range(30):
            body = {"prompt": f"student {number}", "max_tokens": 5}
            callers.append(Caller(url, "/v1/completions", body, X_Client=f"s{number}"))
            feed.until_kind(RequestArrived)
        health = get(url, "/health")
        assert (health["waiting"], health["step"], health["paused"]) == (30, 0, True)

        assert post(url, "/engine/step", {"steps": 1}).json()["step"] == 1
        health = get(url, "/health")
        assert (health["step"], health["prefilling"] + health["active"]) == (1, 4)
        assert health["waiting"] == 26

        assert post(url, "/engine/resume").json() == {"step": 1, "paused": False}
        for caller in callers:
            assert sse_data(caller.read_all())[-1]["full_text"] == "abcde"
    labels = [event.label for event in trace(url).of(RequestArrived)]
    assert labels == [f"s{number}" for number in range(30)]


def test_stepping_stops_when_there_is_nothing_to_do(serve: Callable[..., BackgroundServer]) -> None:
    url = serve(paused=True).url
    assert post(url, "/engine/step", {"steps": 5}).json()["step"] == 0
    with Feed(url) as feed:
        feed.keyframe()
        caller = Caller(url, "/v1/completions", {"prompt": "x", "max_tokens": 3})
        feed.until_kind(RequestArrived)
        assert post(url, "/engine/step", {"steps": 100}).json()["step"] == 3
        assert sse_data(caller.read_all())[-1]["full_text"] == "abc"
    assert post(url, "/engine/step").json()["step"] == 3


def test_a_running_engine_can_be_held_in_the_middle(serve: Callable[..., BackgroundServer]) -> None:
    url = serve(engine={"max_kv_tokens": 65536}).url
    with Feed(url) as feed:
        feed.keyframe()
        caller = Caller(url, "/v1/completions", {"prompt": "x", "max_tokens": 10_000})
        feed.until_kind(RequestArrived)
        step = post(url, "/engine/pause").json()["step"]
        for _ in range(3):
            assert get(url, "/health")["step"] == step < 10_000
        assert post(url, "/engine/step", {"steps": 2}).json()["step"] == step + 2
        post(url, "/engine/resume")
        feed.until_kind(RequestFinished)
    assert len(sse_data(caller.read_all())) == 10_001


def test_stepping_an_engine_that_runs_by_itself_is_refused(url: str) -> None:
    answer = post(url, "/engine/step")
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "not_paused"


def test_a_page_of_another_site_cannot_hold_the_engine(url: str) -> None:
    verbs = ("pause", "resume", "step", "hold_submissions", "release_submissions")
    for path in (f"/engine/{verb}" for verb in verbs):
        for origin in ("https://example.com", "http://localhost:1", "null"):
            refused = post(url, path, None, Origin=origin)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "cross_site")
    refused = post(url, "/engine/run_until", {"until": "finish"}, Origin="https://example.com")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "cross_site")
    assert get(url, "/health")["paused"] is False
    assert post(url, "/engine/pause", None, Origin=url).status_code == 200
    assert post(url, "/engine/resume", None, Origin=url).status_code == 200


def test_viewers_hear_which_step_the_screen_looks_back_at(url: str) -> None:
    with Feed(url) as feed:
        feed.keyframe()
        feed.until_status(screen=None)
        assert post(url, "/engine/screen", {"step": 87}).json() == {"step": 87}
        feed.until_status(screen=87)
        post(url, "/engine/screen", {"step": None})
        feed.until_status(screen=None)
    refused = post(url, "/engine/screen", {"step": 3}, Origin="https://example.com")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "cross_site")
    for body in ({"step": -1}, {"step": "3"}, {}):
        assert post(url, "/engine/screen", body).json()["error"]["param"] == "step"


def test_health_and_readiness(url: str) -> None:
    health = get(url, "/health")
    assert health["status"] == "ok"
    assert set(health) >= {"step", "waiting", "prefilling", "active", "pending_submit", "paused"}
    assert set(health["blocks"]) == {"total", "free", "cached"}
    assert get(url, "/ready") == {"status": "ready", "trace_error": ""}


def test_requests_without_the_configured_key_get_401(
    serve: Callable[..., BackgroundServer],
) -> None:
    url = serve(server={"api_key": "open sesame"}).url
    key = {"Authorization": "Bearer open sesame"}
    for path in ("/v1/completions", "/engine/pause"):
        refused = post(url, path, {"prompt": "x"})
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "invalid_api_key"
        assert post(url, path, {"prompt": "x"}, Authorization="Bearer wrong").status_code == 401
    assert get(url, "/v1/models")["error"]["code"] == "invalid_api_key"
    assert get(url, "/health")["status"] == "ok"
    assert get(url, "/ready")["status"] == "ready"
    assert post(url, "/engine/pause", None, **key).status_code == 200
    assert post(url, "/engine/resume", None, **key).status_code == 200
    assert post(url, "/v1/completions", {"prompt": "x"}, **key).status_code == 200


def test_the_page_and_the_docs_answer(url: str) -> None:
    from tests.server.harness import http

    with http(url) as client:
        assert "/page/live.js" in client.get("/").text
        assert client.get("/docs").status_code == 200
        document = client.get("/openapi.json").json()
    paths = document["paths"]
    assert "422" not in str(document)  # FastAPI's own form, which no route here answers with
    assert {"/v1/completions", "/v1/chat/completions", "/events", "/engine/step"} <= set(paths)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.2 is no address")
def test_forwarded_for_from_an_untrusted_address_is_ignored(
    serve: Callable[..., BackgroundServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images of containers often set this variable, and the server's libraries would heed it."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    url = serve(paused=True).url
    headers = {"X-Forwarded-For": "203.0.113.7"}
    for source, status in (("127.0.0.2", 200), ("127.0.0.1", 403)):
        transport = httpx.HTTPTransport(local_address=source)
        with httpx.Client(base_url=url, transport=transport, headers=headers) as client:
            assert client.post("/engine/step").status_code == status
            wanted = {"until": "steps", "steps": 1}
            assert client.post("/engine/run_until", json=wanted).status_code == status


def test_asynchronous_scheduling_serves_the_same_and_a_pause_drains_the_step_in_flight(
    serve: Callable[..., BackgroundServer],
) -> None:
    url = serve(engine={"max_kv_tokens": 65536, "async_scheduling": True}).url
    with Feed(url) as feed:
        feed.keyframe()
        caller = Caller(url, "/v1/completions", {"prompt": "x", "max_tokens": 10_000})
        feed.until_kind(RequestArrived)
        step = post(url, "/engine/pause").json()["step"]
        feed.until(lambda event: isinstance(event, StepFinished) and event.step == step)
        assert post(url, "/engine/step", {"steps": 2}).json()["step"] == step + 2
        feed.until(lambda event: isinstance(event, StepFinished) and event.step == step + 2)
        post(url, "/engine/resume")
        feed.until_kind(RequestFinished)
    assert len(sse_data(caller.read_all())) == 10_001
