"""Servers for the tests: one per module where it can be shared, always over real sockets."""

import asyncio
import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.server.harness import Serve, ending, start
from tests.server.sdk import sdk
from tests.server.shelf import Shelf


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a module's tests with the engine in the server's process and in one of its own."""
    if getattr(metafunc.module, "BOTH_SHAPES", False) and "shape" in metafunc.fixturenames:
        shapes = [{"two_processes": two} for two in (False, True)]
        ids = ["one_process", "two_processes"]
        metafunc.parametrize("shape", shapes, ids=ids, scope="module")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="module")
def shape(request: pytest.FixtureRequest) -> dict[str, bool]:
    """Options for `start`; see above. A module with ONE_SHAPE is run with that one."""
    return getattr(request.module, "ONE_SHAPE", {})


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest, shape: dict[str, bool]) -> Iterator[str]:
    """A running server with the module's SERVER as options; without, it has room for every request."""
    options = getattr(request.module, "SERVER", {"engine": {"max_kv_tokens": 4096}})
    with start(**options, **shape) as server:
        yield server.url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with sdk(url) as client:
        yield client


@pytest.fixture
def serve(shape: dict[str, bool]) -> Iterator[Serve]:
    """Start servers with options of one's own; they end with the test."""
    with ending(lambda **options: start(**shape | options)) as start_one:
        yield start_one


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path, "a", "b", "c")


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A FIFO that the fake model waits for; see `app_under_test.py`."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path
