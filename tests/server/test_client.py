"""The notebook's client: what lesson 00 does, and that it gives the same log every time."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from engine.core.log.vocabulary import RequestArrived
from server.client import Client, RequestFailedError, Stream, StreamEvent
from tests.facts import assert_names, raises_naming
from tests.server.harness import post, refusal

EIGHT = [
    {"prompt": f"Tell me about number {number}", "max_tokens": 4 + number, "label": f"r{number}"}
    for number in range(8)
]


async def fire(url: str, requests: list[dict[str, Any]]) -> list[StreamEvent]:
    client = Client(url)
    client.pause()
    streams = await client.queue(requests)
    client.resume()
    return [event async for event in client.read(streams)]


def test_eight_requests_at_once_give_the_same_log_every_time(serve):
    urls = [serve(engine={"max_batch_size": 4}).url for _ in range(2)]
    events, _ = (asyncio.run(fire(url, EIGHT)) for url in urls)
    first, second = (Client(url).trace().deterministic() for url in urls)
    assert first == second
    texts = {event.label: event.full_text for event in events if event.full_text}
    assert texts == {one["label"]: "abcdefghijk"[: one["max_tokens"]] for one in EIGHT}


async def test_pause_queue_step_and_resume(serve):
    client = Client(serve().url)
    client.pause()
    streams = await client.queue(EIGHT)
    assert [stream.request for stream in streams] == list(range(1, 9))
    assert client.health()["waiting"] == 8
    assert client.step(2) == 2
    client.resume()
    events = [event async for event in client.read(streams)]
    assert [event.at for event in events] == sorted(event.at for event in events)
    for one in EIGHT:
        mine = [event for event in events if event.label == one["label"]]
        assert mine[0].ttft_ms > 0
        assert "".join(event.token for event in mine) == mine[-1].full_text
    arrived = client.trace().of(RequestArrived)
    assert [event.label for event in arrived] == [one["label"] for one in EIGHT]


async def test_reading_a_stream_twice_raises_at_once(url):
    client = Client(url)
    streams = await client.queue([{"prompt": "Hello", "max_tokens": 3, "label": "Ada"}])
    assert len([event async for event in client.read(streams)]) == 4
    arrived = len(client.trace().of(RequestArrived))
    with pytest.raises(RequestFailedError):
        async for _ in client.read(streams):
            pass
    assert len(client.trace().of(RequestArrived)) == arrived


@pytest.mark.parametrize(
    ("sent", "label"),
    [("Zoë".encode(), "Zoë"), ("Zoë".encode("latin-1"), "Zoë"), (b"x" * 5000, "x" * 256)],
)
def test_a_name_in_a_header_is_read_as_it_was_written(url, sent, label):
    body = {"prompt": "x", "max_tokens": 1, "user": "another name"}
    answer = post(url, "/v1/completions", body, **{"X-Client": sent})
    request = int(answer.headers["x-underglass-request"])
    [arrived] = [one for one in Client(url).trace().of(RequestArrived) if one.request == request]
    assert arrived.label == label


def test_what_the_server_refuses_is_raised_in_its_words(url):
    answers = [
        post(url, "/v1/completions", {"prompt": "x", "max_tokens": 0}),
        post(url, "/engine/step"),
    ]
    assert refusal(answers[1]) == (409, "not_paused")
    with pytest.raises(RequestFailedError) as wrong:
        asyncio.run(Client(url).submit("x", max_tokens=0))
    with pytest.raises(RequestFailedError) as running:
        Client(url).step()
    raised = [str(one.value) for one in (wrong, running)]
    assert raised == [answer.json()["error"]["message"] for answer in answers]
    assert_names(raised[0], "max_tokens", 0)


@pytest.mark.parametrize(
    "call",
    [Client.pause, Client.health, Client.trace, lambda client: asyncio.run(client.submit("x"))],
    ids=["pause", "health", "trace", "submit"],
)
def test_without_a_server_the_error_names_the_url_and_the_command(call):
    url = "http://127.0.0.1:1"  # no server listens on this port
    with raises_naming(ConnectionError, url, "underglass serve") as caught:
        call(Client(url))
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__, "the traceback must not show httpx's error"


def test_a_stream_that_fails_is_raised_and_others_are_closed(url):
    requests = [{"prompt": "x", "label": "fail-after-2"}, {"prompt": "y", "max_tokens": 1000}]
    with pytest.raises(RequestFailedError, match="told to fail"):
        asyncio.run(fire(url, requests))


async def test_an_answer_that_cannot_be_read_is_raised():
    async def body() -> AsyncIterator[bytes]:  # a text would count as already read
        yield b"data: no json\n\n"

    def answer(_request: httpx.Request) -> httpx.Response:
        headers = {"x-underglass-request": "1", "content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, content=body())

    connection = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://x")
    response = await connection.send(connection.build_request("POST", "/"), stream=True)
    with pytest.raises(json.JSONDecodeError):
        async for _ in Client("http://x").read([Stream("Ada", connection, response)]):
            pass
