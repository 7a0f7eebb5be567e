"""Bad input: always a 400 with OpenAI's error object that names the field, never a 422 or a 500."""

import gzip
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from server.api.models import DetokenizeRequest
from server.api.openai.chat import ChatRequest
from server.api.openai.completions import CompletionRequest
from server.http.bodies import read_body
from server.http.errors import ApiError
from server.process import BackgroundServer
from tests.facts import assert_names
from tests.server.harness import get, http, post

COMPLETIONS = [
    ({}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({"prompt": ""}, None),  # BOS makes it one token: valid with this tokenizer
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": ["x", ""], "stream": True}, None),
    ({"prompt": {"text": "x"}}, "prompt"),
    ({"prompt": [1, "x"]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [100_000]}, "prompt"),
    ({"prompt": "half a \ud800 pair"}, "prompt"),
    ({"prompt": "x" * 5000}, "prompt"),
    ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
    ({"prompt": "x", "max_tokens": -1}, "max_tokens"),
    ({"prompt": "x", "max_tokens": "16"}, "max_tokens"),
    ({"prompt": "x", "max_tokens": 1.5}, "max_tokens"),
    ({"prompt": "x", "max_tokens": 10**9}, "max_tokens"),
    ({"prompt": "x", "temperature": -1}, "temperature"),
    ({"prompt": "x", "temperature": "hot"}, "temperature"),
    ({"prompt": "x", "top_p": 0}, "top_p"),
    ({"prompt": "x", "top_p": 1.1}, "top_p"),
    ({"prompt": "x", "top_k": -2}, "top_k"),
    ({"prompt": "x", "n": 0}, "n"),
    ({"prompt": "x", "n": 2}, "n"),  # the teaching stream has one answer
    ({"prompt": ["x", "y"]}, "prompt"),  # and one prompt
    ({"prompt": "x", "n": 1025, "stream": False}, "n"),
    ({"prompt": ["x"] * 129, "n": 8, "stream": False}, "prompt"),
    ({"prompt": "x", "seed": 1.5}, "seed"),
    ({"prompt": "x", "stream": "yes"}, "stream"),
    ({"prompt": "x", "stream_options": {"include_usage": True}}, "stream_options"),
    ({"prompt": "x", "stream": True, "stream_options": {"usage": 1}}, "stream_options.usage"),
    ({"prompt": "x", "stream": True, "stream_options": {"include_obfuscation": False}}, None),
    (
        {"prompt": "x", "stream": True, "stream_options": {"include_obfuscation": True}},
        "stream_options.include_obfuscation",
    ),
    ({"prompt": "x", "priority": "high"}, "priority"),
    ({"prompt": "x", "user": 7}, "user"),
    ({"prompt": "x", "user": "\ud800"}, "user"),
    ({"prompt": "x", "user": "x" * 257}, "user"),
    ({"prompt": "x", "model": "\ud800"}, "model"),
    ({"prompt": "x", "model": "x" * 257}, "model"),
    ({"prompt": "x", "stop": "\ud800"}, "stop"),
    ({"prompt": "x", "stop": ["a", "\ud800"]}, "stop"),
    ({"prompt": "x", "model": 7}, "model"),
    ({"prompt": "x", "stop": 7}, "stop"),
    ({"prompt": "x", "stop": ["a", ""]}, "stop"),
    ({"prompt": "x", "stop": ["a"] * 65}, "stop"),
    ({"prompt": "x", "stop": "a" * 257}, "stop"),
    ({"prompt": "x", "stop_token_ids": [1000]}, "stop_token_ids"),
    ({"prompt": "x", "stop_token_ids": [1] * 1025}, "stop_token_ids"),
    ({"prompt": "x", "min_tokens": 51}, "min_tokens"),
    ({"prompt": "x", "logprobs": -1}, "logprobs"),
    ({"prompt": "x", "logprobs": 21}, "logprobs"),
    ({"prompt": "x", "logprobs": True}, "logprobs"),
    ({"prompt": "x", "echo": True}, "echo"),  # the teaching stream has no room for it
    ({"prompt": "x", "echo": "yes"}, "echo"),
    ({"prompt": "x", "model": "m", "max_tokens": 0}, "max_tokens"),  # nothing to do without echo
    ({"prompt": "x", "logit_bias": {"x": 1}}, "logit_bias"),
    ({"prompt": "x", "logit_bias": {"-1": 1}}, "logit_bias"),
    ({"prompt": "x", "logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    ({"prompt": "x", "logit_bias": {"1000": 1}}, "logit_bias"),
    ({"prompt": "x", "logit_bias": {"50": 101}}, "logit_bias"),
    ({"prompt": "x", "logit_bias": [50]}, "logit_bias"),
    ({"prompt": "x", "presence_penalty": 2.5}, "presence_penalty"),
    ({"prompt": "x", "frequency_penalty": -2.5}, "frequency_penalty"),
    ({"prompt": "x", "repetition_penalty": 0}, "repetition_penalty"),
    ({"prompt": "x", "min_p": 1.5}, "min_p"),
    ({"prompt": "x", "temperature": float("nan")}, "temperature"),
    ({"prompt": "x", "temperature": float("inf")}, "temperature"),
    ({"prompt": "x", "temperature": 10**400}, "temperature"),
    ({"prompt": "x", "seed": 2**64}, "seed"),
    ({"prompt": "x", "top_k": 2**64}, "top_k"),
    ({"prompt": "x", "priority": 2**64}, "priority"),
    ({"prompt": [2**64]}, "prompt"),
    ({"prompt": "x", "best_of": 3}, "best_of"),  # the teaching stream has one answer
    ({"prompt": "x", "best_of": 2, "n": 3, "stream": False}, "best_of"),
    ({"prompt": "x", "best_of": 1025, "stream": False}, "best_of"),
    ({"prompt": "x", "best_of": 2, "stream": True}, "best_of"),
    ({"prompt": "x", "best_of": 2, "n": 3, "stream": True}, "best_of"),
    ({"prompt": "x", "top_logprobs": 2}, "top_logprobs"),  # chat's
    ({"prompt": "x", "max_completion_tokens": 2}, "max_completion_tokens"),  # chat's
    ({"prompt": "x", "suffix": "y"}, "suffix"),
    ({"prompt": "x", "temprature": 0}, "temprature"),
]

CHAT = [
    ({}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "nobody", "content": "hi"}]}, "messages"),
    ({"messages": [{"role": "\ud800", "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0]",
    ),
    ({"messages": [{"role": "user", "content": "x" * 5000}]}, "messages"),
    ({"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}, "max_tokens"),
    (
        {"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": -1},
        "max_completion_tokens",
    ),
    (
        {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]},
        "tools[0].function",
    ),
    ({"messages": [{"role": "user", "content": "x"}], "logprobs": 1}, "logprobs"),
    (
        {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 21},
        "top_logprobs",
    ),
    ({"messages": [{"role": "user", "content": "x"}], "echo": "yes"}, "echo"),
    ({"messages": [{"role": "user", "content": "x"}], "best_of": 2}, "best_of"),
    (
        {"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "low"},
        "reasoning_effort",
    ),
    ({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2}, "top_logprobs"),
    (
        {
            "messages": [{"role": "user", "content": "x"}],
            "response_format": {"type": "json"},
        },
        "response_format.type",
    ),
    (
        {
            "messages": [{"role": "user", "content": "x"}],
            "structured_outputs": {"json": {"enum": ["\ud800"]}},
        },
        "structured_outputs.json",
    ),
]

CONTROLS = [
    ({"steps": 0}, "steps"),
    ({"steps": "many"}, "steps"),
    ({"step": 1}, "step"),
]


# Bodies whose message names a place in the body, a value and what is allowed there.
MESSAGE = {"role": "user", "content": "x"}
NAMED: list[tuple[type[BaseModel], Any, str | None, tuple[object, ...]]] = [
    (CompletionRequest, [1], None, ("body", "object", "[1]")),
    (CompletionRequest, {"prompt": "x", "max_tokens": -1}, "max_tokens", ("max_tokens", 0, -1)),
    (CompletionRequest, {"prompt": "x", "top_p": 1.5}, "top_p", ("top_p", 1, 1.5)),
    (CompletionRequest, {"prompt": "x", "top_p": 0}, "top_p", ("top_p", "greater", 0)),
    (CompletionRequest, {"prompt": "x", "seed": 2**64}, "seed", ("seed", 2**63 - 1, 2**64)),
    (CompletionRequest, {"prompt": "x", "user": "y" * 257}, "user", ("user", 256)),
    (CompletionRequest, {"prompt": "x", "stream": "yes"}, "stream", ("true", "false", "'yes'")),
    (CompletionRequest, {"prompt": "x", "stop": 7}, "stop", ("stop", "string", "list", 7)),
    (CompletionRequest, {"prompt": "x", "stop": ["a", 7]}, "stop", ("stop[1]", "string", 7)),
    (CompletionRequest, {"prompt": "x", "stop": ["\ud800"]}, "stop", ("stop[0]", "Unicode")),
    (CompletionRequest, {"prompt": [1, "y"]}, "prompt", ("prompt[1]", "integer", "'y'")),
    (CompletionRequest, {"prompt": [[1.5]]}, "prompt", ("prompt[0][0]", "integer", 1.5)),
    (CompletionRequest, {"prompt": ["x"] * 1025}, "prompt", ("prompt", 1024)),
    (CompletionRequest, {"prompt": "x", "logit_bias": [5]}, "logit_bias", ("object", "[5]")),
    (ChatRequest, {"messages": "hi"}, "messages", ("messages", "list", "'hi'")),
    (ChatRequest, {"messages": [5]}, "messages[0]", ("messages[0]", "object", 5)),
    (
        ChatRequest,
        {"messages": [MESSAGE, {"role": "user", "content": [{}]}]},
        "messages[1].content",
        ("messages[1].content[0].type", "missing"),
    ),
    (DetokenizeRequest, {"tokens": [1, -1]}, "tokens[1]", ("tokens[1]", 0, -1)),
]
# Words of Python and pydantic: a client sends JSON.
FOREIGN = re.compile("Traceback|Input|instance of|dictionary|should be|boolean|Request\\b")


def shown(case: Any) -> str:
    return json.dumps(case)[:60] if isinstance(case, dict) else str(case)


def check(url: str, path: str, body: Any, param: str | None) -> None:
    # Half a surrogate pair can be written in JSON, which httpx's encoder does.
    with http(url) as client:
        content = json.dumps(body)
        headers = {"Content-Type": "application/json"}
        answer = client.post(path, content=content, headers=headers)
    if param is None:
        assert answer.status_code == 200, answer.text
        return
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param, error
    assert error["type"] == "invalid_request_error"
    assert error["message"] and not FOREIGN.search(error["message"])


@pytest.mark.parametrize(("body", "param"), COMPLETIONS, ids=shown)
def test_completions(url: str, body: dict, param: str | None) -> None:
    check(url, "/v1/completions", body, param)


@pytest.mark.parametrize(("body", "param"), CHAT, ids=shown)
def test_chat(url: str, body: dict, param: str) -> None:
    check(url, "/v1/chat/completions", body, param)


@pytest.mark.parametrize(("body", "param"), CONTROLS, ids=shown)
def test_controls(url: str, body: dict, param: str) -> None:
    check(url, "/engine/step", body, param)


@pytest.mark.parametrize(("model", "body", "param", "facts"), NAMED, ids=shown)
def test_an_error_names_the_place_the_value_and_what_is_allowed(
    model: type[BaseModel], body: Any, param: str | None, facts: tuple[object, ...]
) -> None:
    with pytest.raises(ApiError) as wrong:
        read_body(model, json.dumps(body).encode(), "application/json")
    assert (wrong.value.status, wrong.value.error["param"]) == (400, param)
    assert_names(wrong.value, *facts)
    assert not FOREIGN.search(str(wrong.value))


@pytest.mark.parametrize("content", ["", "{", "[1]", "nonsense", '"text"', "\x00", "NaN"])
def test_bodies_that_are_no_object(url: str, content: str) -> None:
    with http(url) as client:
        headers = {"Content-Type": "application/json"}
        answer = client.post("/v1/completions", content=content, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_body_without_a_json_content_type_gets_an_error_naming_the_header(url: str) -> None:
    with http(url) as client:
        answer = client.post("/v1/completions", data={"prompt": "x"})
    assert answer.status_code == 400
    assert_names(answer.json()["error"]["message"], "Content-Type", "application/json")


@pytest.mark.parametrize("kind", ["Application/JSON; charset=utf-8", "application/x+json"])
def test_json_by_another_name_is_json(url: str, kind: str) -> None:
    for body, status, param in (({"prompt": "x"}, 200, None), ({"prompt": 1}, 400, "prompt")):
        with http(url) as client:
            content = json.dumps(body)
            answer = client.post("/v1/completions", content=content, headers={"Content-Type": kind})
        assert answer.status_code == status, answer.text
        assert status == 200 or answer.json()["error"]["param"] == param


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
@pytest.mark.parametrize("content", [b'{"prompt": "\xe9"}', b'{"n": ' + b"9" * 5000 + b"}"])
def test_an_unreadable_body_gets_an_error_naming_the_expected_format(
    url: str, path: str, content: bytes
) -> None:
    with http(url) as client:
        answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", None)
    assert_names(error["message"], "JSON", "UTF-8")


def test_a_compressed_body_is_refused_by_its_encoding(url: str) -> None:
    content = gzip.compress(json.dumps({"prompt": "x"}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    with http(url) as client:
        answer = client.post("/v1/completions", content=content, headers=headers)
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "identity")
    assert_names(answer.json()["error"]["message"], "gzip")


def test_unknown_routes_and_wrong_methods(url: str) -> None:
    with http(url) as client:
        for answer, status in (
            (client.get("/v1/nothing"), 404),
            (client.get("/v1/completions"), 405),
            (client.delete("/health"), 405),
        ):
            assert answer.status_code == status
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_prompt_that_is_longer_than_the_context(serve: Callable[..., BackgroundServer]) -> None:
    url = serve(max_context=32).url
    check(url, "/v1/completions", {"prompt": "x" * 40}, "prompt")
    check(url, "/v1/completions", {"prompt": "x" * 20, "max_tokens": 20}, "max_tokens")
    # Chat without a limit takes what is left of the context.
    answer = post(url, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    assert answer.json()["usage"]["total_tokens"] == 32


def test_nothing_is_left_behind(url: str) -> None:
    """After everything this module did: no request waits, and all blocks are free or cached."""
    health = get(url, "/health")
    assert (health["waiting"], health["active"], health["pending_submit"]) == (0, 0, 0)
    assert health["blocks"]["free"] + health["blocks"]["cached"] == health["blocks"]["total"]
