"""The teaching stream, as curl and a class see it."""

import subprocess
import time

from engine.events.vocabulary import RequestArrived, StepFinished
from tests.server.curl import curl
from tests.server.harness import Serve, http, post, sse_data, trace

BODY = {"prompt": "Once upon a time", "max_tokens": 20}


def receipts(process: "subprocess.Popen[bytes]") -> list[tuple[float, str]]:
    """When each event of a curl was received, and its text."""
    with process:
        received = [(time.perf_counter(), line.decode()) for line in process.stdout]
    events = [(at, sse_data(line)[0]) for at, line in received if line.startswith("data")]
    return [(at, event.get("token", event.get("full_text"))) for at, event in events]


def test_curl_gets_one_event_per_token_and_the_whole_text(url: str) -> None:
    output, _ = curl(url, '{"prompt": "Once", "max_tokens": 30}').communicate(timeout=30)
    *tokens, last = sse_data(output.decode())
    assert [event["token"] for event in tokens] == list("abcdefghijklmnopqrstuvwxyzabcd")
    assert [event["token_id"] for event in tokens][:3] == [97, 98, 99]
    assert [event["is_first"] for event in tokens] == [True] + [False] * 29
    assert ["ttft_ms" in event for event in tokens] == [True] + [False] * 29
    text = "abcdefghijklmnopqrstuvwxyzabcd"
    assert last == {"done": True, "full_text": text, "finish_reason": "length"}


def test_joined_tokens_are_the_full_text_also_when_the_model_stops(url: str) -> None:
    *tokens, last = sse_data(post(url, "/v1/completions", {"prompt": "How?"}).text)
    assert "".join(event["token"] for event in tokens) == last["full_text"] == "abcde"
    assert len(tokens) == 6  # the end token is a token, without text
    assert last["finish_reason"] == "stop"


def test_ttft_is_what_the_log_says(url: str) -> None:
    events = sse_data(post(url, "/v1/completions", {"prompt": "ttft", "max_tokens": 2}).text)
    log = trace(url)
    arrived = log.of(RequestArrived)[-1]
    first = next(
        event
        for event in log.of(StepFinished)
        if any(row.request == arrived.request for row in event.tokens)
    )
    assert events[0]["ttft_ms"] == (first.t["end"] - arrived.t["at"]) / 1000


def test_two_streams_advance_together_step_by_step(serve: Serve) -> None:
    url = serve(paused=True).url
    with (
        http(url) as client,
        client.stream("POST", "/v1/completions", json=BODY) as ada,
        client.stream("POST", "/v1/completions", json=BODY) as bo,
    ):
        lines = [stream.iter_lines() for stream in (ada, bo)]
        for letter in "abcdefg":
            post(url, "/engine/step")
            for one in lines:
                line = next(line for line in one if line.startswith("data: "))
                assert sse_data(line)[0]["token"] == letter


def test_the_label_reaches_the_log(url: str) -> None:
    post(url, "/v1/completions", {"prompt": "x", "user": "Bo"})
    post(url, "/v1/completions", {"prompt": "x", "user": "Bo"}, **{"X-Client": "Ada"})
    assert [event.label for event in trace(url).of(RequestArrived)[-2:]] == ["Bo", "Ada"]
