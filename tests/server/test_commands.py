"""Every command: its help, and one line that names field, value and fix for wrong input."""

import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from engine.core.log.log import EventLog
from server.core.event_log import open_log
from server.gateway import ray_cluster
from server.process import SWITCHES, ServerError, serve_in_background
from tests.facts import assert_names
from tests.server.console import invoke, refused, run
from underglass.commands import app
from underglass.workbook import LESSONS
from visualizer import read
from visualizer.sources import read_source

COMMANDS = get_command(app).commands
# Switches whose opposite means something: a setting of the engine, or a default that is on.
WITH_AN_OPPOSITE = {
    "tell": {"text"},
    "serve": {
        *("chunked_prefill", "preemption", "async_scheduling", "jump_forward"),
        "long_prefill_token_threshold_adaptive",
    },
    "open": {"text", "browser"},
    "listen": {"text", "browser"},
    "lab": {"browser"},
    "report": {"replays"},
}
# Command lines, and what the one line of the error names. {used} is a port and an address in use.
REFUSED = r"""
nosuch                                      | nosuch
serv                                        | serv serve
--nosuch                                    | --nosuch -h
serve --nosuch                              | --nosuch "serve -h"
serve here                                  | here
serve --max-batchsize 3                     | --max-batchsize --max-batch-size
serve --no-train                            | --no-train --train
serve --no-dry-run                          | --no-dry-run --dry-run
kv nowhere                                  | nowhere "Llama 3.1 8B"
kv --kv-dtype int3                          | int3 bfloat16 int8
kv --context 0                              | --context 0 1
serve --port http                           | --port http
serve --port 99999                          | --port 65535 99999
serve --port                                | --port
serve --port {used}                         | --port {used} "choose another"
serve --host 203.0.113.7                    | 203.0.113.7 --host --port
serve --host ''                             | --host 0.0.0.0
serve --drain-seconds soon                  | --drain-seconds soon
serve --drain-seconds inf                   | --drain-seconds inf
serve --max-waiting 0                       | --max-waiting 1 0
serve --log-window 999999999999999999999999 | --log-window 999999999999999999999999
serve --policy random                       | --policy fcfs sjf lpm random
serve --block-size 0                        | --block-size 0
serve --max-kv-tokens 8                     | --max-kv-tokens 8 --block-size 16
serve --trace-file /nowhere/trace.jsonl     | --trace-file /nowhere/trace.jsonl
serve --trace-file file                     | --trace-file file
serve --request-log file                    | --request-log file
serve --model ''                            | --model
serve --model auto                          | --model auto --model-dir
serve --model-dir .                         | --model auto --model-dir
serve --model auto --model-dir nowhere      | --model-dir nowhere
serve --model auto --model-dir . --trace-file x            | --trace-file
serve --model auto --model-dir . --draft-model bundled     | --draft-model --model auto
serve --model auto --model-dir . --dry-run  | --dry-run --model
serve --model bundled --train               | --train --model
serve --train --dry-run                     | --train --dry-run
serve --drafter oracle                      | --drafter prompt-lookup oracle
serve --drafter prompt-lookup --draft-model x              | --drafter --draft-model
serve --drafter prompt-lookup --async-scheduling           | --drafter --async-scheduling
serve --draft-model ''                      | --draft-model
serve --draft-model bundled --async-scheduling             | --draft-model --async-scheduling
serve --draft-length 2                      | --draft-length --drafter --draft-model
serve --api-key ''                          | --api-key
serve --api-key "at the end "               | --api-key
serve --cors-origin https://a.example/      | --cors-origin https://a.example/
serve --cors-origin a.example               | --cors-origin a.example https://example.org
serve --allowed-host http://a.example       | --allowed-host http://a.example
serve --served-model-name ''                | --served-model-name
serve --served-model-name "two words"       | --served-model-name
serve --kv-events 0 --trace-text off        | --kv-events --trace-text
serve --kv-events 0 --model auto --model-dir .             | --kv-events --model
serve --kv-events tcp://127.0.0.1:{used}    | --kv-events tcp://127.0.0.1:{used}
serve --replica ftp://host                  | --replica
serve --replica http://127.0.0.1:1 --token-budget 3        | --token-budget
serve --replica http://127.0.0.1:1 --router psychic        | --router
serve --replica http://127.0.0.1:1 --served-model-name a   | --served-model-name --replica
serve --replicas 0                          | --replicas 1 0
serve --replicas 3 --max-replicas 2         | --max-replicas --replicas 3 2
serve --max-replicas 2                      | --max-replicas "--replicas N"
serve --ray auto                            | --ray "--replicas N"
serve --replicas 2 --replica http://a:1     | --replica --replicas
serve --replicas 2 --kv-events 5557         | --kv-events --replicas --router
serve --replicas 2 --model auto --model-dir .              | --model-dir --replicas
serve --replicas 2 --router nearest         | --router prefix_events nearest
serve --replicas 2 --policy random          | --policy fcfs random
serve --replicas 2 --ray here               | --ray auto HOST:PORT here
serve --replicas 2 --ray 127.0.0.1:{free}   | --ray 127.0.0.1:{free}
class --replicas 2                          | --replicas
class --port x                              | --port x
class --host 127.0.0.1 --port {used}        | --port {used} "choose another"
class --host 203.0.113.7                    | 203.0.113.7 --host
class --host ''                             | --host 0.0.0.0
class --trace-file folder                   | --trace-file folder
class extra                                 | extra
open                                        | FILE...
open nosuch                                 | nosuch preemption
open nosuch.jsonl                           | nosuch.jsonl "No such file"
open preemptio                              | preemptio preemption
open folder                                 | folder "Is a directory"
open hit --port x                           | --port x
open hit --port 65536                       | --port 65535 65536
open hit --no-browser --port {used}         | --port {used} "choose another"
open hit --theme blue                       | --theme light dark blue
open hit --html folder                      | folder
open hit --csv file                         | file "File exists"
open --follow folder                        | --follow folder directory
open --no-follow hit                        | --no-follow --follow
listen                                      | ENDPOINT
listen nosuch                               | endpoint tcp://ADDRESS:PORT nosuch
listen tcp://127.0.0.1:65536                | tcp://ADDRESS:PORT tcp://127.0.0.1:65536
listen tcp://127.0.0.1:5557 --save file     | file
listen tcp://127.0.0.1:5557 --replay x      | replay tcp://ADDRESS:PORT x
lmtp --url ws://127.0.0.1:9                 | ws://127.0.0.1:9 "underglass serve" --url
lmtp --url http://127.0.0.1:9               | http://127.0.0.1:9 "underglass serve"
lmtp --url x.invalid                        | x.invalid "underglass serve" --url
lmtp --url ws://127.0.0.1:65536             | --url ws://127.0.0.1:65536
lmtp --url ''                               | --url ws://localhost:8000
lmtp extra                                  | extra
lab file                                    | DIR file
lab x --port 0                              | --port 1 0
grade                                       | FOLDER
grade nosuch                                | FOLDER nosuch
grade file                                  | FOLDER file
grade folder                                | folder
grade folder --write x.txt                  | --write .csv .html x.txt
grade class --write nosuch/x.csv            | --write nosuch/x.csv
grade folder --jobs 0                       | --jobs 1 0
advise hit                                  | --goal
advise hit --goal fast                      | --goal "p99 ttft < 1s" fast
what-if                                     | FILE
what-if hit                                 | SETTING=VALUE...
what-if hit max_batchsize=8                 | max_batchsize max_batch_size?
what-if nosuch max_batch_size=8             | nosuch
what-if vllm_tigth max_batch_size=8         | vllm_tight
what-if folder max_batch_size=8             | folder directory
why                                         | FILE "why -h"
why hit --missed                            | REQUEST --missed
why hit Nobody                              | Nobody
why folder 1                                | folder directory
why gone.jsonl 1                            | "gone.jsonl: No such file"
why file 1                                  | file
why hit --stuck --step 999                  | step 999
why vllm_tight Ivor                         | "similar: Ivo"
why vllm_tight 77                           | "Ada (r1)" "Ivo (r9)"
why vllm_tight a                            | similar: Eva Hal
why vllm_tight --stuck --missed             | "--missed and --stuck"
why vllm_tight Ivo --step 999               | 999
why vllm_tight Ivo --missed --step 3        | "--missed and --step"
train --tokens 0                            | --tokens 1 0
train --tokens 1                            | tokens 1
train --out file                            | --out file
train --device abc                          | device abc auto cpu
"""
# Variables, and what the line names for `underglass serve`, which it would otherwise start.
VARIABLES = r"""
UNDERGLASS_POLICY=random                    | --policy random UNDERGLASS_POLICY
UNDERGLASS_API_KEY="no header has é"        | --api-key UNDERGLASS_API_KEY
UNDERGLASS_API_KEY=                         | UNDERGLASS_API_KEY
UNDERGLASS_TOKENBUDGET=64                   | UNDERGLASS_TOKENBUDGET UNDERGLASS_TOKEN_BUDGET
UNDERGLASS_TRACEFILE=x                      | UNDERGLASS_TRACEFILE UNDERGLASS_TRACE_FILE
UNDERGLASS_PORT=http                        | --port http UNDERGLASS_PORT
UNDERGLASS_PAUSED=maybe                     | --paused maybe UNDERGLASS_PAUSED
"""


def lines(table: str) -> list[tuple[str, str]]:
    split = (line.split("|") for line in table.strip().splitlines())
    return [(left.strip(), right.strip()) for left, right in split]


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


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as used:
        with socket.create_server(("127.0.0.1", 0)) as free:
            found = {"free": free.getsockname()[1]}
        yield found | {"used": used.getsockname()[1]}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("command", "facts"), lines(REFUSED))
def test_wrong_input_is_one_line(command, facts, ports):
    arguments = shlex.split(command.format(**ports))
    if arguments[0] in ("serve", "class") and "--port" not in arguments:
        arguments += ["--port", "0"]
    done = invoke(*arguments)
    done.stdout = ""  # `grade` has printed its table when it writes the file
    refused(done, *shlex.split(facts.format(**ports)))
    assert "UNDERGLASS" not in done.stderr or "--train" in arguments  # it came from elsewhere


@pytest.mark.parametrize(("setting", "facts"), lines(VARIABLES))
def test_a_wrong_variable_is_named(monkeypatch, setting, facts):
    [(name, _, value)] = [one.partition("=") for one in shlex.split(setting)]
    monkeypatch.setenv(name, value)
    arguments = () if name == "UNDERGLASS_PORT" else ("--port", "0")
    refused(invoke("serve", *arguments), *shlex.split(facts))


@pytest.mark.parametrize("name", ["UNDERGLASS_POLICY", "UNDERGLASS_REQUIRE_BROWSER"])
def test_the_command_line_wins_and_variables_of_other_tools_are_ignored(monkeypatch, name):
    monkeypatch.setenv(name, "fcfs")
    done = invoke("serve", "--port", "0", "--policy", "random")
    refused(done, "--policy", "random")
    assert "UNDERGLASS" not in done.stderr


@pytest.mark.parametrize("name", ["x" * 257, "two\nlines"])
def test_a_name_that_no_request_can_have_is_refused(name):
    refused(invoke("serve", "--port", "0", "--served-model-name", name), "--served-model-name")


@pytest.mark.parametrize(
    ("option", "value", "module", "extra"),
    [("--replicas", "2", "ray", "[cluster]'"), ("--kv-events", "0", "zmq", "[kv-events]'")],
)
def test_a_missing_library_names_the_extra(monkeypatch, option, value, module, extra):
    if module == "ray":
        monkeypatch.setattr(ray_cluster, "find_spec", lambda _name: None)
    else:
        monkeypatch.setitem(sys.modules, "zmq", None)
        monkeypatch.delitem(sys.modules, "server.core.kv_publisher", raising=False)
    refused(invoke("serve", "--port", "0", option, value), option, extra)


def test_two_servers_do_not_write_one_log(tmp_path):
    path = tmp_path / "trace.jsonl"
    running = open_log(path)
    running.write(b'{"type":"run_started"}\n')
    refused(invoke("serve", "--port", "0", "--trace-file", str(path)), "--trace-file", str(path))
    assert path.read_text() == '{"type":"run_started"}\n'
    running.close()
    open_log(path).close()  # it has ended: the name is free


def test_a_corrupt_checkpoint_is_one_line(tmp_path):
    for file in Path("engine/bundled").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    refused(run("serve", "--port", "0", "--model", str(tmp_path)), str(weights))
    answer = run("serve", "--port", "0", UNDERGLASS_DRAFT_MODEL=str(tmp_path))
    refused(answer, "--draft-model", str(weights))


def test_serve_in_background_says_why_it_did_not_start():
    with pytest.raises(ServerError) as failed:
        serve_in_background(policy="random")
    assert_names(str(failed.value), "--policy", "random")


def test_help_does_not_need_torch():
    check = "import underglass.commands, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_a_background_server_knows_the_switches_without_an_opposite():
    serve = COMMANDS["serve"].params
    flags = {one.name for one in serve if getattr(one, "is_flag", False)}
    assert flags - WITH_AN_OPPOSITE["serve"] == SWITCHES


FIXTURES = Path(__file__).parents[1] / "fixtures"
VLLM = FIXTURES / "vllm" / "vllm_tight.jsonl.gz"
OWN = FIXTURES / "logs" / "schema_2_hash.jsonl"


@pytest.mark.parametrize("file", [OWN, VLLM])
def test_each_question_has_the_answer_of_the_log(file):
    log = read_source(file)
    assert isinstance(log, EventLog)
    asked = {
        (): read(log).regimes,
        ("2",): read(log).why_slow(2),
        ("2", "--missed"): read(log).why_missed(2),
        ("--stuck",): read(log).stuck(),
        ("--stuck", "--step", "3"): read(log).stuck(3),
    }
    for arguments, answer in asked.items():
        done = invoke("why", str(file), *arguments)
        assert done.returncode == 0
        assert done.stdout == f"{answer}\n"


def test_a_step_of_a_real_vllm_a_log_of_the_gallery_and_a_part_of_a_label():
    done = invoke("why", str(VLLM), "Ivo", "--step", "88")
    assert done.stdout.startswith("Step 88: Ivo (r9) waits behind Gus (r7)")
    expect = invoke("why", str(VLLM), "Ivo").stdout
    assert invoke("why", "vllm_tight", "Ivo").stdout == expect
    assert invoke("why", "vllm_tight", "Iv").stdout == expect
