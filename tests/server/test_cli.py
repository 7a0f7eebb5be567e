"""The console command: what it prints, what it refuses, and that nothing is left running."""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.main import get_command

from engine.compute import loader, memory
from engine.config import EngineConfig
from engine.events.log import EventLog
from engine.scheduling.policies import POLICIES
from server.cli import app
from server.cli.banner import banner
from server.cli.serving import Start
from server.core.addresses import Address
from server.core.event_log import open_log
from server.core.settings import ServerSettings
from server.process import ServerError, serve_in_background
from tests.facts import assert_names
from tests.server.console import COMMAND, invoke, refused, run
from tests.server.harness import get, http, sse_data


@pytest.fixture(scope="module")
def taken() -> Iterator[str]:
    """A port that another process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield str(listener.getsockname()[1])


def start_with(**fields: object) -> Start:
    """What `underglass serve` would start, with other fields."""
    defaults = dict(
        model="bundled", model_dir=None, max_models=2, train=False, train_steps=None, port=8000
    )
    more = dict(paused=False, trace_file=None, kv_events=None, kv_events_topic="")
    last = dict(request_log="stderr", until_stdin_closes=False)
    return Start(**defaults | more | last | fields)  # type: ignore[arg-type]


@pytest.fixture
def corrupt(tmp_path: Path) -> str:
    """A model directory whose weights are cut off."""
    bundled = Path("engine/bundled")
    for file in bundled.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    return str(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["--policy", "random"], ["--policy", *POLICIES, "random"]),
        (["--eviction", "random"], ["--eviction", "lru", "lfu", "random"]),
        (["--block-size", "0"], ["--block-size", "0"]),
        (["--token-budget", "-1"], ["--token-budget", "-1"]),
        (["--max-kv-tokens", "8"], ["--max-kv-tokens", "8", "--block-size", "16"]),
        (["--batching", "sometimes"], ["--batching", "continuous", "sometimes"]),
        (["--trace-file", "/nowhere/trace.jsonl"], ["--trace-file", "/nowhere/trace.jsonl"]),
        (["--trace-file", "README.md"], ["--trace-file", "README.md"]),
        (["--request-log", "README.md"], ["--request-log", "README.md"]),
        (["--request-log", "/dev/null"], ["--request-log", "/dev/null"]),
        (["--model", "auto"], ["--model", "auto", "--model-dir"]),
        (["--model-dir", "docs"], ["--model", "auto", "--model-dir"]),
        (["--model", "auto", "--model-dir", "/nowhere"], ["--model-dir", "/nowhere"]),
        (["--drafter", "oracle"], ["--drafter", "prompt-lookup", "oracle"]),
        (["--drafter", "prompt-lookup", "--draft-model", "x"], ["--drafter", "--draft-model"]),
        (["--draft-model", ""], ["--draft-model"]),
        (
            ["--draft-model", "bundled", "--async-scheduling"],
            ["--draft-model", "--async-scheduling"],
        ),
        (["--draft-length", "2"], ["--draft-length", "--drafter", "--draft-model"]),
        (["--drafter", "prompt-lookup", "--async-scheduling"], ["--drafter", "--async-scheduling"]),
        (
            ["--model", "auto", "--model-dir", "docs", "--draft-model", "bundled"],
            ["--draft-model", "--model", "auto"],
        ),
        (["--host", ""], ["--host", "0.0.0.0"]),
        (["--model", ""], ["--model"]),
        (["--host", "203.0.113.7"], ["203.0.113.7", "--host"]),
        (["--api-key", ""], ["--api-key"]),
        (["--api-key", "a\nb"], ["--api-key"]),
        (["--api-key", "at the end "], ["--api-key"]),
        (["--cors-origin", "https://a.example/"], ["--cors-origin", "https://a.example/"]),
        (["--cors-origin", "a.example"], ["--cors-origin", "a.example", "https://example.org"]),
        (["--allowed-host", "http://a.example"], ["--allowed-host", "http://a.example"]),
    ],
)
def test_a_wrong_setting_is_one_line(arguments: list[str], facts: list[str]) -> None:
    refused(invoke("serve", "--port", "0", *arguments), *facts)


def test_a_dry_run_states_the_memory_of_both_models() -> None:
    done = invoke("serve", "--dry-run", "--draft-model", "bundled")
    assert done.returncode == 0
    assert_names(done.stdout, "bundled needs", "2048 tokens", "draft model bundled")


def test_a_dry_run_rejects_a_draft_model_that_fits_only_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = loader.plan("bundled", EngineConfig()).needed
    monkeypatch.setattr(memory, "available_bytes", lambda device: needed + needed // 2)
    assert invoke("serve", "--dry-run").returncode == 0
    done = invoke("serve", "--dry-run", "--draft-model", "bundled")
    assert done.returncode == 2
    assert_names(done.stderr, "underglass:", "bundled needs")


@pytest.mark.parametrize("other", [["--train"], ["--model", "auto", "--model-dir", "engine"]])
def test_a_dry_run_is_of_one_model(other: list[str]) -> None:
    refused(invoke("serve", "--dry-run", *other), "--dry-run", other[0])


def test_two_servers_do_not_write_one_log(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    running = open_log(path)
    running.write(b'{"type":"run_started"}\n')
    refused(invoke("serve", "--port", "0", "--trace-file", str(path)), "--trace-file", str(path))
    assert path.read_text() == '{"type":"run_started"}\n'
    running.close()
    open_log(path).close()  # it has ended: the name is free


def test_a_port_in_use_is_one_line(taken: str) -> None:
    refused(invoke("serve", "--port", taken), taken, "--port")


def test_a_corrupt_checkpoint_is_one_line(corrupt: str) -> None:
    refused(run("serve", "--port", "0", "--model", corrupt), f"{corrupt}/model.safetensors")
    answer = run("serve", "--port", "0", "--draft-model", corrupt)
    refused(answer, "--draft-model", f"{corrupt}/model.safetensors")


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["serve", "--port", "http"], ["--port", "http"]),
        (["serve", "--port", "99999"], ["--port", 65535, 99999]),
        (["serve", "--port"], ["--port"]),
        (["serve", "--drain-seconds", "soon"], ["--drain-seconds", "soon"]),
        (["serve", "--drain-seconds", "inf"], ["--drain-seconds", "inf"]),
        (["serve", "--stuck-seconds", "nan"], ["--stuck-seconds", "nan"]),
        (["serve", "--max-waiting", "0"], ["--max-waiting", 1, 0]),
        (["serve", "--log-window", "9" * 30], ["--log-window", "9" * 30]),
        (["serve", "--no-such-option"], ["--no-such-option", "serve -h"]),
        (["serve", "here"], ["here"]),
        (["train", "--tokens", "0"], ["--tokens", 1, 0]),
        (["serv"], ["serv", "serve"]),
        (["--no-such-option"], ["--no-such-option", "-h"]),
    ],
)
def test_a_wrong_option_is_one_line_and_exits_with_two(
    arguments: list[str], facts: list[object]
) -> None:
    done = invoke(*arguments)
    refused(done, *facts)
    assert "UNDERGLASS" not in done.stderr  # it did not come from there


def test_settings_come_from_the_environment() -> None:
    refused(run("serve", "--port", "0", UNDERGLASS_POLICY="random"), "--policy", "random")


@pytest.mark.parametrize(
    ("variable", "value", "facts"),
    [
        ("UNDERGLASS_POLICY", "random", ["--policy", "random", "UNDERGLASS_POLICY"]),
        ("UNDERGLASS_API_KEY", "no header has é", ["--api-key", "UNDERGLASS_API_KEY"]),
        ("UNDERGLASS_API_KEY", "", ["UNDERGLASS_API_KEY"]),
        ("UNDERGLASS_TOKENBUDGET", "64", ["UNDERGLASS_TOKENBUDGET", "UNDERGLASS_TOKEN_BUDGET"]),
        ("UNDERGLASS_TRACEFILE", "x", ["UNDERGLASS_TRACEFILE", "UNDERGLASS_TRACE_FILE"]),
    ],
)
def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, facts: list[str]
) -> None:
    monkeypatch.setenv(variable, value)
    refused(invoke("serve", "--port", "0"), *facts)


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERGLASS_POLICY", "fcfs")
    done = invoke("serve", "--port", "0", "--policy", "random")
    refused(done, "--policy", "random")
    assert "UNDERGLASS" not in done.stderr


def test_a_value_of_the_wrong_kind_names_option_and_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UNDERGLASS_PORT", "http")
    refused(invoke("serve"), "--port", "http", "UNDERGLASS_PORT")


def test_a_switch_in_the_environment_is_true_or_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERGLASS_PAUSED", "maybe")
    refused(invoke("serve"), "--paused", "maybe", "UNDERGLASS_PAUSED")


@pytest.mark.parametrize("variable", ["UNDERGLASS_REQUIRE_BROWSER", "UNDERGLASS_REVEAL"])
def test_unrelated_underglass_environment_variables_are_ignored(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "1")
    refused(invoke("serve", "--port", "0", "--policy", "random"), "--policy")


def test_help_fits_into_eighty_columns_and_every_option_has_its_variable() -> None:
    done = run("serve", "--help", COLUMNS="80")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\u2502" not in done.stdout  # no boxes
    command = get_command(app).commands["serve"]
    assert command.context_settings["auto_envvar_prefix"] == "UNDERGLASS"
    sections = {one.rich_help_panel for one in command.params if not one.hidden}
    assert len(sections) > 3
    assert all(f"{section}:" in done.stdout for section in sections if section)
    for parameter in command.params:
        if not parameter.hidden and parameter.name != "help":
            assert parameter.allow_from_autoenv


def test_the_list_of_commands_breaks_off_nowhere() -> None:
    shown = run("--help", COLUMNS="80").stdout
    for name, command in get_command(app).commands.items():
        assert re.search(rf"^ +{name} +{re.escape(command.short_help)}$", shown, re.MULTILINE)


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
            assert re.search(r"\bbundled\b.* http://127\.0\.0\.1:\d+$", lines[0])
            [at] = [index for index, line in enumerate(lines) if line.strip().startswith("curl ")]
            command = "".join(lines[at : at + 2])
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


URL = "http://127.0.0.1:8000"


def rows(settings: ServerSettings, **start: object) -> dict[str, str]:
    """The banner's rows by their name."""
    text = banner(settings, URL, EngineConfig(), start_with(**start))
    split = [line.strip().split("  ", 1) for line in text.splitlines() if line.startswith("  ")]
    return {name: text.strip() for name, text in (row for row in split if len(row) == 2)}


def test_the_banner_names_the_directory_of_further_models() -> None:
    added = rows(ServerSettings(), model_dir=Path("/shelf"))
    assert_names(added["more models"], f"{URL}/v1/models", "/shelf")
    assert added.keys() - rows(ServerSettings()).keys() == {"more models"}


def test_the_banner_says_where_the_logs_are() -> None:
    told = rows(ServerSettings(), trace_file=Path("a.jsonl"), request_log="b.jsonl")
    assert_names(told["trace file"], "a.jsonl")
    assert_names(told["request log"], "b.jsonl")
    assert_names(rows(ServerSettings(), request_log="off")["request log"], "off")


@pytest.mark.parametrize("key", [None, "secret"])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_banner_says_who_can_use_the_server(
    host: str, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lan = [Address("192.168.1.20", "wlan0"), Address("10.0.0.7", "eth0")]
    monkeypatch.setattr(
        "server.cli.banner.network_addresses", lambda host: lan if host == "0.0.0.0" else []
    )
    settings = ServerSettings(host=host, api_key=key)
    text = banner(settings, URL, EngineConfig(), start_with())
    for one in lan:
        assert (one.url(8000) in text) == (host == "0.0.0.0")
    assert ("Any machine" in text) == (host == "0.0.0.0" and key is None)
    assert ("asks for the key" in rows(settings)["live page"]) == (key is not None)
    assert (f"Bearer {key}" in text) == (key is not None)


def test_the_pages_of_the_banner_open() -> None:
    """Also those of which it says that they need no key."""
    open_paths = ("/", "/docs", "/health", "/ready", "/ping")
    with (
        serve_in_background(paused=True, api_key="secret", request_log="off") as server,
        http(server.url) as client,
    ):
        told = {path: client.get(path).status_code for path in (*open_paths, "/metrics")}
    assert told == dict.fromkeys(open_paths, 200) | {"/metrics": 401}


def test_the_banner_names_the_drafter() -> None:
    for field, name in (("drafter", "prompt-lookup"), ("draft_model", "small")):
        start = start_with(**{field: name}, draft_length=3)
        text = banner(ServerSettings(), "http://127.0.0.1:8000", EngineConfig(), start)
        assert_names(text, name, 3)


def test_the_banner_of_a_paused_engine_says_so() -> None:
    paused, running = (
        banner(ServerSettings(), URL, EngineConfig(), start_with(paused=is_paused))
        for is_paused in (True, False)
    )
    assert "paused" in paused
    assert "paused" not in running
    assert_names(running, EngineConfig().max_kv_tokens, EngineConfig().num_blocks)


def test_serve_in_background_says_why_it_did_not_start() -> None:
    with pytest.raises(ServerError) as failed:
        serve_in_background(policy="random")
    assert_names(str(failed.value), "--policy", "random")
