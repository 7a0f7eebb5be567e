"""LMTP through a gateway: a connection belongs to one replica, with its buffers."""

import asyncio
from typing import Any

import pytest

from engine.events.cluster import Placed, Routed
from engine.events.vocabulary import RequestArrived, RequestFinished
from server.api.lmtp.client import StreamError, connect
from server.process import BackgroundServer
from tests.server.gateway.cluster import Serve, cluster_trace
from tests.server.harness import Feed, post, trace

Pair = tuple[BackgroundServer, BackgroundServer, BackgroundServer]


def test_connection_keeps_its_buffers_because_it_is_pinned(pair: Pair) -> None:
    async def talk() -> list[str]:
        texts = []
        async with connect(pair[0].url, label="Ada") as client:
            for fields in ({"keep": "story"}, {"from": "story"}):
                tokens = client.generate("x", max_tokens=3, **fields)
                texts.append("".join([token["text"] async for token in tokens]))
        return texts

    assert asyncio.run(talk()) == ["abc", "abc"]
    [routed] = [one for one in cluster_trace(pair[0].url) if isinstance(one, Routed)]
    assert (routed.reason, routed.label) == ("pinned", "Ada")
    arrived = trace(pair[1 + int(routed.replica)].url).of(RequestArrived)
    assert [(one.label, len(one.prompt)) for one in arrived] == [("Ada", 2), ("Ada", 6)]
    log = cluster_trace(pair[0].url)
    placed = [(one.request, one.its_request) for one in log if isinstance(one, Placed)]
    assert placed == [(routed.request, one.request) for one in arrived]
    assert {(row.request, row.label) for row in log.token_rows} == {(routed.request, "Ada")}
    assert [(row.reason, row.its_request) for row in log.decision_rows] == [("pinned", None)]


def test_connections_spread_over_the_replicas(pair: Pair) -> None:
    async def talk() -> None:
        async with connect(pair[0].url) as one, connect(pair[0].url) as two:
            await one.model_info()
            await two.model_info()

    before = len([one for one in cluster_trace(pair[0].url) if isinstance(one, Routed)])
    asyncio.run(talk())
    routed = [one for one in cluster_trace(pair[0].url) if isinstance(one, Routed)]
    assert {one.replica for one in routed[before:]} == {"0", "1"}


async def test_dead_replica_ends_each_open_stream(serve: Serve, gateway: Serve) -> None:
    replica = serve(paused=True)
    url = gateway(replica.url).url

    codes = []

    async def read(client: Any) -> None:
        with pytest.raises(StreamError) as caught:
            async for _ in client.generate("x", max_tokens=9):
                pass
        assert caught.value.retry
        codes.append(caught.value.code)

    async with connect(url) as client:
        queued = asyncio.Queue[Any]()
        client.on_message = queued.put_nowait
        readers = [asyncio.create_task(read(client)) for _ in range(3)]
        for _ in readers:
            await queued.get()
        replica.process.kill()
        await asyncio.gather(*readers)
    assert codes == ["replica_lost"] * 3


def test_client_that_leaves_is_aborted(serve: Serve, gateway: Serve) -> None:
    replica = serve(paused=True)
    url = gateway(replica.url).url

    async def leave() -> None:
        async with connect(url) as client:
            queued = asyncio.Event()
            client.on_message = lambda _message: queued.set()
            reading = asyncio.create_task(anext(client.generate("x", max_tokens=9)))
            await queued.wait()
        reading.cancel()

    with Feed(replica.url) as feed:
        asyncio.run(leave())
        assert feed.until_kind(RequestFinished).reason == "abort"
    assert post(url, "/engine/resume").status_code == 200


def test_no_replica_rejects_the_handshake(gateway: Serve) -> None:
    from websockets.exceptions import InvalidStatus

    url = gateway("http://127.0.0.1:9", wait=False).url

    async def talk() -> None:
        async with connect(url):
            pass

    with pytest.raises(InvalidStatus) as caught:
        asyncio.run(talk())
    assert caught.value.response.status_code == 503
