"""The request log: one true line per request, whatever its sender puts into it; ids in responses."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.core.engine import Engine
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import RequestArrived, RequestFinished, StepFinished
from engine.core.sampling_params import SamplingParams, StructuredOutput
from engine.simulation.workload import Workload
from server import serving
from server.core.event_log import open_log
from server.core.settings import ServerSettings
from server.http.request_log import LogWriter
from server.process import BackgroundServer
from tests.facts import assert_names
from tests.server.bridges import alphabet
from tests.server.harness import Caller, Feed, fetch, get, http, post, sse_data, start, trace, watch
from visualizer import read
from visualizer.reading.without_text import without_text


def lines_of(server: BackgroundServer, path: Path) -> list[dict[str, Any]]:
    """The whole log; the server is stopped, so that everything is written."""
    server.stop()
    text = path.read_text(encoding="ascii")
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_says_what_the_event_log_says(serve, tmp_path):
    path = tmp_path / "requests.jsonl"
    server = serve(request_log=str(path))
    prompt = "forty-one letters that nobody else sends"
    body = {"prompt": prompt, "max_tokens": 5}
    headers = {"X-Client": "Ada", "X-Request-Id": "lab/7"}
    streams = [sse_data(post(server.url, "/v1/completions", body, **headers).text) for _ in "12"]
    log = trace(server.url)
    first, second, third = lines_of(server, path)
    assert third["route"] == "/trace"
    assert "requests" not in third
    lines = zip((first, second), log.of(RequestArrived), (0, 32), streams, strict=True)
    for line, arrived, cached, stream in lines:
        assert (line["id"], line["from"], line["label"]) == ("lab/7", "127.0.0.1", "Ada")
        assert (line["method"], line["route"], line["status"]) == ("POST", "/v1/completions", 200)
        assert line["requests"] == [arrived.request]
        assert line["prompt_tokens"] == len(arrived.prompt)
        assert (line["cached_tokens"], line["output_tokens"]) == (cached, 5)
        assert line["finish"] == ["length"]
        steps = [
            s for s in log.of(StepFinished) if any(t.request == arrived.request for t in s.tokens)
        ]
        ttft_ms = (steps[0].t["end"] - arrived.t["at"]) / 1000
        assert line["ttft_ms"] == stream[0]["ttft_ms"] == ttft_ms
        assert line["duration_ms"] > 0
    assert prompt not in path.read_text()


def test_refused_failed_and_abandoned_requests_have_lines(serve, tmp_path):
    path = tmp_path / "requests.jsonl"
    server = serve(request_log=str(path), paused=True)
    url = server.url
    post(url, "/v1/completions", {"prompt": "x", "max_tokens": -1})
    get(url, "/v1/nothing")
    get(url, "/health")  # a watcher's routine is not worth a line
    with watch(url) as feed:
        whole = feed.queued({"prompt": "x", "n": 2, "stream": False})
        whole.close()
        feed.until_kind(RequestFinished)
        stream = feed.queued({"prompt": "x"})
        stream.reset()
        feed.until_kind(RequestFinished)
        post(url, "/engine/resume")
        failing = {"X-Client": "fail-after-1"}
        post(url, "/v1/completions", {"prompt": "x", "n": 2, "stream": False}, **failing)
    lines = lines_of(server, path)
    told = [(line["route"], line["status"], line.get("finish")) for line in lines]
    assert ("/v1/completions", 400, None) in told
    assert ("/v1/nothing", 404, None) in told
    assert ("/v1/completions", 499, ["abort", "abort"]) in told
    assert ("/v1/completions", 200, ["abort"]) in told
    assert ("/v1/completions", 500, ["error", "abort"]) in told
    assert "/health" not in {line["route"] for line in lines}


NASTY = 'x"}\n{"time": "now", "status": 200}\r\n\x1b[31m\x9b31m\u2028\u202e\x00'


def test_nothing_a_client_sends_ends_a_line_or_reaches_a_terminal(serve, tmp_path):
    path, recorded = tmp_path / "requests.jsonl", tmp_path / "trace.jsonl"
    server = serve(request_log=str(path), trace_file=str(recorded))
    post(server.url, "/v1/completions", {"prompt": "x", "user": NASTY, "max_tokens": 1})
    with http(server.url) as client:
        client.get("/%0a%1b[31m%22injected")
        client.get("/v1/models", headers={"X-Request-Id": b"a\x9b\xe2\x80\xa8b"})
    lines = {line["route"]: line for line in lines_of(server, path)}
    assert set(lines) == {"/v1/completions", '/\n\x1b[31m"injected', "/v1/models"}
    assert lines["/v1/completions"]["label"] == NASTY
    assert lines["/v1/models"]["id"].isalnum()
    printable = set(range(32, 127)) | {ord("\n")}
    assert set(path.read_bytes()) <= printable
    assert all(json.loads(line) for line in recorded.read_bytes().split(b"\n") if line)


def test_a_server_that_ends_writes_all_lines_first(monkeypatch, tmp_path):
    path, count = tmp_path / "requests.jsonl", 5000

    async def log_and_end(*_arguments: object) -> bool:
        for number in range(count):
            writer.put({"time": number})
        return True

    monkeypatch.setattr(serving, "_serve", log_and_end)
    monkeypatch.setattr(serving, "freeze_heap", lambda: None)
    writer = LogWriter(path)
    with serving.listen("127.0.0.1", 0) as listener:
        serving.run_server(alphabet(), ServerSettings(), [listener], request_log=writer)
    assert len(path.read_bytes().splitlines()) == count


SANE = ("mine", "a/b:c+d=e@f.g-h_i", "x" * 128)


@pytest.mark.parametrize("sent", [*SANE, "", "x" * 129, "two words", "a\tb", "<script>", "ä"])
def test_a_sane_request_id_is_kept_and_another_one_replaced(url, sent):
    with http(url) as client:
        for path in ("/v1/models", "/nowhere", "/v1/completions", "/"):
            headers = {"X-Request-Id": sent.encode("latin-1")}
            given = client.get(path, headers=headers).headers["x-request-id"]
            assert (given == sent) == (sent in SANE)
            assert sent in SANE or given.isalnum()


def test_what_is_no_log_is_neither_followed_nor_overwritten_nor_waited_for(tmp_path):
    precious, pipe, missing = (tmp_path / name for name in ("thesis.txt", "pipe", "not there yet"))
    precious.write_text("a year's work")
    os.mkfifo(pipe)
    links = [tmp_path / "link", tmp_path / "dangling"]
    for link, target in zip(links, (precious, missing), strict=True):
        link.symlink_to(target)
    others = (tmp_path, pipe, Path("/dev/null"), tmp_path / "nowhere" / "log")
    expected = dict.fromkeys(others) | {precious: errno.EEXIST} | dict.fromkeys(links, errno.ELOOP)
    for path, number in expected.items():
        for append in (False, True):
            with pytest.raises(OSError) as refused:
                open_log(path, append=append)
            assert number in (None, refused.value.errno)
    assert precious.read_text() == "a year's work"
    assert not missing.exists()


def test_an_old_log_is_replaced_or_appended_to(tmp_path):
    path = tmp_path / "log"
    with open_log(path) as file:
        file.write(b'{"time": 1}\n')
    assert path.stat().st_mode & 0o777 == 0o600
    with open_log(path, append=True) as file:
        file.write(b'{"time": 2}\n')
    assert path.read_bytes() == b'{"time": 1}\n{"time": 2}\n'
    with open_log(path) as file:
        file.write(b'{"time": 3}\n')
    assert path.read_bytes() == b'{"time": 3}\n'


# `--trace-text off`: names and texts reach the client that sent them, and no record of it


# A request that says all it can. The prompt and the answer are spelled letter by letter in the log.
NAME, STOP, SHAPE = "Quentin", "klm", "Xylophone"
SAYS_ALL = {
    "prompt": "zzzzzzzzzz",
    "model": "alphabet",
    "max_tokens": 20,
    "stop": [STOP],
    "stop_token_ids": [121],
    "logit_bias": {"98": 1.5},
    "structured_outputs": {"regex": f"[a-z]*|{SHAPE}"},
    "user": NAME,
}


def recorded_of(folder: Path, text: str) -> tuple[dict[str, str], str]:
    """Everything that a server records of one request, by where; and the client's answer."""
    options: dict[str, Any] = {
        "engine": {"max_kv_tokens": 4096, "block_size": 4},
        "server": {"trace_text": text},
        "trace_file": str(folder / "trace.jsonl"),
        "request_log": str(folder / "requests.log"),
    }
    recorded = {}
    with start(paused=True, **options) as server, Feed(server.url) as feed:
        url = server.url
        feed.keyframe()
        post(url, "/engine/hold_submissions")
        caller = Caller(url, "/v1/completions", SAYS_ALL)
        feed.until_held("" if text == "off" else NAME)
        recorded["the page's status"] = json.dumps(feed.status)
        post(url, "/engine/release_submissions")
        post(url, "/engine/step", {"steps": 6})
        with Feed(url) as late:
            recorded["a keyframe"] = msgspec.json.encode(late.keyframe()).decode()
        post(url, "/engine/resume")
        answer = json.loads(caller.read_all().partition("\r\n\r\n")[2])
        recorded |= {path: fetch(url, path).text for path in ("/trace", "/metrics", "/health")}
    for file in ("trace.jsonl", "requests.log"):
        recorded[file] = (folder / file).read_text()
    return recorded, answer["choices"][0]["text"]


def test_nothing_that_records_a_request_has_its_name_its_text_or_its_tokens(tmp_path):
    """Lengths, decisions and blocks stay. With texts, the same search finds everything."""
    logs = {}
    for text in ("on", "off"):
        (tmp_path / text).mkdir()
        recorded, answer = recorded_of(tmp_path / text, text)
        assert answer == "abcdefghij"  # its own client gets it
        for where, told in recorded.items():
            parts = {NAME} if where not in ("/metrics", "/health") else set()
            if where in ("a keyframe", "/trace", "trace.jsonl"):
                parts |= {STOP, SHAPE, '"z"', '"c"'}  # and pieces of prompt and answer
            found = {one for one in (NAME, STOP, SHAPE, '"z"', '"c"') if one in told}
            assert found >= parts if text == "on" else not found, where
        logs[text] = EventLog.load(str(tmp_path / text / "trace.jsonl"))
    [arrived] = logs["off"].of(RequestArrived)
    assert (arrived.label, set(arrived.prompt), set(arrived.texts)) == ("", {-1}, {""})
    left_out = {"stop", "stop_token_ids", "logit_bias", "structured"}
    assert not left_out & set(arrived.sampling)
    steps = logs["off"].of(StepFinished)
    assert {id_ for step in steps for row in step.tokens for id_ in row.ids} == {-1}
    same = [
        name for name in read(logs["on"]).requests.columns if name.endswith(("_tokens", "_step"))
    ]
    assert read(logs["on"]).requests[same].equals(read(logs["off"]).requests[same])
    assert len(logs["on"]) == len(logs["off"])
    assert Workload.from_log(logs["on"]).inputs
    with pytest.raises(ValueError) as error:
        Workload.from_log(logs["off"])
    assert_names(str(error.value), "--trace-text")


def test_tokens_that_a_grammar_forbade_are_left_out():
    engine = Engine.load("bundled", log=EventLog())
    shape = StructuredOutput("choice", '["yes", "no"]')
    engine.complete(["Once upon a time"], SamplingParams(structured=shape))
    steps = [event for event in engine.log if isinstance(event, StepFinished)]
    assert any("wanted" in step.t for step in steps)
    assert not any("wanted" in without_text(step).t for step in steps)
