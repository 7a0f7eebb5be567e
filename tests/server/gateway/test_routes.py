"""A gateway answers the routes of one server, and says which replica has answered."""

from typing import Any

import openai
import pytest

from server.process import BackgroundServer
from tests.server.gateway.cluster import Serve, cluster_trace
from tests.server.harness import http, post, sse_data
from tests.server.sdk import lenient, sdk

Pair = tuple[BackgroundServer, BackgroundServer, BackgroundServer]
MESSAGES: Any = [{"role": "user", "content": "Tell me."}]


def test_openai_sdk_completes_chats_and_responds_through_a_gateway(url: str) -> None:
    client = sdk(url)
    completion = client.completions.create(model="alphabet", prompt="x", max_tokens=3)
    chat = client.chat.completions.create(model="alphabet", messages=MESSAGES, max_tokens=3)
    response = client.responses.create(model="alphabet", input="Tell me.", max_output_tokens=16)
    assert completion.choices[0].text == chat.choices[0].message.content == "abc"
    assert response.output_text == "abcdefghijklmnop"
    assert [model.id for model in client.models.list()] == ["alphabet"]


def test_openai_sdk_streams_through_a_gateway(url: str) -> None:
    client = lenient(sdk(url))
    stream = client.completions.create(model="alphabet", prompt="x", max_tokens=4, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "abcd"
    chat = client.chat.completions.create(
        model="alphabet", messages=MESSAGES, max_tokens=4, stream=True
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chat) == "abcd"
    events = client.responses.create(
        model="alphabet", input="Tell me.", max_output_tokens=16, stream=True
    )
    *_, last = events
    assert last.type == "response.incomplete"


def test_teaching_stream_passes(url: str) -> None:
    events = sse_data(post(url, "/v1/completions", {"prompt": "x", "max_tokens": 3}).text)
    assert [event.get("token") for event in events[:3]] == ["a", "b", "c"]
    assert events[-1]["done"]


def test_response_names_replica_and_its_request_and_keeps_the_request_id(url: str) -> None:
    body = {"prompt": "x", "max_tokens": 1}
    response = post(url, "/v1/completions", body, **{"X-Request-Id": "mine", "X-Client": "Ada"})
    row = cluster_trace(url).decision_rows[-1]
    assert response.headers["x-underglass-replica"] == row.replica
    assert int(response.headers["x-underglass-request"]) == row.its_request
    assert response.headers.get_list("x-request-id") == ["mine"]
    assert row.label == "Ada"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/ping", None),
        ("GET", "/version", None),
        ("GET", "/ready", None),
        ("GET", "/join", None),
        ("GET", "/v1/models/alphabet", None),
        ("POST", "/tokenize", {"prompt": "x"}),
        ("POST", "/detokenize", {"tokens": [104]}),
        ("POST", "/v1/completions/render", {"prompt": "x"}),
        ("POST", "/v1/chat/completions/render", {"messages": MESSAGES}),
        ("POST", "/v1/responses/render", {"input": "x"}),
        ("GET", "/", None),
        ("GET", "/docs", None),
        ("GET", "/openapi.json", None),
    ],
)
def test_gateway_answers_as_a_replica_does(pair: Pair, method: str, path: str, body: Any) -> None:
    statuses, kinds = [], []
    for server in pair[:2]:
        with http(server.url) as client:
            response = client.request(method, path, json=body)
        statuses.append(response.status_code)
        kinds.append(response.headers["content-type"])
    assert statuses == [200, 200]
    assert kinds[0] == kinds[1]


def test_wrong_request_gets_the_replicas_error(pair: Pair) -> None:
    wrong = {"prompt": "x", "max_tokens": "many"}
    answers = [post(server.url, "/v1/completions", wrong) for server in pair[:2]]
    assert answers[0].status_code == answers[1].status_code == 400
    assert answers[0].json() == answers[1].json()


def test_gateway_rejects_what_every_server_rejects(url: str) -> None:
    assert post(url, "/v1/completions", {"prompt": "x"}, Host="evil.example").status_code == 403
    gzipped = post(url, "/v1/completions", {"prompt": "x"}, **{"Content-Encoding": "gzip"})
    assert gzipped.status_code == 415
    with http(url) as client:
        assert client.get("/nothing").json()["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/engine/restart"), ("POST", "/engine/screen"), ("GET", "/compare")],
)
def test_route_for_one_engine_names_the_replicas(pair: Pair, method: str, path: str) -> None:
    gateway, first, second = pair
    with http(gateway.url) as client:
        response = client.request(method, path, json={} if method == "POST" else None)
    assert response.status_code == 409
    assert first.url in response.json()["error"]["message"]
    assert second.url in response.json()["error"]["message"]


def test_gateway_and_replicas_have_the_same_key(serve: Serve, gateway: Serve) -> None:
    replica = serve(server={"api_key": "secret"})
    server = gateway(replica.url, wait=False, api_key="secret")
    body = {"prompt": "x", "max_tokens": 2, "model": "m"}
    with http(server.url) as client:
        assert client.post("/v1/completions", json=body).status_code == 401
        while client.get("/ready").status_code != 200:
            pass
    with_key = openai.OpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0)
    assert with_key.completions.create(model="m", prompt="x", max_tokens=2).choices[0].text == "ab"


def test_full_queue_of_a_replica_reaches_the_client(serve: Serve, gateway: Serve) -> None:
    replica = serve(paused=True, server={"max_waiting": 1})
    server = gateway(replica.url)
    body = {"prompt": "x", "max_tokens": 1}
    with http(server.url) as client, client.stream("POST", "/v1/completions", json=body) as first:
        assert first.status_code == 200
        second = post(server.url, "/v1/completions", body)
    assert second.status_code == 429
    assert int(second.headers["retry-after"]) >= 1
    assert second.json()["error"]["code"] == "queue_full"
