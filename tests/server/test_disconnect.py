"""A client that leaves, in every state and in every way, frees its blocks at once."""

from collections.abc import Iterator

import pytest

from engine.core.log.vocabulary import Preempted, RequestArrived, RequestFinished, StepFinished
from tests.server.harness import Caller, get, http_request, post, sse_data, start, until, watch

STEPS = {"waiting": 0, "prefilling": 2, "active": 12}
BODIES = {
    "teaching": {"max_tokens": 50},
    "stream": {"stream": True, "max_tokens": 50, "n": 2},
    "whole": {"stream": False, "max_tokens": 50},
}


@pytest.fixture(scope="module")
def held(request: pytest.FixtureRequest) -> Iterator[str]:
    """A held engine that computes eight tokens a step; tests step it."""
    with start(paused=True, engine={"token_budget": 8, "block_size": 4}) as server:
        yield server.url


@pytest.mark.parametrize("leave", [Caller.close, Caller.reset, Caller.half_close])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("state", STEPS)
def test_leaving_frees_everything_between_two_steps(held, state, body, leave):
    with watch(held) as feed:
        # A prompt of its own, so that nothing of it is in the cache.
        prompt = f"{leave.__name__} {state} {body}: forty tokens, which is several chunks"
        caller = feed.queued(BODIES[body] | {"prompt": prompt})
        if STEPS[state]:
            post(held, "/engine/step", {"steps": STEPS[state]})
        health = get(held, "/health")
        assert health[state] >= 1
        leave(caller)
        for _ in range(2 if health["active"] == 2 else 1):
            finished = feed.until_kind(RequestFinished)
            assert finished.reason == "abort"
        after = get(held, "/health")
        assert after["step"] == health["step"]  # it took no step to notice
        assert (after["waiting"], after["prefilling"], after["active"]) == (0, 0, 0)
        assert after["blocks"]["free"] + after["blocks"]["cached"] == after["blocks"]["total"]


@pytest.mark.parametrize("leave", [Caller.close, Caller.reset, Caller.half_close])
@pytest.mark.parametrize("body", BODIES)
def test_leaving_while_the_prompt_is_tokenized_is_noticed_at_once(serve, gate, body, leave):
    url = serve(gate=gate).url
    prompts = ["gate: it is being tokenized", "it is next"]
    callers = [Caller(url, "/v1/completions", BODIES[body] | {"prompt": one}) for one in prompts]
    until(url, "/health", lambda answer: answer.json()["pending_submit"] == 2)
    for caller in callers:
        leave(caller)
    until(url, "/health", lambda answer: answer.json()["pending_submit"] == 0)
    gate.write_text("open")
    after = post(url, "/v1/completions", {"prompt": "x", "max_tokens": 3})
    assert after.headers["x-underglass-request"] == "1"  # the engine never heard of the others


@pytest.mark.parametrize("body", BODIES)
def test_leaving_while_preempted_frees_everything(serve, body):
    engine = {"block_size": 4, "max_kv_tokens": 64, "preemption": True}
    url = serve(paused=True, engine=engine).url
    with watch(url) as feed:
        stayer = feed.queued({"prompt": "a" * 20, "max_tokens": 40})
        leaver = Caller(
            url, "/v1/completions", BODIES[body] | {"prompt": "b" * 8, "max_tokens": 40}
        )
        feed.until_kind(RequestArrived)
        while not any(isinstance(event, Preempted) for event in feed.events):
            post(url, "/engine/step")
            feed.until_kind(StepFinished)
        preempted = next(event for event in feed.events if isinstance(event, Preempted))
        assert preempted.request in feed.state.waiting
        leaver.reset()
        while preempted.request in feed.state.requests:
            assert feed.until_kind(RequestFinished).reason == "abort"
        post(url, "/engine/resume")
        assert len(sse_data(stayer.read_all())) == 41


@pytest.mark.parametrize("leave", [Caller.close, Caller.reset, Caller.half_close])
@pytest.mark.parametrize("body", BODIES)
def test_leaving_after_asking_for_more_is_noticed(held, body, leave):
    """The second request on the connection waits for the first one's answer (pipelining)."""
    with watch(held) as feed:
        caller = Caller.open(held)
        caller.socket.sendall(http_request("/v1/completions", BODIES[body] | {"prompt": "x"}))
        feed.until_kind(RequestArrived)
        caller.socket.sendall(2 * http_request("/v1/completions", {"prompt": "y"}))
        leave(caller)
        assert feed.until_kind(RequestFinished).reason == "abort"
