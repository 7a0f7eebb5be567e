"""`response_format` and `structured_outputs`: over HTTP, with the bundled model and OpenAI's SDK."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, ConfigDict

from engine.events.vocabulary import RequestArrived
from tests.facts import assert_names
from tests.server.harness import post, sse_data, trace
from tests.server.test_openai_fields import ANSWERS, ask

SERVER = {"model": "bundled"}
MESSAGES = [{"role": "user", "content": "What is 17 + 25?"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "maximum": 99}},
    "required": ["city", "days"],
}
CODE = "[A-Z]{3}-[0-9]{2}"
LATER = "[xyz]{40}(a?){200}a{200}"  # reaches a limit after 40 letters


def is_trip(text: str) -> bool:
    trip = json.loads(text)
    return list(trip) == ["city", "days"] and trip["city"] in ("Paris", "Rome")


def format_of(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "trip", "schema": schema}}


# What the body asks for, what the log says about it, and whether a text has the shape.
SHAPES: list[tuple[dict[str, Any], tuple[str, str], Any]] = [
    ({"response_format": format_of(SCHEMA)}, ("json_schema", json.dumps(SCHEMA)), is_trip),
    ({"structured_outputs": {"json": SCHEMA}}, ("json_schema", json.dumps(SCHEMA)), is_trip),
    (
        {"structured_outputs": {"json": json.dumps(SCHEMA, indent=2)}},
        ("json_schema", json.dumps(SCHEMA, indent=2)),
        is_trip,
    ),
    ({"structured_outputs": {"regex": CODE}}, ("regex", CODE), re.compile(CODE).fullmatch),
    (
        {"structured_outputs": {"choice": ["yés", "no"]}},
        ("choice", '["yés", "no"]'),
        lambda text: text in ("yés", "no"),
    ),
    (
        {"structured_outputs": {"grammar": 'start: "a" "b"'}},
        ("grammar", 'start: "a" "b"'),
        lambda text: text == "ab",
    ),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda one: f"{one[0]}-{one[1]}")
@pytest.mark.parametrize(
    ("fields", "logged", "has_shape"), SHAPES, ids=[logged[0] for _, logged, _ in SHAPES]
)
def test_every_sample_has_the_shape(
    client: openai.OpenAI,
    url: str,
    answer: tuple[str, bool],
    fields: dict[str, Any],
    logged: tuple[str, str],
    has_shape: Any,
) -> None:
    got = ask(client, *answer, **fields, n=3, temperature=1.0, seed=5, max_tokens=60)
    assert got.reasons == dict.fromkeys(range(3), "stop")
    assert all(has_shape(text) for text in got.texts.values()), got.texts
    structured = trace(url).of(RequestArrived)[-1].sampling["structured"]
    assert (structured["kind"], structured["text"]) == logged


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json_object": True}},
        {"structured_outputs": {"json_object": True, "disable_any_whitespace": False}},
    ],
    ids=str,
)
def test_any_json_object(client: openai.OpenAI, fields: dict[str, Any]) -> None:
    text = ask(client, "chat", False, **fields, max_tokens=30).texts[0]
    assert text.startswith("{")
    with pytest.raises(ValueError):
        json.loads(text + " {")


def test_text_and_null_ask_for_nothing(client: openai.OpenAI, url: str) -> None:
    for fields in ({"response_format": {"type": "text"}}, {"structured_outputs": None}):
        assert ask(client, "chat", False, **fields) == ask(client, "chat", False)
        assert "structured" not in trace(url).of(RequestArrived)[-2].sampling


class Trip(BaseModel):
    model_config = ConfigDict(extra="forbid")

    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


def test_a_cut_off_answer_says_so(client: openai.OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model="any", messages=MESSAGES, response_format=Trip, max_tokens=3
        )


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_limit_that_an_output_reaches_is_named_and_ends_no_other_request(
    url: str, path: str
) -> None:
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
