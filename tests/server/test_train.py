"""`underglass serve --train`: trained first, then served like any other model."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.process import BackgroundServer
from tests.server.harness import curl, forked, get, post, serve_forked, sse_data


@pytest.fixture(scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def server(temporary: Path) -> Iterator[BackgroundServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        with serve_forked(train=True, train_steps=20) as server:
            yield server
    assert server.process.returncode == 0


def test_it_is_trained_when_it_is_ready_and_leaves_nothing_behind(server, temporary):
    assert "20/20" in server.output()
    assert "loss=" in server.output()
    assert get(server.url, "/ready") == {"status": "ready", "trace_error": ""}
    assert [model["id"] for model in get(server.url, "/v1/models")["data"]] == ["nanogpt"]
    assert list(temporary.glob("underglass-*")) == []


def test_the_trained_model_streams_to_curl(server):
    body = '{"prompt": "Once upon a time there was a fox", "max_tokens": 40, "ignore_eos": true}'
    *tokens, last = sse_data(curl(server.url, body).communicate(timeout=60)[0].decode())
    assert len(tokens) == 40
    assert "".join(event["token"] for event in tokens) == last["full_text"]


def test_chat_is_a_400_that_names_its_messages(server):
    body = {"messages": [{"role": "user", "content": "Hello"}]}
    answer = post(server.url, "/v1/chat/completions", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages"


def test_ctrl_c_during_the_training_ends_it_at_once(tmp_path):
    arguments = ["serve", "--train", "--port", "0", "--train-steps", "100000"]
    errors, stderr = os.pipe()
    process = forked("underglass.commands", *arguments, stderr=stderr, TMPDIR=str(tmp_path))
    os.close(stderr)
    seen = b""
    with os.fdopen(errors, "rb") as said, process.stdout as output:
        while b"loss=" not in seen:  # the training is under way
            received = said.read1(4096)
            assert received, seen
            seen += received
        assert list(tmp_path.glob("underglass-*"))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT
        assert b"Traceback" not in said.read()
        assert output.read() == b""
    assert list(tmp_path.glob("underglass-*")) == []
