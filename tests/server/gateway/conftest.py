"""Gateways for the tests, over servers with the alphabet runner."""

from collections.abc import Iterator

import pytest

from server.process import BackgroundServer
from tests.server.gateway.cluster import ClusterFeed, start_gateway
from tests.server.harness import Serve, ending, start

ENGINE = {"max_kv_tokens": 4096}


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[BackgroundServer, BackgroundServer, BackgroundServer]]:
    """A gateway and its two replicas, "0" and "1"."""
    with (
        start(engine=ENGINE) as first,
        start(engine=ENGINE) as second,
        start_gateway(first.url, second.url) as gateway,
    ):
        wait_for(gateway.url, "0", "1")
        yield gateway, first, second


@pytest.fixture(scope="module")
def url(pair: tuple[BackgroundServer, ...]) -> str:
    return pair[0].url


@pytest.fixture
def gateway() -> Iterator[Serve]:
    """Start gateways with options of one's own, and wait until their replicas have joined."""
    with ending(start_gateway) as begin:

        def start_one(*urls: str, wait: bool = True, **options: object) -> BackgroundServer:
            server = begin(*urls, **options)
            if wait:
                wait_for(server.url, *(str(number) for number in range(len(urls))))
            return server

        yield start_one


def wait_for(url: str, *ids: str) -> None:
    with ClusterFeed(url) as feed:
        feed.until_ready(*ids)
