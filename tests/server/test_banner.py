"""The banner of a server that starts: its curl works, and it says where everything is."""

import socket
import subprocess
import sys

import httpx
import pytest

from engine.core.config import EngineConfig
from engine.core.log.log import EventLog
from server.banner import banner
from server.core.adapters import ALLOWED
from server.core.addresses import Address
from server.core.settings import ServerSettings, Start
from tests.server.harness import ForkedServer, get, sse_data


def start_with(**fields: object) -> Start:
    """What `underglass serve` would start, with other fields."""
    defaults = dict(
        model="bundled", model_dir=None, max_models=2, train=False, train_steps=None, port=8000
    )
    more = dict(paused=False, trace_file=None, kv_events=None, kv_events_topic="")
    last = dict(request_log="stderr", until_stdin_closes=False)
    return Start(**defaults | more | last | fields)  # type: ignore[arg-type]


def test_the_banner_has_a_curl_that_works(tmp_path):
    """As a person starts it: the banner's command, pasted into a shell, streams tokens."""
    trace = tmp_path / "trace.jsonl"
    options = ["--port", "0", "--trace-file", str(trace), "--api-key", "the teacher's"]
    with ForkedServer("underglass.commands", "serve", *options) as server:
        lines = [server.process.stdout.readline().decode() for _ in range(8)]
        [at] = [index for index, line in enumerate(lines) if line.strip().startswith("curl ")]
        command = "".join(lines[at : at + 2])
        output = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        *tokens, last = sse_data(output)
        assert "".join(event["token"] for event in tokens) == last["full_text"] != ""
    assert server.process.returncode == 0
    assert len(EventLog.load(trace)) > 10


def test_a_server_whose_output_is_closed_serves():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = 'exec "$0" -m underglass serve --port "$1" --until-stdin-closes >&- 2>&-'
    started = ["sh", "-c", command, sys.executable, port]
    with subprocess.Popen(started, stdin=subprocess.PIPE) as process:
        until_answered(f"http://127.0.0.1:{port}", process)
        assert get(f"http://127.0.0.1:{port}", "/nowhere")["error"]["code"] == "not_found"
    assert process.returncode == 0  # its stdin was closed with the block


def until_answered(url: str, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            get(url, "/ready")
        except httpx.ConnectError:
            continue
        return


URL = "http://127.0.0.1:8000"


def rows(settings: ServerSettings, **start: object) -> dict[str, str]:
    text = banner(settings, URL, EngineConfig(), start_with(**start))
    split = [line.strip().split("  ", 1) for line in text.splitlines() if line.startswith("  ")]
    return {name: text.strip() for name, text in (row for row in split if len(row) == 2)}


@pytest.mark.parametrize("key", [None, "secret"])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_banner_says_who_can_use_the_server(host, key, monkeypatch):
    lan = [Address("192.168.1.20", "wlan0"), Address("10.0.0.7", "eth0")]
    monkeypatch.setattr(
        "server.banner.network_addresses", lambda host: lan if host == "0.0.0.0" else []
    )
    settings = ServerSettings(host=host, api_key=key)
    text = banner(settings, URL, EngineConfig(), start_with())
    for one in lan:
        assert (one.url(8000) in text) == (host == "0.0.0.0")
    assert ("Any machine" in text) == (host == "0.0.0.0" and key is None)
    monkeypatch.setenv(ALLOWED, "1")
    assert ALLOWED in banner(settings, URL, EngineConfig(), start_with())
    assert ("asks for the key" in rows(settings)["live page"]) == (key is not None)
    assert (f"Bearer {key}" in text) == (key is not None)
