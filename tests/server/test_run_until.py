"""Run until something happens: the engine stops after that step, and says why."""

from typing import Any

import pytest

from engine.core.log import vocabulary as v
from tests.facts import assert_names
from tests.server.harness import Caller, Feed, get, post, queue, sse_data, trace, until, watch

ONE_SHAPE = {"two_processes": True}  # commands and buffers pass through messages

# Two requests fit while they are short: memory runs out, then something is preempted or evicted.
TIGHT = {"max_batch_size": 2, "max_kv_tokens": 64, "block_size": 8, "token_budget": 32}


def ask(url: str, *prompts: str, max_tokens: int = 20, **fields: Any) -> list[Caller]:
    body = {"max_tokens": max_tokens, "ignore_eos": True} | fields
    return queue(url, *(body | {"prompt": prompt} for prompt in prompts))


def run_until(url: str, until: str, **fields: Any) -> dict[str, Any]:
    answer = post(url, "/engine/run_until", {"until": until, **fields})
    assert answer.status_code == 200, answer.text
    stopped: dict[str, Any] = answer.json()
    assert stopped["paused"] is True
    assert get(url, "/health")["step"] == stopped["step"]
    return stopped


def step_of(url: str, kind: type[Any]) -> tuple[int, Any]:
    events = list(trace(url))
    at = next(at for at, event in enumerate(events) if isinstance(event, kind))
    return sum(isinstance(event, v.StepStarted) for event in events[:at]), events[at]


@pytest.mark.parametrize(
    ("until", "kind", "who"),
    [
        ("preemption", v.Preempted, "request"),
        ("eviction", v.RadixEvicted, "needed_by"),
        ("finish", v.RequestFinished, "request"),
    ],
)
@pytest.mark.parametrize("async_scheduling", [False, True])
def test_it_stops_after_the_step_of_the_event_and_names_the_request(
    serve, until, kind, who, async_scheduling
):
    url = serve(paused=True, engine=TIGHT | {"async_scheduling": async_scheduling}).url
    _open = ask(url, "first prompt", "second prompt", "third prompt", max_tokens=24)
    stopped = run_until(url, until)
    step, event = step_of(url, kind)
    # With asynchronous scheduling, a finish is seen when the next step is scheduled already.
    assert stopped["step"] == step
    assert (stopped["reason"], stopped["request"]) == (until, getattr(event, who))
    assert_names(stopped["message"], step, f"r{stopped['request']}")
    with Feed(url) as late:  # every viewer is told
        told = {name: stopped[name] for name in ("step", "reason", "request")}
        late.until_status(stopped=told)
        post(url, "/engine/pause")
        late.until_status(stopped=None)
    assert sum(isinstance(event, v.StepStarted) for event in trace(url)) == stopped["step"]


def test_it_stops_when_a_request_arrives_and_after_the_step_that_could_admit_it(serve, gate):
    # holds the first step until the second request is on its way
    url = serve(paused=True, gate=gate).url
    callers = ask(url, "first", user="gate", max_tokens=450)
    waits = Caller(url, "/engine/run_until", {"until": "arrival"})
    with gate.open("wb"):  # waits for the forward pass, which goes on when the block ends
        body = {"prompt": "second", "max_tokens": 20, "ignore_eos": True}
        callers.append(Caller(url, "/v1/completions", body))
        until(url, "/health", lambda health: health.json()["pending_submit"] == 1)
        # Prompts are tokenized one after the other, so the second request has been sent on by then.
        post(url, "/v1/completions/render", {"prompt": "third", "max_tokens": 1})
    stopped = waits.read_all()
    assert '"reason":"arrival"' in stopped
    assert '"request":2,' in stopped
    events = list(trace(url))
    arrived = max(at for at, event in enumerate(events) if isinstance(event, v.RequestArrived))
    assert sum(isinstance(event, v.StepScheduled) for event in events[arrived:]) == 1


def test_a_request_that_was_left_waiting_before_does_not_count_again(serve):
    url = serve(paused=True, engine={"max_batch_size": 2, "max_kv_tokens": 4096}).url
    callers = ask(url, "a", "b", "c", "d", max_tokens=10)
    stopped = run_until(url, "waiting")
    assert (stopped["reason"], stopped["step"], stopped["request"]) == ("waiting", 1, 3)
    callers += ask(url, "e", max_tokens=10)
    assert run_until(url, "waiting")["request"] == 5
    assert run_until(url, "waiting")["reason"] == "idle"


def test_the_first_token_of_a_chosen_request(serve):
    url = serve(paused=True, engine={"max_batch_size": 1, "max_kv_tokens": 4096}).url
    callers = ask(url, "a", "b", max_tokens=5)
    assert run_until(url, "first_token", request=2)["step"] == 6
    again = post(url, "/engine/run_until", {"until": "first_token", "request": 2})
    assert (again.status_code, again.json()["error"]["param"]) == (400, "request")
    callers += ask(url, "c", "d")
    callers[-1].close()
    with Feed(url) as feed:
        feed.until(lambda _event: 4 not in feed.state.requests)
    assert run_until(url, "first_token", request=3)["reason"] == "first_token"


def test_it_stops_after_so_many_steps_and_when_nothing_is_left(serve):
    url = serve(paused=True, engine={"max_kv_tokens": 4096}).url
    assert run_until(url, "preemption")["reason"] == "idle"
    [caller] = ask(url, "a", max_tokens=10)
    stopped = run_until(url, "steps", steps=4)
    assert (stopped["reason"], stopped["step"], stopped["request"]) == ("steps", 4, None)
    stopped = run_until(url, "preemption", steps=2)
    assert (stopped["reason"], stopped["step"]) == ("steps", 6)
    stopped = run_until(url, "preemption")
    assert (stopped["reason"], stopped["step"]) == ("idle", 10)
    assert sse_data(caller.read_all())[-1]["full_text"] == "abcdefghij"


@pytest.mark.parametrize(("verb", "reason"), [("pause", "paused"), ("resume", "resumed")])
def test_another_command_ends_it(serve, verb, reason):
    url = serve(checking=True, engine={"max_kv_tokens": 65536}).url  # a step takes half a ms
    _open = ask(url, "long", max_tokens=50_000)
    for _ in range(20):  # on a busy machine 500 steps may be over before the command arrives
        waits = Caller(url, "/engine/run_until", {"until": "preemption"})
        assert post(url, f"/engine/{verb}").json()["paused"] is (verb == "pause")
        answer = waits.read_all()
        if f'"reason":"{reason}"' in answer:
            break
        assert '"reason":"steps"' in answer
    else:
        pytest.fail(f"no run was {reason} in 20 attempts")


def test_submissions_are_held_visibly_and_released_into_one_step(serve):
    url = serve(engine={"max_batch_size": 8, "max_kv_tokens": 4096}).url
    with watch(url) as feed:
        assert post(url, "/engine/hold_submissions").json() == {"holding": True, "requests": 0}
        callers, names = list[Caller](), ("Ada", "Bo", "Cy", "Dee")
        for name in names:
            body = {"prompt": name, "max_tokens": 5}
            callers.append(Caller(url, "/v1/completions", body, X_Client=name))
            feed.until_held(*names[: len(callers)])
        assert feed.status["holding"] is True
        health = get(url, "/health")
        assert (health["pending_submit"], health["waiting"], health["step"]) == (4, 0, 0)
        callers.pop(1).close()  # Bo leaves
        feed.until_held("Ada", "Cy", "Dee")
        released = post(url, "/engine/release_submissions").json()
        assert released == {"holding": False, "requests": 3}
        feed.until_kind(v.RequestFinished, 3)
        feed.until_status(holding=False, held=[])
    for caller in callers:
        assert sse_data(caller.read_all())[-1]["full_text"] == "abcde"
    first = next(event for event in trace(url) if isinstance(event, v.StepScheduled))
    assert len(first.rows) == 3  # all of them in the first step
    assert [event.label for event in trace(url).of(v.RequestArrived)] == ["Ada", "Cy", "Dee"]
    assert post(url, "/engine/release_submissions").json()["requests"] == 0


def test_a_server_that_stops_releases_what_it_holds(serve):
    server = serve(engine={"max_kv_tokens": 4096})
    with watch(server.url) as feed:
        post(server.url, "/engine/hold_submissions")
        caller = Caller(server.url, "/v1/completions", {"prompt": "x", "max_tokens": 5})
        feed.until_held("")
    server.process.terminate()
    assert sse_data(caller.read_all())[-1]["full_text"] == "abcde"
