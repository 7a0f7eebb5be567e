"""SIGTERM: running streams end as they would have, new requests get 503, the replicas go on."""

import asyncio
import signal

import pytest

from server.api.lmtp.client import connect
from tests.server.gateway.cluster import ClusterFeed, Serve
from tests.server.gateway.test_failure import STREAMS, read_events, stream
from tests.server.harness import get, post


@pytest.mark.parametrize("kind", STREAMS)
def test_running_stream_ends_before_the_gateway_does(
    serve: Serve, gateway: Serve, kind: str
) -> None:
    replica = serve(paused=True)
    server = gateway(replica.url)
    with stream(server.url, *STREAMS[kind]) as response, ClusterFeed(server.url) as feed:
        server.process.send_signal(signal.SIGTERM)
        assert "shutting down" in feed.until_not_ready()
        refused = post(server.url, "/v1/completions", {"prompt": "x"})
        post(replica.url, "/engine/resume")
        events = read_events(response.iter_lines())
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutdown")
    assert refused.headers["retry-after"]
    assert events
    assert not any("error" in event for event in events)
    assert server.process.wait() == 0
    assert get(replica.url, "/ready")["status"] == "ready"


def test_stream_that_outlasts_the_drain_is_told(serve: Serve, gateway: Serve) -> None:
    replica = serve(paused=True)
    server = gateway(replica.url, drain_seconds=0)
    with stream(server.url, *STREAMS["openai"]) as response:
        server.process.send_signal(signal.SIGTERM)
        error, done = read_events(response.iter_lines())
    assert (error["error"]["code"], done) == ("shutdown", "[DONE]")
    assert server.process.wait() == 0


def test_drain_waits_for_lmtp_streams_but_not_for_idle_connections(
    serve: Serve, gateway: Serve
) -> None:
    replica = serve(paused=True)
    server = gateway(replica.url, drain_seconds=1000)

    async def talk() -> str:
        async with connect(server.url) as client, connect(server.url) as idle:
            await idle.model_info()
            queued = asyncio.Event()
            client.on_message = lambda _message: queued.set()
            tokens = client.generate("x", max_tokens=3)
            first = asyncio.create_task(anext(tokens))
            await queued.wait()

            def resume() -> None:
                with ClusterFeed(server.url) as feed:
                    server.process.send_signal(signal.SIGTERM)
                    feed.until_not_ready()
                    post(replica.url, "/engine/resume")

            await asyncio.to_thread(resume)
            rest = [(await first)["text"]] + [token["text"] async for token in tokens]
            return "".join(rest)

    assert asyncio.run(talk()) == "abc"
    assert server.process.wait() == 0
