"""The teacher's controls through a gateway, and the cluster's key."""

from typing import Any

from engine.events.cluster import Controlled
from engine.events.vocabulary import RequestFinished
from server.process import BackgroundServer
from tests.server.gateway.cluster import Serve, cluster_trace
from tests.server.harness import Feed, get, http, post

Pair = tuple[BackgroundServer, BackgroundServer, BackgroundServer]


def paused(*servers: BackgroundServer) -> list[bool]:
    return [get(server.url, "/health")["paused"] for server in servers]


def test_control_reaches_all_replicas_or_one(pair: Pair) -> None:
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
    assert [(one.what, one.replica) for one in controlled] == [
        ("pause", None),
        ("resume", "1"),
        ("resume", None),
    ]


def test_held_requests_are_counted_over_all_replicas(pair: Pair) -> None:
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


def test_wrong_control_gets_the_replicas_error(pair: Pair) -> None:
    wrong: Any = {"steps": 0}
    answers = [post(server.url, "/engine/step", wrong) for server in pair[:2]]
    assert answers[0].status_code == answers[1].status_code == 400
    assert answers[0].json() == answers[1].json()


def test_unknown_replica_is_404(url: str) -> None:
    answer = post(url, "/engine/pause?replica=7")
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "replica"


def test_page_of_another_site_may_not_control_a_gateway(url: str) -> None:
    answer = post(url, "/engine/pause", Origin="https://evil.example")
    assert answer.json()["error"]["code"] == "cross_site"


def test_replica_with_a_cluster_key_obeys_its_gateway_only(serve: Serve, gateway: Serve) -> None:
    replica = serve(server={"cluster_key": "k3y"})
    direct = post(replica.url, "/engine/pause")
    assert (direct.status_code, direct.json()["error"]["code"]) == (403, "cluster_key")
    wrong = post(replica.url, "/engine/pause", **{"x-underglass-cluster-key": "other"})
    assert wrong.status_code == 403
    assert paused(replica) == [False]
    assert post(gateway(replica.url, key="k3y").url, "/engine/pause").status_code == 200
    assert paused(replica) == [True]
    with Feed(replica.url) as feed:
        feed.until_status(controls=False)
    keyless = post(gateway(replica.url).url, "/engine/resume")
    assert keyless.json()["error"]["code"] == "cluster_key"


def test_client_cannot_send_the_cluster_key_through_a_gateway(serve: Serve, gateway: Serve) -> None:
    replica = serve(server={"cluster_key": "k3y"})
    server = gateway(replica.url)
    answer = post(server.url, "/engine/pause", **{"x-underglass-cluster-key": "k3y"})
    assert answer.status_code == 403


def test_sums_are_those_of_the_replicas(pair: Pair) -> None:
    gateway, *replicas = pair
    with Feed(replicas[0].url) as one, Feed(replicas[1].url) as two:
        for number in range(4):
            prompt = chr(97 + number) * 40
            answer = post(gateway.url, "/v1/completions", {"prompt": prompt, "max_tokens": 3})
            feed = one if answer.headers["x-underglass-replica"] == "0" else two
            feed.until_kind(RequestFinished)
    with http(gateway.url) as client:
        lines = client.get("/metrics").text.splitlines()
    values = {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }
    label = 'engine="0",model_name="alphabet"'
    for metric in ("generation_tokens_total", "prompt_tokens_total"):
        parts = [values[f'vllm:{metric}{{{label},replica="{id_}"}}'] for id_ in ("0", "1")]
        assert values[f"cluster:{metric}{{{label}}}"] == sum(parts) > 0
    for id_, replica in zip(("0", "1"), replicas, strict=True):
        with http(replica.url) as client:
            own = client.get("/metrics").text.splitlines()
        buckets = [line for line in own if line.startswith("vllm:time_to_first_token_seconds_")]
        for bucket in buckets:
            name, _, value = bucket.rpartition(" ")
            head, _, labels = name.partition("{")
            found = [
                total
                for other, total in values.items()
                if other.startswith(head + "{")
                and f'replica="{id_}"' in other
                and all(part in other for part in labels.rstrip("}").split(","))
            ]
            assert found == [float(value)]
    routed = [
        value for name, value in values.items() if name.startswith("cluster:requests_routed_t")
    ]
    assert sum(routed) == len(cluster_trace(gateway.url).decision_rows)
