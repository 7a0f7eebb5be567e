"""Restart with other settings: a new run of the same model, and the old run's log kept."""

import itertools
import json
from typing import Any

import pytest

from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from tests.facts import assert_names
from tests.server.harness import Caller, Feed, completed, get, post, queue, start, trace, watch

BOTH_SHAPES = True

ENGINE = {"max_batch_size": 2, "max_kv_tokens": 128, "block_size": 8, "token_budget": 32}


def restart(url: str, *, prompts: str = "none", abort: bool = False, **settings: Any) -> Any:
    body = {"settings": settings, "prompts": prompts, "abort": abort}
    answer = post(url, "/engine/restart", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(url: str, body: dict[str, Any], status: int = 400) -> dict[str, Any]:
    answer = post(url, "/engine/restart", body)
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return error


def ask(url: str, *names: str, max_tokens: int = 6) -> list[Caller]:
    body = {"max_tokens": max_tokens}
    prompts = ({"prompt": f"Once upon a time {name}", "user": name} for name in names)
    return queue(url, *(body | one for one in prompts))


def arrivals(log: EventLog) -> list[tuple[str, int]]:
    """Each request's label, with the step that it came before."""
    begun = itertools.accumulate(isinstance(event, v.StepStarted) for event in log)
    pairs = zip(log, begun, strict=True)
    return [(event.label, step + 1) for event, step in pairs if isinstance(event, v.RequestArrived)]


def decided(log: EventLog) -> list[bytes]:
    """The log's lines without times, pauses and the beginning, which names the classes of parts."""
    return [line for line in log.deterministic()[1:] if b'"engine_' not in line]


def until_idle(url: str) -> None:
    """Run a paused engine until it has no work."""
    while post(url, "/engine/run_until", {"until": "finish"}).json()["reason"] != "idle":
        pass


def test_the_new_run_has_the_new_settings_and_the_old_log_is_kept(serve):
    url = serve(engine=ENGINE).url
    post(url, "/v1/completions", {"prompt": "x", "max_tokens": 3})
    before = trace(url)
    told = restart(url, prefix_cache="hash", max_batch_size=3)
    assert told["changed"] == {"max_batch_size": [2, 3], "prefix_cache": ["radix", "hash"]}
    assert told["paused"] is False
    after = trace(url)
    assert isinstance(after[0], v.RunStarted)
    assert (after[0].settings["prefix_cache"], after[0].settings["max_batch_size"]) == ("hash", 3)
    assert after[0].settings["token_budget"] == 32
    assert get(url, "/health")["step"] == 0
    assert trace(url, previous="true").to_bytes() == before.to_bytes()
    assert completed(url) == "abc"
    second = restart(url, max_batch_size=2**62)  # seats that no request takes cost nothing
    assert (second["previous"], *second["changed"]) == (told["run"], "max_batch_size")
    assert completed(url) == "abc"
    assert isinstance(trace(url, previous="true")[0], v.RunStarted)
    assert trace(url, previous="true")[0].settings["prefix_cache"] == "hash"  # type: ignore[union-attr]


def test_an_open_feed_goes_on_with_the_new_run_from_its_first_event(serve):
    url = serve(engine=ENGINE).url
    with watch(url) as feed:
        told = restart(url, policy="sjf")
        post(url, "/v1/completions", {"prompt": "x", "max_tokens": 3})
        feed.until_kind(v.RequestFinished)
        previous = {"changed": {"policy": ["fcfs", "sjf"]}, "prompts": "none"}
        feed.until_status(run=told["run"], previous=previous | {"run": told["previous"]})
    assert feed.run == told["run"]
    assert feed.events[1:] == list(trace(url))


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_unfinished_requests_refuse_it_unless_they_may_be_ended(serve, async_scheduling):
    url = serve(paused=True, engine=ENGINE | {"async_scheduling": async_scheduling}).url
    callers = ask(url, "Ada", "Bo", "Cy")
    post(url, "/engine/step", {"steps": 2})
    error = refused(url, {"settings": {"max_batch_size": 4}}, 409)
    assert error["code"] == "requests_unfinished"
    assert_names(error["message"], 3, "abort=true")
    assert get(url, "/health")["step"] == 2
    told = restart(url, abort=True, max_batch_size=4)
    assert told["paused"] is True
    for caller in callers:
        assert '"engine_restarted"' in caller.read_all()
    ended = trace(url, previous="true").of(v.RequestFinished)
    assert {event.request: event.reason for event in ended} == dict.fromkeys((1, 2, 3), "abort")
    health = get(url, "/health")
    assert (health["status"], health["failure"], health["trace_error"]) == ("ok", "", "")
    counts = ("step", "waiting", "prefilling", "active", "pending_submit")
    assert [health[name] for name in counts] == [0] * 5
    assert health["paused"] is True


def test_held_submissions_are_ended_and_the_next_ones_are_still_held(serve):
    url = serve(engine=ENGINE).url
    with watch(url) as feed:
        post(url, "/engine/hold_submissions")
        held = Caller(url, "/v1/completions", {"prompt": "x", "max_tokens": 3}, X_Client="Ada")
        feed.until_held("Ada")
        restart(url, abort=True)
        assert '"engine_restarted"' in held.read_all()
        later = Caller(url, "/v1/completions", {"prompt": "x", "max_tokens": 3}, X_Client="Bo")
        feed.until_held("Bo")
    post(url, "/engine/release_submissions")
    assert '"full_text":"abc"' in later.read_all()


def test_the_same_prompts_arrive_before_the_same_steps_and_make_the_same_run(serve):
    url = serve(paused=True, engine=ENGINE).url
    callers = ask(url, "Ada", "Bo", max_tokens=9)
    post(url, "/engine/step", {"steps": 3})
    callers += ask(url, "Cy", "Dee", max_tokens=9)
    callers.pop(2).close()  # Cy leaves
    with Feed(url) as feed:
        feed.until(lambda _event: 3 not in feed.state.requests)
    until_idle(url)
    callers += ask(url, "Eve")
    until_idle(url)
    old = trace(url)
    assert len(arrivals(old)) == 5

    told = restart(url, prompts="same_steps")
    until_idle(url)
    new = trace(url)
    assert told["changed"] == {}
    assert decided(new) == decided(old)
    assert len(new.of(v.EnginePaused)) == 1

    restart(url, prompts="same_steps", max_batch_size=4)
    until_idle(url)
    assert arrivals(trace(url))[:4] == arrivals(old)[:4]
    assert arrivals(trace(url))[4] == ("Eve", get(url, "/health")["step"] - 5)  # once it was idle
    assert [event.reason for event in trace(url).of(v.RequestFinished)].count("abort") == 1


def test_a_log_without_its_beginning_or_without_texts_cannot_be_submitted_again(serve):
    for settings, fix in (
        ({"log_window": 20}, "--log-window"),
        ({"trace_text": "off"}, "--trace-text"),
    ):
        url = serve(engine=ENGINE, server=settings).url
        for _ in range(4):
            post(url, "/v1/completions", {"prompt": "x", "max_tokens": 5})
        error = refused(url, {"prompts": "same_steps"})
        assert error["param"] == "prompts"
        assert_names(error["message"], fix)
        restart(url)


def test_a_prompt_that_does_not_fit_the_new_memory_is_named(url):
    post(url, "/v1/completions", {"prompt": "x" * 30, "max_tokens": 3}, **{"X-Client": "Ada"})
    before = trace(url).to_bytes()
    error = refused(url, {"prompts": "together", "settings": {"max_kv_tokens": 16}})
    assert error["param"] == "prompts"
    assert_names(error["message"], "Ada", "max_kv_tokens")
    assert trace(url).to_bytes() == before


def test_the_next_run_is_written_to_the_next_trace_file(serve, tmp_path):
    file = tmp_path / "class.jsonl"
    url = serve(engine=ENGINE, trace_file=str(file)).url
    post(url, "/v1/completions", {"prompt": "x", "max_tokens": 3})
    old = trace(url)
    restart(url, policy="lpm")
    post(url, "/v1/completions", {"prompt": "x", "max_tokens": 3})
    assert file.read_bytes() == old.to_bytes()
    assert (tmp_path / "class-2.jsonl").read_bytes() == trace(url).to_bytes()
    (tmp_path / "class-3.jsonl").write_text("my notes")
    error = refused(url, {}, 409)
    assert error["code"] == "trace_file"
    assert (tmp_path / "class-3.jsonl").read_text() == "my notes"
    assert post(url, "/v1/completions", {"prompt": "x", "max_tokens": 3}).status_code == 200


def test_an_engine_that_has_failed_works_again(serve):
    url = serve(engine=ENGINE).url
    broken = post(url, "/v1/completions", {"prompt": "x", "max_tokens": 3}, **{"X-Client": "break"})
    assert "engine_failed" in broken.text
    assert get(url, "/health")["status"] == "failed"
    restart(url, abort=True)
    assert get(url, "/health")["status"] == "ok"
    assert completed(url, **{"X-Client": "break"}) == "abc"  # its policy is the named one now


def test_old_and_new_are_compared(serve):
    url = serve(engine=ENGINE | {"max_batch_size": 4}).url
    for _ in range(2):
        post(url, "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 3})
    assert get(url, "/compare")["error"]["code"] == "no_previous_run"
    restart(url, prefix_cache="off")
    assert get(url, "/compare")["error"]["code"] == "nothing_to_compare"
    with watch(url) as feed:
        restart(url, prefix_cache="radix")
        restart(url)
    post(url, "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 3})
    restart(url, prompts="same_steps", prefix_cache="off", max_batch_size=3)
    with Feed(url, past=True) as feed:
        feed.until_kind(v.RequestFinished)
    compared = get(url, "/compare")
    assert compared["facts"]["names"] == ["the old run", "the new run"]
    changed = {name: values for name, *values in compared["facts"]["settings"]}
    assert changed["max_batch_size"] == ["4", "3"]
    assert compared["facts"]["paired"] == 1
    assert len(compared["logs"]) == 2


def test_a_step_is_decided_otherwise_on_a_copy(serve):
    url = serve().url
    asked = {"seat": "decisions", "step": 1}
    post(url, "/v1/completions", {"prompt": "Once", "max_tokens": 3})
    assert "policy=" in json.loads(post(url, "/seat", asked).text)["error"]  # a part of its own
    restart(url, policy="sjf")
    post(url, "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 3})
    before = trace(url).to_bytes()
    found = json.loads(post(url, "/seat", asked).text)
    [chunk] = found["decisions"]
    choice = chunk["candidates"][0]["choice"]
    taken = json.loads(post(url, "/seat", {"seat": "take", "step": 1, "choice": choice}).text)
    assert taken["done"] and taken["a"] and taken["b"] and taken["facts"]["difference"]["step"] == 1
    assert "99" in json.loads(post(url, "/seat", {"seat": "decisions", "step": 99}).text)["error"]
    assert trace(url).to_bytes() == before


def test_a_server_that_stops_right_after_a_restart_ends():
    server = start(paused=True, engine=ENGINE)
    _open = ask(server.url, "Ada", max_tokens=60)
    post(server.url, "/engine/step")
    restart(server.url, prompts="same_steps", abort=True)
    assert server.stop() == 0
