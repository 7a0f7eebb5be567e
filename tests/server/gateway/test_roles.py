"""Prefill here, decode there, through a gateway: equal tokens, also when a replica dies on the way.

The replicas check every read of KV: a token from KV that was moved wrongly would fail its request.
"""

import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from engine.cluster import events as c
from engine.core.config import ConfigError
from engine.core.log import vocabulary as v
from server.gateway.failures import Deadlines
from server.gateway.replica_set import UrlSet
from server.gateway.roles import parse_roles, role_of_next
from server.process import BackgroundServer
from tests.facts import raises_naming
from tests.server.app_under_test import TOKENIZER, next_letter
from tests.server.gateway.cluster import (
    ClusterFeed,
    cluster_trace,
    start_gateway,
    started,
    until_in,
)
from tests.server.gateway.conftest import wait_for
from tests.server.harness import ending, get, post, start, until

KEY = "key"
TEXT = "Once upon a time there was a gateway with several replicas. "
LONG = TEXT * 5
GATEWAY_KEY = {"X-Underglass-Cluster-Key": KEY}


@contextmanager
def cluster(prefill: int = 1, decode: int = 1) -> Iterator[list[BackgroundServer]]:
    """A gateway, prefill replicas and decode replicas; it has learned what moves cost."""
    options = dict(engine={"max_kv_tokens": 4096}, server={"cluster_key": KEY})
    with ending(start) as serve, ending(start_gateway) as gateway:
        servers = [serve(checking=True, **options) for _ in range(prefill + decode)]
        roles = f"prefill={prefill},decode={decode}"
        first = gateway(*(server.url for server in servers), key=KEY, roles=roles)
        wait_for(first.url, *(str(number) for number in range(len(servers))))
        learn(first.url)
        yield [first, *servers]


def learn(url: str) -> None:
    """Send prompts until the gateway knows the prices of moving and of computing."""
    number = 0
    while get(url, "/health")["moving"]["fixed_ms"] is None:
        complete(url, ask(f"{number}: {LONG}", max_tokens=1))
        number += 1


@pytest.fixture(scope="module")
def pair() -> Iterator[list[BackgroundServer]]:
    with cluster() as servers:
        yield servers


def ask(prompt: str = LONG, **fields: object) -> dict[str, Any]:
    sampling = {"temperature": 1.0, "seed": 5, "ignore_eos": True, "stream": False}
    return {"prompt": prompt, "max_tokens": 12, **sampling, **fields}


def complete(url: str, body: dict[str, Any], **headers: str) -> str:
    response = post(url, "/v1/completions", body, **headers)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def expected(prompt: str) -> str:
    """What a server says to a prompt, computed by a plain loop."""
    tokens = TOKENIZER.encode(prompt)
    for _ in range(12):
        tokens.append(next_letter(tokens, 5))
    return TOKENIZER.decode(tokens[-12:])


def happens(feed: ClusterFeed, kind: type[v.Event], at: str = "") -> c.Of:
    """Read on until an event of a kind has happened at a replica, or at any."""
    return feed.until(
        lambda one: type(one) is c.Of and type(one.event) is kind and at in ("", one.replica)
    )


def test_a_long_prompt_is_computed_here_and_continued_there(pair):
    url = pair[0].url
    with ClusterFeed(url) as feed:
        assert complete(url, ask(priority=7, user="Ada")) == expected(LONG)
        happens(feed, v.RequestFinished, at="1")
    log = cluster_trace(url)
    *_, moved = [event for event in log if isinstance(event, c.Moved)]
    assert (moved.source, moved.target, moved.tokens) == ("0", "1", 16 * moved.blocks)
    assert moved.blocks == (len(LONG) - 1) // 16
    assert moved.bytes == moved.blocks * 16 * 8
    routed = [e for e in log if isinstance(e, c.Routed) and e.request == moved.request]
    assert [(one.request, one.replica, one.label) for one in routed] == [
        (moved.request, "0", "Ada"),
        (moved.request, "1", "Ada"),
    ]
    replicas = log.replicas
    arrived = [replicas[id_].of(v.RequestArrived)[-1] for id_ in ("0", "1")]
    assert [(one.label, one.priority) for one in arrived] == [("Ada", 7)] * 2
    [adopted] = replicas["1"].of(v.PrefixAdopted)[-1:]
    assert adopted.source == "replica 0"
    placed = [one for one in log if isinstance(one, c.Placed) and one.replica == "1"][-1]
    [admitted] = [e for e in replicas["1"].of(v.Admitted) if e.request == placed.its_request]
    assert len(admitted.blocks) == moved.blocks


def test_many_streams_move_while_others_decode(pair):
    prompts = [f"{number % 8} {LONG}" for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda prompt: complete(pair[0].url, ask(prompt)), prompts))
    assert texts == [expected(prompt) for prompt in prompts]
    moves = [event for event in cluster_trace(pair[0].url) if isinstance(event, c.Moved)]
    assert len(moves) > 4


def test_a_short_or_known_prompt_is_computed_where_it_is_decoded(pair):
    url = pair[0].url
    complete(url, ask())
    before = len(cluster_trace(url).replicas["0"].of(v.RequestArrived))
    assert complete(url, ask("Hi")) == complete(url, ask("Hi"))
    assert complete(url, ask()) == expected(LONG)
    scored = ask("Scored: " + LONG, prompt_logprobs=0)
    post(url, "/v1/completions", scored).raise_for_status()
    assert len(cluster_trace(url).replicas["0"].of(v.RequestArrived)) == before


def control(server: BackgroundServer, what: str) -> None:
    post(server.url, f"/engine/{what}", **GATEWAY_KEY).raise_for_status()


def test_a_paused_prefill_replica_gets_no_prompts(pair):
    gateway, prefill, _ = pair
    with ClusterFeed(gateway.url) as feed:
        control(prefill, "pause")
        feed.until_replicas("paused", "0")
        other = "Paused: " + LONG
        assert complete(gateway.url, ask(other)) == expected(other)
        control(prefill, "resume")
        feed.until_replicas("paused")
    routed = [event for event in cluster_trace(gateway.url) if isinstance(event, c.Routed)]
    assert routed[-1].replica == "1"


@contextmanager
def prefilling(servers: list[BackgroundServer]) -> Iterator[Future[str]]:
    """A request whose prompt has arrived at the prefill replica; all replicas are paused."""
    gateway = servers[0]
    with ClusterFeed(gateway.url) as feed, ThreadPoolExecutor(1) as pool:
        control(gateway, "pause")
        feed.until_status(paused=True)
        answer = pool.submit(complete, gateway.url, ask())
        happens(feed, v.RequestArrived, at="0")
        yield answer
        assert answer.result(60) == expected(LONG)
    log = cluster_trace(gateway.url)
    assert not any(isinstance(event, c.RequestLost) for event in log)


def test_a_prefill_replica_dies_during_prefill():
    with cluster() as servers:
        with prefilling(servers):
            servers[1].process.kill()
            control(servers[2], "resume")
        log = cluster_trace(servers[0].url)
        [failed] = [event for event in log if isinstance(event, c.HopFailed)]
        assert (failed.replica, failed.hop, failed.remedy) == ("0", "prefill", "here")
        # Without a prefill replica, every request is computed where it is decoded.
        other = LONG[::-1]
        assert complete(servers[0].url, ask(other)) == expected(other)


@pytest.mark.parametrize("victim", ["source", "target"])
def test_a_replica_dies_during_the_move(victim):
    with cluster() as servers, ClusterFeed(servers[0].url) as feed, prefilling(servers):
        _, prefill, decode = servers
        decode.process.send_signal(signal.SIGSTOP)  # so that the move cannot end
        control(prefill, "resume")
        feed.until(lambda one: type(one) is c.Routed and one.replica == "1")
        (prefill if victim == "source" else decode).process.kill()
        if victim == "source":
            decode.process.send_signal(signal.SIGCONT)
            control(decode, "resume")


@pytest.mark.parametrize(("hop", "at"), [("prefill", 0), ("export", 0), ("adopt", 1)])
async def test_a_move_that_hangs_is_given_up(serve, hop, at):
    options = dict(engine={"max_kv_tokens": 4096}, server={"cluster_key": KEY})
    servers = [serve(checking=True, **options) for _ in range(2)]
    tokens = TOKENIZER.encode(LONG)
    async with started(
        UrlSet([server.url for server in servers]),
        cluster_key=KEY,
        roles=["prefill", "decode"],
        deadlines=Deadlines(silent=1000, **dict.fromkeys(("prefill", "export", "adopt"), 60.0)),
    ) as gateway:
        await until_in(gateway, lambda: len(gateway.ready) == 2)
        source, target = gateway.followers.values()
        if hop != "prefill":
            assert await gateway.mover.prefill(1, tokens, "", {}, {}) is source
        gateway.deadlines = replace(gateway.deadlines, **{hop: 0.01})
        servers[at].process.send_signal(signal.SIGSTOP)
        if hop == "prefill":
            assert await gateway.mover.prefill(1, tokens, "", {}, {}) is None
        else:
            await gateway.mover.move(1, tokens, source, target)
        [failed] = [event for event in gateway.log if isinstance(event, c.HopFailed)]
        assert (failed.hop, failed.replica, failed.noticed) == (hop, str(at), "late")
        servers[at].process.send_signal(signal.SIGCONT)
        for server in servers:
            until(server.url, "/health", is_idle)


def is_idle(health: httpx.Response) -> bool:
    """Whether the server has no request, and all its KV is free or cached."""
    told = health.json()
    requests = sum(told[name] for name in ("pending_submit", "waiting", "prefilling", "active"))
    blocks = told["blocks"]
    return not requests and blocks["free"] + blocks["cached"] == blocks["total"]


def test_a_decode_replica_dies_before_the_first_token():
    with cluster(decode=2) as (gateway, prefill, *decoding), ThreadPoolExecutor(1) as pool:
        with ClusterFeed(gateway.url) as feed:
            for one in decoding:
                control(one, "pause")
            answer = pool.submit(complete, gateway.url, ask())
            moved = feed.until(lambda one: type(one) is c.Moved)
            first = happens(feed, v.RequestArrived)
            control(decoding[2 - int(first.replica)], "resume")
            decoding[int(first.replica) - 1].process.kill()
            assert answer.result(60) == expected(LONG)
        log = cluster_trace(gateway.url)
        moves = [e for e in log if isinstance(e, c.Moved) and e.request == moved.request]
        assert {one.target for one in moves} == {"1", "2"}, "moved again, to the other one"
        assert {one.source for one in moves} == {"0"}
        # The last one dies, too: the prefill replica does everything.
        decoding[2 - int(first.replica)].process.kill()
        assert prefill.process.poll() is None
        until(gateway.url, "/health", lambda told: list(told.json()["replicas"]) == ["0"])
        other = LONG[::-1]
        assert complete(gateway.url, ask(other)) == expected(other)


@pytest.mark.parametrize(
    ("text", "replicas", "roles"),
    [
        ("prefill=1,decode=1", 2, ["prefill", "decode"]),
        ("decode=2, prefill=1", 3, ["prefill", "decode", "decode"]),
    ],
)
def test_roles_are_read(text, replicas, roles):
    assert parse_roles(text, replicas) == roles


WRONG = """
prefill prefill=1 decode=2 prefill=1,decode=2 prefill=0,decode=2 prefill=1,prefill=1 prefill=-1,decode=3
prefill=1,decode=1,other=0 prefill=x,decode=1
"""


@pytest.mark.parametrize("text", ["", *WRONG.split()])
def test_wrong_roles_are_refused(text):
    with raises_naming(ConfigError, "roles"):
        parse_roles(text, 2)


def test_a_replacement_takes_the_role_of_a_removed_replica():
    roles = parse_roles("prefill=1,decode=2", 3)
    present: list[str] = []
    for _ in range(4):  # one more than the roles
        present.append(role_of_next(roles, present))
    assert present == ["prefill", "decode", "decode", "decode"]
    assert role_of_next(roles, present[1:]) == "prefill"


def test_roles_need_replicas_and_their_key():
    with raises_naming(Exception, "UNDERGLASS_CLUSTER_KEY"):
        start_gateway("http://127.0.0.1:1", "http://127.0.0.1:2", roles="prefill=1,decode=1")
    with raises_naming(Exception, "--replica"):
        start_gateway(roles="prefill=1,decode=1")
