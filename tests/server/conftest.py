"""Servers for the tests: one per module where it can be shared, always over real sockets."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from server.process import BackgroundServer
from tests.server.harness import start


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a module's tests with the engine in the server's process and in one of its own."""
    if getattr(metafunc.module, "BOTH_SHAPES", False) and "shape" in metafunc.fixturenames:
        shapes = [{"two_processes": two} for two in (False, True)]
        ids = ["one_process", "two_processes"]
        metafunc.parametrize("shape", shapes, ids=ids, scope="module")


@pytest.fixture(scope="module")
def shape() -> dict[str, bool]:
    """Options for `start`; see above."""
    return {}


@pytest.fixture(scope="module")
def url(shape: dict[str, bool]) -> Iterator[str]:
    """A running server with room for every request."""
    with start(engine={"max_kv_tokens": 4096}, **shape) as server:
        yield server.url


@pytest.fixture
def serve(shape: dict[str, bool]) -> Iterator[Callable[..., BackgroundServer]]:
    """Start servers with options of one's own; they end with the test."""
    servers: list[BackgroundServer] = []

    def start_one(**options: Any) -> BackgroundServer:
        servers.append(start(**shape | options))
        return servers[-1]

    yield start_one
    for server in servers:
        server.process.kill()
        server.stop()
