"""Pause, step, resume; health; which clients may do it."""

import sys

import httpx
import pytest

from engine.core.log.vocabulary import RequestFinished, StepFinished
from tests.server.harness import get, post, refusal, sse_data, watch


def test_stepping_stops_when_there_is_nothing_to_do(serve):
    url = serve(paused=True).url
    assert post(url, "/engine/step", {"steps": 5}).json()["step"] == 0
    with watch(url) as feed:
        caller = feed.queued({"prompt": "x", "max_tokens": 3})
        assert post(url, "/engine/step", {"steps": 100}).json()["step"] == 3
        assert sse_data(caller.read_all())[-1]["full_text"] == "abc"
    assert post(url, "/engine/step").json()["step"] == 3


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_running_engine_can_be_held_in_the_middle(serve, async_scheduling):
    """With asynchronous scheduling, a pause also waits for the step in flight."""
    url = serve(engine={"max_kv_tokens": 65536, "async_scheduling": async_scheduling}).url
    tokens = 3_000 if async_scheduling else 10_000
    with watch(url) as feed:
        caller = feed.queued({"prompt": "x", "max_tokens": tokens})
        step = post(url, "/engine/pause").json()["step"]
        feed.until(lambda event: isinstance(event, StepFinished) and event.step == step)
        for _ in range(3):
            assert get(url, "/health")["step"] == step < tokens
        assert post(url, "/engine/step", {"steps": 2}).json()["step"] == step + 2
        feed.until(lambda event: isinstance(event, StepFinished) and event.step == step + 2)
        post(url, "/engine/resume")
        feed.until_kind(RequestFinished)
    assert len(sse_data(caller.read_all())) == tokens + 1


def test_a_page_of_another_site_cannot_hold_the_engine(url):
    bodies = dict.fromkeys("pause resume step hold_submissions release_submissions".split())
    bodies |= {"run_until": {"until": "finish"}, "restart": {}, "screen": {"step": 3}}
    for verb, body in bodies.items():
        for origin in ("https://example.com", "http://localhost:1", "null"):
            refused = post(url, f"/engine/{verb}", body, Origin=origin)
            assert refusal(refused) == (403, "cross_site")
    assert get(url, "/health")["paused"] is False
    assert post(url, "/engine/pause", None, Origin=url).status_code == 200
    assert post(url, "/engine/resume", None, Origin=url).status_code == 200


def test_viewers_hear_which_step_the_screen_looks_back_at(url):
    with watch(url) as feed:
        feed.until_status(screen=None)
        assert post(url, "/engine/screen", {"step": 87}).json() == {"step": 87}
        feed.until_status(screen=87)
        post(url, "/engine/screen", {"step": None})
        feed.until_status(screen=None)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.2 is no address")
def test_forwarded_for_from_an_untrusted_address_is_ignored(serve, monkeypatch):
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
            assert client.post("/engine/restart", json={}).status_code == status
            assert client.get("/compare").status_code == (403 if status == 403 else 409)
