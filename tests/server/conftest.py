"""Servers for the tests: one per module where it can be shared, always over real sockets."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from server.process import BackgroundServer
from tests.server.harness import start


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A running server with room for every request."""
    with start(engine={"max_kv_tokens": 4096}) as server:
        yield server.url


@pytest.fixture
def serve() -> Iterator[Callable[..., BackgroundServer]]:
    """Start servers with options of one's own; they end with the test."""
    servers: list[BackgroundServer] = []

    def start_one(**options: Any) -> BackgroundServer:
        servers.append(start(**options))
        return servers[-1]

    yield start_one
    for server in servers:
        server.process.kill()
        server.stop()
