"""The clients that are installed here, against servers with the bundled model.

OpenAI's Python SDK comes with the project's dev extra, and `make test` installs the Node clients. The
others run in environments of their own, by `make clients`; here the bodies that they sent are sent
again.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.__main__ import CLIENTS, run, start_servers
from tests.clients.checks import Servers
from tests.clients.environments import BUILD
from tests.clients.openai_session import session
from tests.clients.recording import RECORDED
from tests.server.harness import http, serve_forked


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    empty: Path = tmp_path_factory.mktemp("models")
    with ExitStack() as stack:
        yield start_servers(stack, empty, serve_forked)


@pytest.mark.parametrize("name", session.checks)
def test_openais_python_sdk_is_served(servers, name):
    session.checks[name](servers)


@pytest.mark.parametrize("name", ["openai-node", "ai-sdk"])
def test_node_clients_are_served(servers, name):
    if not (BUILD / "node" / "node_modules").is_dir():
        pytest.skip("the Node clients are not installed: python -m tests.clients.environments node")
    checks = run(CLIENTS[name], servers)
    assert len(checks) > 10
    assert [check for check in checks if check["error"]] == []


def bodies() -> Iterator[tuple[str, str]]:
    """(client, body): each body once, and none that OpenAI's SDK has just sent."""
    sent = set()
    for path in sorted(RECORDED.glob("*.jsonl"), key=lambda path: path.stem != "openai"):
        for line in path.read_text().splitlines():
            body = json.dumps(json.loads(line), sort_keys=True)
            if path.stem != "openai" and body not in sent:
                yield path.stem, body
            sent.add(body)


@pytest.mark.parametrize("client", sorted({client for client, _ in bodies()}))
def test_bodies_that_clients_sent_are_served(servers, client):
    for body in (body for name, body in bodies() if name == client):
        request = json.loads(body)
        with http(servers.url) as connection:
            answer = connection.post(request["path"], json=request["body"])
        assert answer.status_code == 200, (answer.text, body)
