"""The console command: what it prints, what it refuses, and that nothing is left running."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from engine.events.log import EventLog
from server.banner import banner
from server.cli import app
from server.log_files import open_log
from server.process import ServerError, serve_in_background
from server.settings import ServerSettings
from tests.server.harness import get, sse_data

COMMAND = [sys.executable, "-m", "server.cli"]


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
        check=False,
    )


def invoke(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The same without a process of its own, for what ends before anything is started."""
    done = CliRunner().invoke(app, arguments)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def taken() -> Iterator[str]:
    """A port that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield str(listener.getsockname()[1])


@pytest.fixture
def corrupt(tmp_path: Path) -> str:
    """A model directory whose weights are cut off."""
    bundled = Path("engine/bundled")
    for file in bundled.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    return str(tmp_path)


def refused(done: "subprocess.CompletedProcess[str]", *words: str) -> None:
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in ("underglass: ", *words):
        assert word in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "random"], ["--policy", "fcfs, priority, sjf, lpm, fair", "random"]),
        (["--eviction", "random"], ["--eviction", "lru, lfu", "random"]),
        (["--block-size", "0"], ["--block-size must", "0"]),
        (["--token-budget", "-1"], ["--token-budget must"]),
        (["--max-kv-tokens", "8"], ["--max-kv-tokens (8)", "lower --block-size (16)"]),
        (["--batching", "sometimes"], ["--batching", "continuous"]),
        (["--trace-file", "/nowhere/trace.jsonl"], ["--trace-file", "No such file"]),
        (["--trace-file", "README.md"], ["--trace-file", "README.md", "no log"]),
        (["--request-log", "README.md"], ["--request-log", "README.md", "no log"]),
        (["--request-log", "/dev/null"], ["--request-log", "plain file"]),
        (["--model", "auto"], ["--model auto", "--model-dir"]),
        (["--model-dir", "docs"], ["--model auto", "--model-dir"]),
        (["--model", "auto", "--model-dir", "/nowhere"], ["/nowhere is not a directory"]),
        (["--host", ""], ["--host must be an address", "0.0.0.0"]),
        (["--model", ""], ["--model is empty"]),
        (["--host", "203.0.113.7"], ["203.0.113.7", "--host"]),
        (["--api-key", ""], ["--api-key", "empty"]),
        (["--api-key", "a\nb"], ["--api-key"]),
        (["--api-key", "at the end "], ["--api-key"]),
        (["--cors-origin", "https://a.example/"], ["--cors-origin", "without a path"]),
        (["--cors-origin", "a.example"], ["--cors-origin", "https://"]),
        (["--allowed-host", "http://a.example"], ["--allowed-host", "http://a.example"]),
    ],
)
def test_a_wrong_setting_is_one_line(arguments: list[str], words: list[str]) -> None:
    refused(invoke("serve", "--port", "0", *arguments), *words)


def test_two_servers_do_not_write_one_log(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    running = open_log(path)
    running.write(b'{"type":"run_started"}\n')
    refused(
        invoke("serve", "--port", "0", "--trace-file", str(path)), "--trace-file", "another server"
    )
    assert path.read_text() == '{"type":"run_started"}\n'
    running.close()
    open_log(path).close()  # it has ended: the name is free


def test_a_port_in_use_is_one_line(taken: str) -> None:
    refused(invoke("serve", "--port", taken), taken, "Address already in use", "--port")


def test_a_corrupt_checkpoint_is_one_line(corrupt: str) -> None:
    refused(run("serve", "--port", "0", "--model", corrupt), "model.safetensors", "damaged")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve", "--port", "http"], ["--port must be a whole number, got 'http'"]),
        (["serve", "--port", "99999"], ["--port must be at most 65535, got 99999"]),
        (["serve", "--port"], ["--port"]),
        (["serve", "--drain-seconds", "soon"], ["--drain-seconds must be a number"]),
        (["serve", "--drain-seconds", "inf"], ["--drain-seconds must be at most"]),
        (["serve", "--stuck-seconds", "nan"], ["--stuck-seconds must be at"]),
        (["serve", "--max-waiting", "0"], ["--max-waiting must be at least 1, got 0"]),
        (["serve", "--log-window", "9" * 30], ["--log-window must be at most"]),
        (
            ["serve", "--no-such-option"],
            ["no such option: --no-such-option", "serve -h helps"],
        ),
        (["serve", "here"], ["unexpected extra argument", "here"]),
        (["train", "--tokens", "0"], ["--tokens must be at least 1"]),
        (["serv"], ["no such command 'serv'. Did you mean 'serve'?"]),
        (["--no-such-option"], ["no such option"]),
    ],
)
def test_a_wrong_option_is_one_line_and_exits_with_two(
    arguments: list[str], words: list[str]
) -> None:
    done = invoke(*arguments)
    refused(done, *words)
    assert "UNDERGLASS" not in done.stderr  # it did not come from there


def test_settings_come_from_the_environment() -> None:
    refused(run("serve", "--port", "0", UNDERGLASS_POLICY="random"), "policy")


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("UNDERGLASS_POLICY", "random", ["--policy", "random", "(from UNDERGLASS_POLICY)"]),
        ("UNDERGLASS_API_KEY", "no header has é", ["--api-key", "(from UNDERGLASS_API_KEY)"]),
        ("UNDERGLASS_API_KEY", "", ["UNDERGLASS_API_KEY is empty"]),
        ("UNDERGLASS_TOKENBUDGET", "64", ["UNDERGLASS_TOKENBUDGET", "UNDERGLASS_TOKEN_BUDGET"]),
        ("UNDERGLASS_TRACEFILE", "x", ["UNDERGLASS_TRACEFILE", "UNDERGLASS_TRACE_FILE"]),
    ],
)
def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: list[str]
) -> None:
    monkeypatch.setenv(variable, value)
    refused(invoke("serve", "--port", "0"), *words)


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERGLASS_POLICY", "fcfs")
    done = invoke("serve", "--port", "0", "--policy", "random")
    refused(done, "policy", "random")
    assert "UNDERGLASS" not in done.stderr


def test_a_value_of_the_wrong_kind_names_option_and_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UNDERGLASS_PORT", "http")
    refused(invoke("serve"), "--port must be a whole number, got 'http' (from UNDERGLASS_PORT)")


def test_a_switch_in_the_environment_is_true_or_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERGLASS_PAUSED", "maybe")
    refused(invoke("serve"), "--paused must be true or false", "(from UNDERGLASS_PAUSED)")


def test_what_somebody_else_calls_underglass_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERGLASS_REQUIRE_BROWSER", "1")
    refused(invoke("serve", "--port", "0", "--policy", "random"), "policy")


def test_help_fits_into_eighty_columns_and_every_option_has_its_variable() -> None:
    done = run("serve", "--help", COLUMNS="80")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\u2502" not in done.stdout  # no boxes
    for section in ("Server:", "Model:", "Engine:", "Event log:"):
        assert section in done.stdout
    command = get_command(app).commands["serve"]
    for parameter in command.params:
        if not parameter.hidden and parameter.name != "help":
            assert parameter.envvar == f"UNDERGLASS_{parameter.name.upper()}"


def test_the_list_of_commands_breaks_off_nowhere() -> None:
    commands = run("--help", COLUMNS="80").stdout.partition("Commands:")[2]
    assert "Serve a model over HTTP." in commands
    assert "..." not in commands


def test_help_names_every_setting_and_does_not_need_torch() -> None:
    done = run("serve", "--help", COLUMNS="200")
    assert done.returncode == 0
    for name in ("--token-budget", "--policy", "UNDERGLASS_MAX_KV_TOKENS", "--trace-file"):
        assert name in done.stdout
    check = "import server.cli, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_the_banner_has_a_curl_that_works(tmp_path: Path) -> None:
    """As a person starts it: the banner's command, pasted into a shell, streams tokens."""
    trace = tmp_path / "trace.jsonl"
    serve = [
        *COMMAND,
        "serve",
        "--port",
        "0",
        "--trace-file",
        str(trace),
        "--api-key",
        "the teacher's",
    ]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = [process.stdout.readline() for _ in range(9)]
            assert lines[0].startswith("Underglass serves bundled at http://127.0.0.1:")
            command = "".join(lines[2:4])
            assert command.strip().startswith("curl -N ")
            output = subprocess.run(
                ["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True
            ).stdout
            *tokens, last = sse_data(output)
            assert "".join(event["token"] for event in tokens) == last["full_text"] != ""
        finally:
            process.terminate()
    assert process.returncode == 0
    assert len(EventLog.load(trace)) > 10


def test_a_server_whose_output_is_closed_serves() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = 'exec "$0" -m server.cli serve --port "$1" --until-stdin-closes >&- 2>&-'
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


def test_the_banner_names_the_directory_of_further_models() -> None:
    told = banner(ServerSettings(), "http://127.0.0.1:8000", Path("/models"))
    assert "http://127.0.0.1:8000/v1/models lists those of /models" in told
    assert "further models" not in banner(ServerSettings(), "http://127.0.0.1:8000")


def test_serve_in_background_says_why_it_did_not_start() -> None:
    with pytest.raises(ServerError, match="policy must be one of"):
        serve_in_background(policy="random")
