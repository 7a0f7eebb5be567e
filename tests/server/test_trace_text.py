"""`--trace-text off`: names and texts reach the client that sent them, and no record of it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.engine import Engine
from engine.events.log import EventLog
from engine.events.vocabulary import RequestArrived, StepFinished
from engine.events.without_text import without_text
from engine.scheduling.sampling_params import SamplingParams
from engine.scheduling.structured_output import StructuredOutput
from engine.simulation.workload import Workload
from tests.facts import assert_names
from tests.server.harness import Caller, Feed, http, post, start

# A request that says all it can. The prompt and the answer are spelled letter by letter in the log.
NAME, STOP, SHAPE = "Quentin", "klm", "Xylophone"
BODY = {
    "prompt": "zzzzzzzzzz",
    "model": "alphabet",
    "max_tokens": 20,
    "stop": [STOP],
    "stop_token_ids": [121],
    "logit_bias": {"98": 1.5},
    "structured_outputs": {"regex": f"[a-z]*|{SHAPE}"},
    "user": NAME,
}


def run(folder: Path, text: str) -> tuple[dict[str, str], str]:
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
        caller = Caller(url, "/v1/completions", BODY)
        feed.until_held("" if text == "off" else NAME)
        recorded["the page's status"] = json.dumps(feed.status)
        post(url, "/engine/release_submissions")
        post(url, "/engine/step", {"steps": 6})
        with Feed(url) as late:
            recorded["a keyframe"] = msgspec.json.encode(late.keyframe()).decode()
        post(url, "/engine/resume")
        answer = json.loads(caller.read_all().partition("\r\n\r\n")[2])
        with http(url) as client:
            for path in ("/trace", "/metrics", "/health"):
                recorded[path] = client.get(path).text
    for file in ("trace.jsonl", "requests.log"):
        recorded[file] = (folder / file).read_text()
    return recorded, answer["choices"][0]["text"]


def test_nothing_that_records_a_request_has_its_name_its_text_or_its_tokens(tmp_path: Path) -> None:
    recorded, answer = run(tmp_path, "off")
    assert answer == "abcdefghij"  # its own client gets it
    for where, text in recorded.items():
        assert NAME not in text and STOP not in text and SHAPE not in text, where
        assert '"z"' not in text and '"c"' not in text, where  # pieces of prompt and answer
    log = EventLog.load(str(tmp_path / "trace.jsonl"))
    [arrived] = log.of(RequestArrived)
    assert (arrived.label, set(arrived.prompt), set(arrived.texts)) == ("", {-1}, {""})
    left_out = {"stop", "stop_token_ids", "logit_bias", "structured"}
    assert not left_out & set(arrived.sampling)
    assert {id_ for step in log.of(StepFinished) for row in step.tokens for id_ in row.ids} == {-1}


def test_the_search_finds_them_in_a_server_that_records_texts(tmp_path: Path) -> None:
    recorded, answer = run(tmp_path, "on")
    assert answer == "abcdefghij"
    assert all(NAME in text for where, text in recorded.items() if where not in _NAMELESS)
    for where in ("a keyframe", "/trace", "trace.jsonl"):
        assert STOP in recorded[where] and SHAPE in recorded[where], where
        assert '"z"' in recorded[where] and '"c"' in recorded[where], where


_NAMELESS = ("/metrics", "/health")


def test_lengths_decisions_and_blocks_stay_and_a_replay_is_rejected(tmp_path: Path) -> None:
    logs = {}
    for text in ("on", "off"):
        (tmp_path / text).mkdir()
        run(tmp_path / text, text)
        logs[text] = EventLog.load(str(tmp_path / text / "trace.jsonl"))
    same = [name for name in logs["on"].requests.columns if name.endswith(("_tokens", "_step"))]
    assert logs["on"].requests[same].equals(logs["off"].requests[same])
    assert len(logs["on"]) == len(logs["off"])
    assert Workload.from_log(logs["on"]).inputs
    with pytest.raises(ValueError) as error:
        Workload.from_log(logs["off"])
    assert_names(str(error.value), "--trace-text")


def test_tokens_that_a_grammar_forbade_are_left_out() -> None:
    engine = Engine.load("bundled", log=EventLog())
    shape = StructuredOutput("choice", '["yes", "no"]')
    engine.complete(["Once upon a time"], SamplingParams(structured=shape))
    steps = [event for event in engine.log if isinstance(event, StepFinished)]
    assert any("wanted" in step.t for step in steps)
    assert not any("wanted" in without_text(step).t for step in steps)
