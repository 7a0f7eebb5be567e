"""The clients that are installed here, against servers started as a person starts them.

OpenAI's Python SDK comes with the project's dev extra. OpenAI's Node SDK runs once
`python -m tests.clients node` has installed it. The others run in environments of their own, by
`python -m tests.clients`.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.__main__ import BUILD, CLIENTS, run, start_servers
from tests.clients.checks import Servers
from tests.clients.openai_session import session


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    empty: Path = tmp_path_factory.mktemp("models")
    with ExitStack() as stack:
        yield start_servers(stack, empty)


@pytest.mark.parametrize("name", session.checks)
def test_openais_python_sdk_is_served(servers: Servers, name: str) -> None:
    session.checks[name](servers)


@pytest.mark.skipif(
    not (BUILD / "node" / "node_modules" / "openai").is_dir(),
    reason="openai for Node is not installed: python -m tests.clients node",
)
def test_openais_node_sdk_is_served(servers: Servers) -> None:
    checks = run(CLIENTS["node"], servers)
    assert len(checks) > 10
    assert [check for check in checks if check["error"]] == []
