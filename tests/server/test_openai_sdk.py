"""OpenAI's Python SDK, strict, against a server started as a person starts it.

The session is that of `benchmarks/clients`, where other clients have theirs.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.clients.checks import KEY, Servers
from benchmarks.clients.openai_session import session
from server.process import serve_in_background


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    empty: Path = tmp_path_factory.mktemp("models")
    with ExitStack() as stack:
        yield Servers(
            url=stack.enter_context(serve_in_background(max_batch_size=32)).url,
            full=stack.enter_context(serve_in_background(max_waiting=1)).url,
            auto=stack.enter_context(serve_in_background("auto", model_dir=empty, api_key=KEY)).url,
        )


@pytest.mark.parametrize("name", session.checks)
def test_the_sdk_is_served(servers: Servers, name: str) -> None:
    session.checks[name](servers)
