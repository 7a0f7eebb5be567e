"""`response_format` and `structured_outputs`: what a request asks for, and the limits of a grammar.

That samples have the shape, the engine's tests show, and clients in `tests/clients`.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.facts import assert_names
from tests.server.harness import post, sse_data
from tests.server.test_openai_fields import BODIES, rendered

SERVER = {"model": "bundled"}
MESSAGES = [{"role": "user", "content": "What is 17 + 25?"}]
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}}
INDENTED = json.dumps(SCHEMA, indent=2)
LATER = "[xyz]{40}(a?){200}a{200}"  # reaches a limit after 40 letters
FORMAT = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}
# What the body asks for, and what the engine gets.
SHAPES: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({"response_format": FORMAT}, {"kind": "json_schema", "text": json.dumps(SCHEMA)}),
    ({"structured_outputs": {"json": SCHEMA}}, {"kind": "json_schema", "text": json.dumps(SCHEMA)}),
    ({"structured_outputs": {"json": INDENTED}}, {"kind": "json_schema", "text": INDENTED}),
    ({"structured_outputs": {"regex": "[A-Z]{3}"}}, {"kind": "regex", "text": "[A-Z]{3}"}),
    (
        {"structured_outputs": {"choice": ["yés", "no"]}},
        {"kind": "choice", "text": '["yés", "no"]'},
    ),
    (
        {"structured_outputs": {"grammar": 'start: "a" "b"'}},
        {"kind": "grammar", "text": 'start: "a" "b"'},
    ),
    ({"response_format": {"type": "text"}}, None),
    ({"structured_outputs": None}, None),
]
ANY_OBJECT = [
    {"response_format": {"type": "json_object"}},
    {"structured_outputs": {"json_object": True}},
    {"structured_outputs": {"json_object": True, "disable_any_whitespace": False}},
]


@pytest.mark.parametrize("endpoint", BODIES)
def test_the_engine_gets_the_shape(url, endpoint):
    for fields, shape in SHAPES:
        assert rendered(url, endpoint, **fields)["structured"] == shape, fields
    shapes = [rendered(url, endpoint, **fields)["structured"] for fields in ANY_OBJECT]
    assert shapes == [{"kind": "json_object", "text": ""}] * 3
    answer = post(url, f"/v1/{endpoint}", BODIES[endpoint] | SHAPES[4][0] | {"n": 3}).json()
    texts = [one.get("text") or one["message"]["content"] for one in answer["choices"]]
    assert set(texts) <= {"yés", "no"} and len(texts) == 3


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_limit_that_an_output_reaches_is_named_and_ends_no_other_request(url, path):
    prompt = {"messages": MESSAGES} if "chat" in path else {"prompt": "x"}
    body = prompt | {"model": "any", "max_tokens": 60, "temperature": 1.0, "seed": 1, "user": "a"}
    limited = body | {"structured_outputs": {"regex": LATER}}
    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(post, url, path, body | {"ignore_eos": True})
        answer = post(url, path, limited)
        assert other.result().json()["choices"][0]["finish_reason"] == "length"
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"], error["type"]) == (
        *(400, "structured_outputs.regex", "grammar_limit"),
        "invalid_request_error",
    )
    assert_names(error["message"], "step_lexer_fuel", "20,000", "output")
    streamed = sse_data(post(url, path, limited | {"stream": True}).text)
    assert [one["error"] for one in streamed if "error" in one] == [error]
    assert len(streamed) > 10  # with the output so far
