"""LMTP's messages on the wire, as LMQL's client sends and reads them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine.core.log.vocabulary import RequestArrived, RequestFinished, StepScheduled
from server.api.lmtp.frames import CALLS
from server.api.lmtp.interactive import PARAMETERS
from tests.facts import assert_names
from tests.server.harness import post, sse_data, trace
from tests.server.lmtp.wire import Wire, letters

A_TOKEN = {"token", "stream_id", "logprob", "finish_reason", "top_logprobs"}


@pytest.mark.parametrize("path", ["/", "/lmtp"])
def test_generate_answers_with_tokens_until_length(url, path):
    with Wire(url, path) as wire:
        wire.generate(1, [120, 121], max_tokens=5)
        tokens = wire.tokens(1)
    assert letters(tokens) == "abcde"
    assert [token["finish_reason"] for token in tokens] == [None] * 4 + ["length"]
    for token in tokens:
        assert set(token) == A_TOKEN
        assert token["top_logprobs"][str(token["token"])] == token["logprob"]


def test_the_end_token_itself_is_sent_with_stop(url):
    with Wire(url) as wire:
        wire.generate(1, [ord("?")])
        tokens = wire.tokens(1)
        wire.send("MODEL_INFO", stream_id=2, model="any", data={"model": "any"})
        info = wire.next("MSG", 2)["model_info"]
    assert letters(tokens[:5]) == "abcde"
    assert tokens[5]["token"] in info["eos_ids"]
    assert tokens[5]["finish_reason"] == "stop"


def test_score_echoes_exactly_what_is_scored_and_stops_with_the_last(url):
    with Wire(url) as wire:
        wire.send("SCORE", model="any", prompt=[120], scored=[98, 99, 98], stream_id=1)
        tokens = wire.tokens(1)
    assert [token["token"] for token in tokens] == [98, 99, 98]
    assert [token["finish_reason"] for token in tokens] == [None, None, "stop"]
    assert all("top_logprobs" not in token for token in tokens)


def test_many_streams_share_a_connection_and_each_keeps_its_order(url):
    with Wire(url) as wire:
        for stream in range(40):
            wire.generate(stream, [ord("x")] * (stream + 1), max_tokens=10 + stream % 7)
        texts = [letters(wire.tokens(stream)) for stream in reversed(range(40))]
    assert texts == ["abcdefghijklmnop"[: 10 + stream % 7] for stream in reversed(range(40))]


def test_streams_share_the_batch_with_http_and_are_in_the_log(serve):
    url = serve(paused=True).url
    with Wire(url, additional_headers={"X-Client": "Ada"}) as wire:
        request = wire.queued(1, [120], max_tokens=3)["request"]
        wire.queued(2, [121], max_tokens=3, user="Bo", priority=2)
        post(url, "/engine/resume")
        body = {"prompt": "z", "max_tokens": 3}
        assert sse_data(post(url, "/v1/completions", body).text)[-1]["full_text"] == "abc"
        assert letters(wire.tokens(1)) == letters(wire.tokens(2)) == "abc"
    log = trace(url)
    arrived = log.of(RequestArrived)
    assert [(one.label, one.priority) for one in arrived] == [("Ada", 0), ("Bo", 2), ("", 0)]
    assert arrived[0].request == request
    first = log.of(StepScheduled)[0]
    assert [row.request for row in first.rows][:2] == [arrived[0].request, arrived[1].request]


def test_a_waiting_stream_reports_how_many_are_ahead_of_it(serve):
    url = serve(paused=True).url
    with Wire(url) as wire:
        for stream in range(3):
            assert wire.queued(stream, [120], max_tokens=1)["ahead"] == stream


def test_text_prompts_give_text_pieces_without_the_stop_string(url):
    with Wire(url) as wire:
        wire.generate(1, "Once", stop="de")
        wire.send("SCORE", prompt="Once", scored=" up", stream_id=2)
        tokens = wire.tokens(1)
        assert "".join(token["text"] for token in tokens) == "abc"
        assert tokens[-1]["finish_reason"] == "stop"
        assert [token["text"] for token in wire.tokens(2)] == [" ", "u", "p"]


@pytest.mark.parametrize("prompt", [[None], [], ""])
def test_an_empty_prompt_begins_with_bos(serve, prompt):
    """LMQL sends `[null]` where its tokenizer knows no beginning of sequence."""
    url = serve().url
    with Wire(url) as wire:
        assert wire.say(1, prompt, max_tokens=2) == "ab"
        wire.send("MODEL_INFO", stream_id=2)
        bos = wire.next("MSG", 2)["model_info"]["bos_id"]
    assert trace(url).of(RequestArrived)[0].prompt == [bos]


def test_max_tokens_is_cut_to_what_fits(serve):
    """LMQL asks in chunks and does not know how much room is left."""
    url = serve(max_context=10).url
    with Wire(url) as wire:
        wire.generate(1, [120] * 6, max_tokens=16)
        tokens = wire.tokens(1)
        assert letters(tokens) == "abcd"
        assert tokens[-1]["finish_reason"] == "length"
        assert wire.refused(2, [120] * 10, max_tokens=16)["param"] == "prompt"


X64, LONG_NAME = ["x"] * 65, "x" * 257
WRONG = {  # a field of GENERATE, and values that it may not have
    "prompt": [None, [100_000], {"a": 1}, [120] * 5000, "x" * 1_100_000],
    "length_penalty": [2],
    "max_tokens": ["3", 0],
    "temperature": [-1],
    "structured_outputs": [{}, {"regex": "("}, {"choice": [1]}],
    "top_logprobs": [100_000],
    "logit_bias": [{"97": 1000}, {"a": 1}],
    "keep": [""],
    "from": ["nothing"],
    "stop": [X64, LONG_NAME],
    "stop_token_ids": [[1] * 1025],
    "seed": [2**63],
    "priority": [2**31],
    "top_k": [2**31],
    "user": [LONG_NAME],
}


@pytest.mark.parametrize("field", [*WRONG, "scored"])
def test_what_is_wrong_ends_the_stream_and_names_the_field(url, field):
    word = "SCORE" if field == "scored" else "GENERATE"
    for value in WRONG.get(field, (None, [], [100_000])):
        with Wire(url) as wire:
            wire.send(word, stream_id=7, **{"prompt": [120], field: value})
            error = wire.error(7)
            assert error["param"].startswith(field)
            too_long = error["code"] == "context_length_exceeded"  # in OpenAI's words
            assert_names(error["error"], "maximum context length" if too_long else field)
            assert error["retry"] is False
            wire.generate(7, [120], max_tokens=1)  # the number is free again
            assert letters(wire.tokens(7)) == "a"


DEEP = "[" * 100_000
NOT_READ: list[tuple[str, int | None, str, str | None]] = [  # the frame, and its error
    ("", None, "not_a_frame", None),
    ("GENERATE", None, "not_a_frame", None),
    ("generate {}", None, "not_a_frame", None),
    ("GENERATE {", None, "not_json", None),
    ("GENERATE []", None, "invalid_request", None),
    ("GENERATE {}", None, "invalid_request", "stream_id"),
    ('GENERATE {"stream_id": 1.5}', None, "invalid_request", "stream_id"),
    (f'GENERATE {{"stream_id": {2**70}, "prompt": "x"}}', None, "invalid_request", "stream_id"),
    (
        f'GENERATE {{"stream_id": "{LONG_NAME}", "prompt": "x"}}',
        None,
        "invalid_request",
        "stream_id",
    ),
    (f'MODEL_INFO {{"data": {DEEP}', None, "not_json", None),
    ("DESTROY {}", None, "unknown_command", None),
    ('GENERATE {"stream_id": 7, "prompt": "\\ud800"}', 7, "not_json", None),
    ('GENERATE {"prompt": "half a frame", "stream_id": 7, "max_to', 7, "not_json", None),
    ('GENERATE {"prompt": "\\"stream_id\\": 3, ", "stream_id":7, "stop', 7, "not_json", None),
    (f'GENERATE {{"stream_id": 7, "prompt": {DEEP}', 7, "invalid_request", "prompt[0]"),
]


@pytest.mark.parametrize(
    ("frame", "stream", "code", "param"), NOT_READ, ids=lambda one: str(one)[:20]
)
def test_a_frame_that_cannot_be_read_is_answered_and_the_connection_lives(
    url, frame, stream, code, param
):
    """An error of a stream that can be told ends this stream."""
    with Wire(url) as wire:
        wire.socket.send(frame)
        error = wire.next("MSG" if stream is None else "TOKEN", stream)
        assert (error["code"], error.get("param")) == (code, param)
        assert wire.say(1, [120], max_tokens=2) == "ab"


def test_a_number_in_use_is_refused_without_touching_its_stream(serve):
    url = serve(paused=True).url
    with Wire(url) as wire:
        wire.queued(1, [120], max_tokens=3)
        wire.generate(1, [121], max_tokens=5)
        error = wire.next("MSG", 1, "error")
        assert error["param"] == "stream_id"
        assert_names(error["error"], 1)
        post(url, "/engine/resume")
        assert letters(wire.tokens(1)) == "abc"


def test_a_full_queue_is_an_error_that_can_be_retried(serve):
    url = serve(paused=True, server={"max_waiting": 2}).url
    with Wire(url) as wire:
        for stream in (1, 2):
            wire.queued(stream, [120], max_tokens=1)
        error = wire.refused(3, [120], max_tokens=1)
        assert (error["code"], error["retry"]) == ("queue_full", True)
        assert error["retry_after"] >= 1
        post(url, "/engine/resume")
        assert letters(wire.tokens(1) + wire.tokens(2)) == "aa"
        assert wire.say(3, [120], max_tokens=1) == "a"


def test_a_cancelled_stream_sends_nothing_more_and_gives_everything_back(serve):
    url = serve(paused=True).url
    with Wire(url) as wire:
        wire.queued(1, [120], max_tokens=10)
        post(url, "/engine/step", {"steps": 3})
        wire.send("CANCEL", stream_id=1)
        wire.next("MSG", 1, "status")
        wire.send("CANCEL", stream_id=1)  # harmless
        wire.next("MSG", 1, "status")
        post(url, "/engine/resume")
        assert wire.say(2, [121], max_tokens=4) == "abcd"
        assert [item for kind, item in wire.items if kind == "TOKEN"][3:] == []
    assert [one.reason for one in trace(url).of(RequestFinished)] == ["abort", "length"]


# The examples of docs/lmtp.md: what is sent there gets the answers that are printed there


DOCUMENT = (Path(__file__).parents[3] / "docs" / "lmtp.md").read_text()


def examples() -> list[str]:
    """The frames of all examples, with the side that sends each."""
    blocks = re.findall(r"```lmtp\n(.*?)```", DOCUMENT, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def kind_of(value: Any) -> str:
    return "number" if isinstance(value, int | float) else type(value).__name__


# Fields that tell one item of a stream from another.
FIELDS = ("model_info", "status", "error", "token")
# Values that are not measured, and so must be as printed.
SAID = ("stream_id", "status", "code", "param", "retry", "finish_reason", "buffer", "error")


def shape(item: dict[str, Any]) -> dict[str, Any]:
    """An item with values that may differ from run to run replaced by their kind."""
    return {name: value if name in SAID else kind_of(value) for name, value in item.items()}


def test_every_example_is_answered_as_printed(url):
    assert sum(line.startswith("<") for line in examples()) > 10
    with Wire(url) as wire:
        for line in examples():
            if line.startswith("> "):
                wire.socket.send(line[2:])
                continue
            word, content = line[2:].split(" ", 1)
            for told in json.loads(content):
                field = next(name for name in FIELDS if name in told)
                item = wire.next(word, told["stream_id"], field)
                assert shape(item) == shape(told)
                if field == "model_info":
                    assert set(item[field]) == set(told[field])


def test_the_tables_name_every_command_and_field():
    rows = re.findall(r"^\| (`.*?) \|", DOCUMENT, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(CALLS) <= named
    assert PARAMETERS | {"prompt"} <= named
