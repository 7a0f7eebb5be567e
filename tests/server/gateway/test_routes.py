"""A gateway answers the routes of one server, and says which replica has answered."""

import json
from typing import Any

import openai
import pytest

from engine.cluster.events import Controlled
from engine.core.log.vocabulary import RequestFinished
from server.process import BackgroundServer
from tests.server.gateway.cluster import cluster_trace
from tests.server.gateway.test_failure import stream
from tests.server.harness import Feed, fetch, get, metrics, post, refusal, until_ready
from tests.server.sdk import lenient, sdk
from tests.server.test_openapi import HEALTH, RESPONSES, ROUTES, operations
from visualizer import read

Pair = tuple[BackgroundServer, BackgroundServer, BackgroundServer]
MESSAGES: Any = [{"role": "user", "content": "Tell me."}]


def test_openai_sdk_completes_chats_and_responds_through_a_gateway(url):
    client, streaming = sdk(url), lenient(sdk(url))
    completion = client.completions.create(model="alphabet", prompt="x", max_tokens=3)
    chat = client.chat.completions.create(model="alphabet", messages=MESSAGES, max_tokens=3)
    response = client.responses.create(model="alphabet", input="Tell me.", max_output_tokens=16)
    assert completion.choices[0].text == chat.choices[0].message.content == "abc"
    assert response.output_text == "abcdefghijklmnop"
    assert [model.id for model in client.models.list()] == ["alphabet"]
    stream = streaming.completions.create(model="alphabet", prompt="x", max_tokens=4, stream=True)
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


def test_response_names_replica_and_its_request_and_keeps_the_request_id(url):
    body = {"prompt": "x", "max_tokens": 1}
    response = post(url, "/v1/completions", body, **{"X-Request-Id": "mine", "X-Client": "Ada"})
    row = read(cluster_trace(url)).decision_rows[-1]
    assert response.headers["x-underglass-replica"] == row.replica
    assert int(response.headers["x-underglass-request"]) == row.its_request
    assert response.headers.get_list("x-request-id") == ["mine"]
    assert row.label == "Ada"


@pytest.mark.parametrize(
    ("path", "wrong"),
    [("/v1/completions", {"prompt": "x", "max_tokens": "many"}), ("/engine/step", {"steps": 0})],
)
def test_wrong_request_gets_the_replicas_error(pair, path, wrong):
    answers = [post(server.url, path, wrong) for server in pair[:2]]
    assert answers[0].status_code == answers[1].status_code == 400
    assert answers[0].json() == answers[1].json()


def test_gateway_rejects_what_every_server_rejects(url):
    assert post(url, "/v1/completions", {"prompt": "x"}, Host="evil.example").status_code == 403
    gzipped = post(url, "/v1/completions", {"prompt": "x"}, **{"Content-Encoding": "gzip"})
    assert gzipped.status_code == 415
    assert get(url, "/nothing")["error"]["code"] == "not_found"
    foreign = post(url, "/engine/pause", Origin="https://evil.example")
    assert refusal(foreign) == (403, "cross_site")
    unknown = post(url, "/engine/pause?replica=7")
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "replica")


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/engine/restart"), ("POST", "/engine/screen"), ("GET", "/compare")],
)
def test_route_for_one_engine_names_the_replicas(pair, method, path):
    gateway, first, second = pair
    response = fetch(gateway.url, path, method, json={} if method == "POST" else None)
    assert response.status_code == 409
    assert first.url in response.json()["error"]["message"]
    assert second.url in response.json()["error"]["message"]


def test_gateway_and_replicas_have_the_same_key(serve, gateway):
    replica = serve(server={"api_key": "secret"})
    server = gateway(replica.url, wait=False, api_key="secret")
    assert post(server.url, "/v1/completions", {"prompt": "x"}).status_code == 401
    until_ready(server.url)
    with_key = openai.OpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0)
    assert with_key.completions.create(model="m", prompt="x", max_tokens=2).choices[0].text == "ab"


def test_full_queue_of_a_replica_reaches_the_client(serve, gateway):
    replica = serve(paused=True, server={"max_waiting": 1})
    server = gateway(replica.url)
    body = {"prompt": "x", "max_tokens": 1}
    with stream(server.url, "/v1/completions", body):
        second = post(server.url, "/v1/completions", body)
    assert refusal(second) == (429, "queue_full")
    assert int(second.headers["retry-after"]) >= 1


ONE_ENGINE = {
    "POST /engine/restart",
    "POST /engine/screen",
    "GET /compare",
    "GET /kv_event_sources",
    "POST /kv/export",  # between replicas
    "POST /kv/adopt",
}


def test_gateway_has_the_routes_of_one_server_and_describes_them(url):
    described = dict(operations(get(url, "/openapi.json")))
    one_server = {route.strip() for route in ROUTES.replace("\n", " ").split(",")}
    assert described.keys() == one_server - ONE_ENGINE
    for name, operation in described.items():
        assert operation["description"] and operation["tags"], name
        assert set(operation["responses"]) == RESPONSES | HEALTH.get(name, set()), name


def paused(*servers: BackgroundServer) -> list[bool]:
    return [get(server.url, "/health")["paused"] for server in servers]


def test_control_reaches_all_replicas_or_one(pair):
    gateway, first, second = pair
    answer = post(gateway.url, "/engine/pause").json()
    assert paused(first, second) == [True, True]
    assert answer["paused"] is True
    assert set(answer["replicas"]) == {"0", "1"}
    assert post(gateway.url, "/engine/resume?replica=1").json()["paused"] is False
    assert paused(first, second) == [True, False]
    post(gateway.url, "/engine/resume")
    assert paused(first, second) == [False, False]
    controlled = [one for one in cluster_trace(gateway.url) if isinstance(one, Controlled)]
    assert [(one.what, one.replica) for one in controlled[-3:]] == [
        ("pause", None),
        ("resume", "1"),
        ("resume", None),
    ]


def test_held_requests_are_counted_over_all_replicas(pair):
    gateway = pair[0].url
    assert post(gateway, "/engine/hold_submissions").json()["holding"] is True
    assert post(gateway, "/engine/release_submissions").json() == {
        "holding": False,
        "requests": 0,
        "replicas": {
            "0": {"holding": False, "requests": 0},
            "1": {"holding": False, "requests": 0},
        },
    }


def test_replica_with_a_cluster_key_obeys_its_gateway_only(serve, gateway):
    replica = serve(server={"cluster_key": "k3y"})
    assert refusal(post(replica.url, "/engine/pause")) == (403, "cluster_key")
    wrong = post(replica.url, "/engine/pause", **{"x-underglass-cluster-key": "other"})
    assert wrong.status_code == 403
    assert paused(replica) == [False]
    assert post(gateway(replica.url, key="k3y").url, "/engine/pause").status_code == 200
    assert paused(replica) == [True]
    with Feed(replica.url) as feed:
        feed.until_status(controls=False)
    without = gateway(replica.url).url
    for headers in ({}, {"x-underglass-cluster-key": "k3y"}):  # a client's key is not passed on
        assert refusal(post(without, "/engine/resume", **headers)) == (403, "cluster_key")


def test_sums_are_those_of_the_replicas(pair):
    gateway, *replicas = pair
    with Feed(replicas[0].url) as one, Feed(replicas[1].url) as two:
        for number in range(4):
            prompt = chr(97 + number) * 40
            answer = post(gateway.url, "/v1/completions", {"prompt": prompt, "max_tokens": 3})
            feed = one if answer.headers["x-underglass-replica"] == "0" else two
            feed.until_kind(RequestFinished)
    values = {frozenset(labels): value for labels, value in metrics(gateway.url).items()}
    for name in ("generation_tokens_total", "prompt_tokens_total"):
        parts = [values[frozenset((f"vllm:{name}", id_))] for id_ in ("0", "1")]
        assert values[frozenset([f"cluster:{name}"])] == sum(parts) > 0
    for id_, replica in zip(("0", "1"), replicas, strict=True):
        own = {labels for labels in metrics(replica.url).items() if "time_to_first" in labels[0][0]}
        assert len(own) > 10
        assert all(values[frozenset((*labels, id_))] == value for labels, value in own)
    routed = [values[labels] for labels in values if "cluster:requests_routed_total" in labels]
    assert sum(routed) == len(read(cluster_trace(gateway.url)).decision_rows)


def test_a_replica_decides_a_step_otherwise_on_a_copy_of_its_log(serve, gateway):
    replica = serve()
    post(replica.url, "/engine/restart", {"settings": {"policy": "sjf"}, "prompts": "none"})
    url = gateway(replica.url).url
    post(url, "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 3})
    asked = {"seat": "decisions", "step": 1, "replica": "0"}
    answer = json.loads(post(url, "/seat", asked).text)
    assert answer == json.loads(post(replica.url, "/seat", asked).text)
    assert answer["decisions"] and answer["note"].startswith("This replica is run again alone")
    assert refusal(post(url, "/seat", asked | {"replica": None})) == (409, "gateway")
    assert post(url, "/seat", asked | {"replica": "7"}).status_code == 404
