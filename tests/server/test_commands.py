"""Every command: its help, and one line that names field, value and fix for wrong input."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from engine.events.vocabulary import RunStarted
from server.cli import app
from server.process import SWITCHES, serve_in_background
from tests.server.console import invoke, refused
from tests.server.harness import get, trace
from underglass.workbook import LESSONS

COMMANDS = get_command(app).commands
# Switches whose opposite means something: a setting of the engine, or a default that is on.
WITH_AN_OPPOSITE = {
    "serve": {"chunked_prefill", "preemption", "async_scheduling", "jump_forward"},
    "open": {"text", "browser"},
    "listen": {"text", "browser"},
    "lab": {"browser"},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file, an empty file, an empty folder and a class's notebook."""
    (tmp_path / "file").write_text("garbage\n")
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "class").mkdir()
    notebook = (LESSONS / "04_continuous_batching.ipynb").read_bytes()
    (tmp_path / "class" / "04_continuous_batching_ada.ipynb").write_bytes(notebook)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield str(listener.getsockname()[1])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_reads_well(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = COMMANDS[name]
    monkeypatch.setenv("COLUMNS", "80")
    done = invoke(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    usage = done.stdout.splitlines()[0]
    assert f" {name} [OPTIONS]" in usage
    assert "{" not in done.stdout and "]]" not in usage
    assert max(map(len, done.stdout.splitlines())) <= 80
    switches = {one.name for one in command.params if getattr(one, "secondary_opts", ())}
    assert switches == WITH_AN_OPPOSITE.get(name, set())


def test_a_background_server_knows_the_switches_without_an_opposite() -> None:
    serve = COMMANDS["serve"].params
    flags = {one.name for one in serve if getattr(one, "is_flag", False)}
    assert flags - WITH_AN_OPPOSITE["serve"] == SWITCHES


def test_false_leaves_a_switch_off_and_turns_a_setting_off() -> None:
    off = dict.fromkeys(SWITCHES | {"chunked_prefill"}, False)
    with serve_in_background(request_log="off", **off) as server:
        assert get(server.url, "/health")["paused"] is False
        assert trace(server.url).of(RunStarted)[0].settings["chunked_prefill"] is False


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["nosuch"], ["nosuch"]),
        (["serv"], ["serv", "serve"]),
        (["--nosuch"], ["--nosuch"]),
        (["serve", "--max-batchsize", "3"], ["--max-batchsize", "--max-batch-size"]),
        (["serve", "--no-train"], ["--no-train", "--train"]),
        (["serve", "--no-dry-run"], ["--no-dry-run", "--dry-run"]),
        (["serve", "--host", "203.0.113.7"], ["203.0.113.7", "--host", "--port"]),
        (["class", "--port", "x"], ["--port", "x"]),
        (["class", "--host", "203.0.113.7"], ["203.0.113.7", "--host"]),
        (["class", "--host", ""], ["--host", "0.0.0.0"]),
        (["class", "--trace-file", "folder"], ["--trace-file", "folder"]),
        (["class", "extra"], ["extra"]),
        (["open"], ["FILE..."]),
        (["open", "nosuch"], ["nosuch", "preemption"]),
        (["open", "preemptio"], ["preemptio", "preemption"]),
        (["open", "empty"], ["empty"]),
        (["open", "folder"], ["folder"]),
        (["open", "file"], ["file", "line 1", "garbage"]),
        (["open", "hit", "--port", "x"], ["--port", "x"]),
        (["open", "hit", "--port", "65536"], ["--port", 65535, 65536]),
        (["open", "hit", "--theme", "blue"], ["--theme", "light", "dark", "blue"]),
        (["open", "hit", "--html", "folder"], ["folder"]),
        (["open", "hit", "--csv", "file"], ["file"]),
        (["open", "--follow", "folder"], ["--follow", "folder"]),
        (["open", "--no-follow", "hit"], ["--no-follow", "--follow"]),
        (["listen"], ["ENDPOINT"]),
        (["listen", "nosuch"], ["endpoint", "tcp://ADDRESS:PORT", "nosuch"]),
        (["listen", "tcp://127.0.0.1:65536"], ["tcp://ADDRESS:PORT", "tcp://127.0.0.1:65536"]),
        (["listen", "tcp://127.0.0.1:5557", "--save", "file"], ["file"]),
        (
            ["listen", "tcp://127.0.0.1:5557", "--replay", "x"],
            ["replay", "tcp://ADDRESS:PORT", "x"],
        ),
        (["lmtp", "--url", "ws://127.0.0.1:9"], ["ws://127.0.0.1:9", "underglass serve", "--url"]),
        (["lmtp", "--url", "http://127.0.0.1:9"], ["http://127.0.0.1:9", "underglass serve"]),
        (["lmtp", "--url", "x.invalid"], ["x.invalid", "underglass serve", "--url"]),
        (["lmtp", "--url", "ws://127.0.0.1:65536"], ["--url", "ws://127.0.0.1:65536"]),
        (["lmtp", "--url", ""], ["--url", "ws://localhost:8000"]),
        (["lmtp", "extra"], ["extra"]),
        (["lab", "file"], ["DIR", "file"]),
        (["lab", "x", "--port", "0"], ["--port", 1, 0]),
        (["grade"], ["FOLDER"]),
        (["grade", "nosuch"], ["FOLDER", "nosuch"]),
        (["grade", "file"], ["FOLDER", "file"]),
        (["grade", "folder"], ["folder"]),
        (["grade", "folder", "--write", "x.txt"], ["--write", ".csv", ".html", "x.txt"]),
        (["grade", "class", "--write", "nosuch/x.csv"], ["--write", "nosuch/x.csv"]),
        (["grade", "folder", "--jobs", "0"], ["--jobs", 1, 0]),
        (["what-if"], ["FILE"]),
        (["what-if", "hit"], ["SETTING=VALUE..."]),
        (["what-if", "hit", "max_batchsize=8"], ["max_batchsize", "did you mean max_batch_size?"]),
        (["what-if", "hit", "colour=8"], ["colour", "token_budget", "jump_forward"]),
        (["what-if", "hit", "max_batch_size=x"], ["max_batch_size", 1, "x"]),
        (["what-if", "hit", "max_batch_size="], ["max_batch_size", "max_batch_size=VALUE"]),
        (["what-if", "nosuch", "max_batch_size=8"], ["nosuch"]),
        (["what-if", "empty", "max_batch_size=8"], ["empty"]),
        (["what-if", "hit", "policy=random", "--arrivals", "x"], ["--arrivals", "time", "x"]),
        (["why"], ["FILE"]),
        (["why", "hit"], ["REQUEST", "--stuck"]),
        (["why", "hit", "Nobody"], ["Nobody"]),
        (["why", "folder", "1"], ["folder"]),
        (["why", "hit", "--stuck", "--step", "999"], ["step", 999]),
        (["train", "--tokens", "0"], ["--tokens", 1, 0]),
        (["train", "--tokens", "1"], ["tokens", 1]),
        (["train", "--out", "file"], ["--out", "file"]),
        (["train", "--device", "abc"], ["device", "abc", "auto", "cpu"]),
    ],
)
def test_wrong_input_is_one_line(arguments: list[str], facts: list[object]) -> None:
    done = invoke(*arguments)
    done.stdout = ""  # `grade` has printed its table when it writes the file
    refused(done, *facts)


@pytest.mark.parametrize(
    "command", [["serve"], ["class", "--host", "127.0.0.1"], ["open", "hit", "--no-browser"]]
)
@pytest.mark.usefixtures("folder")
def test_a_port_in_use_is_one_line(command: list[str], taken: str) -> None:
    refused(invoke(*command, "--port", taken), taken, "--port", "choose another")
